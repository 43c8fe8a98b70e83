// The processor's directed rounding, and the NaNs of a GPU. Volatile operands keep the compiler from computing before
// the mode is set.

#include "rounding.h"

#include <bit>
#include <cfenv>
#include <cmath>
#include <initializer_list>

namespace emulator {

namespace {

class Mode {
 public:
  explicit Mode(Rounding rounding) {
    constexpr int kModes[] = {FE_TONEAREST, FE_TOWARDZERO, FE_UPWARD, FE_DOWNWARD};
    if (rounding != Rounding::kNearest) fesetround(kModes[int(rounding)]);
  }
  ~Mode() { fesetround(FE_TONEAREST); }
};

float with_nan(float result, std::initializer_list<float>) {
  return canonical(result);
}

// In double precision it is the first of the operands, in the order given, that is NaN, quieted. An H100 shows the
// order; PTX leaves it open.
double with_nan(double result, std::initializer_list<double> operands) {
  if (result == result) return result;
  for (const double x : operands) {
    if (x != x) return quieted(x);
  }
  return std::bit_cast<double>(uint64_t(0xfff8000000000000));
}

}  // namespace

double quieted(double x) {
  return x == x ? x : std::bit_cast<double>(std::bit_cast<uint64_t>(x) | uint64_t(1) << 51);
}

template <typename T>
T rounded_add(T a, T b, Rounding rounding) {
  const Mode mode(rounding);
  const volatile T x = a, y = b;
  const volatile T result = x + y;
  return with_nan(T(result), {b, a});
}

template <typename T>
T rounded_subtract(T a, T b, Rounding rounding) {
  const Mode mode(rounding);
  const volatile T x = a, y = b;
  const volatile T result = x - y;
  return with_nan(T(result), {b, a});
}

template <typename T>
T rounded_multiply(T a, T b, Rounding rounding) {
  const Mode mode(rounding);
  const volatile T x = a, y = b;
  const volatile T result = x * y;
  return with_nan(T(result), {b, a});
}

template <typename T>
T rounded_multiply_add(T a, T b, T c, Rounding rounding) {
  const Mode mode(rounding);
  const volatile T x = a, y = b, z = c;
  const volatile T result = std::fma(T(x), T(y), T(z));
  return with_nan(T(result), {b, c, a});
}

template <typename T>
T rounded_divide(T a, T b, Rounding rounding) {
  const Mode mode(rounding);
  const volatile T x = a, y = b;
  const volatile T result = x / y;
  return with_nan(T(result), {a, b});
}

template <typename T>
T rounded_root(T value, Rounding rounding) {
  const Mode mode(rounding);
  const volatile T x = value;
  const volatile T result = std::sqrt(T(x));
  return with_nan(T(result), {value});
}

template float rounded_add(float, float, Rounding);
template double rounded_add(double, double, Rounding);
template float rounded_subtract(float, float, Rounding);
template double rounded_subtract(double, double, Rounding);
template float rounded_multiply(float, float, Rounding);
template double rounded_multiply(double, double, Rounding);
template float rounded_multiply_add(float, float, float, Rounding);
template double rounded_multiply_add(double, double, double, Rounding);
template float rounded_divide(float, float, Rounding);
template double rounded_divide(double, double, Rounding);
template float rounded_root(float, Rounding);
template double rounded_root(double, Rounding);

float rounded_float(double value, Rounding rounding) {
  const Mode mode(rounding);
  const volatile double x = value;
  const volatile float result = float(x);
  return result;
}

float rounded_float(int64_t value, Rounding rounding) {
  const Mode mode(rounding);
  const volatile int64_t x = value;
  const volatile float result = float(x);
  return result;
}

float rounded_float(uint64_t value, Rounding rounding) {
  // The conversion of large unsigned numbers takes two steps, of which the first must not round.
  if (value >> 63 == 0) return rounded_float(int64_t(value), rounding);
  const uint64_t halved = value >> 1 | (value & 1);
  return 2 * rounded_float(int64_t(halved), rounding);
}

double rounded_double(int64_t value, Rounding rounding) {
  const Mode mode(rounding);
  const volatile int64_t x = value;
  const volatile double result = double(x);
  return result;
}

double rounded_double(uint64_t value, Rounding rounding) {
  if (value >> 63 == 0) return rounded_double(int64_t(value), rounding);
  const uint64_t halved = value >> 1 | (value & 1);
  return 2 * rounded_double(int64_t(halved), rounding);
}

double rounded_whole(double x, Rounding rounding) {
  switch (rounding) {
    case Rounding::kZero: return std::trunc(x);
    case Rounding::kUp: return std::ceil(x);
    case Rounding::kDown: return std::floor(x);
    case Rounding::kNearest: break;
  }
  return std::nearbyint(x);
}

int64_t rounded_integer(double x, int bits, bool is_signed, bool from_double, Rounding rounding) {
  const int64_t most = int64_t((uint64_t(1) << (bits - 1)) - 1);
  if (x != x) return !from_double && bits < 64 ? 0 : is_signed ? -most - 1 : int64_t(uint64_t(most) + 1);
  const double whole = rounded_whole(x, rounding);
  const double limit = std::ldexp(1.0, is_signed ? bits - 1 : bits);
  if (is_signed) {
    return whole >= limit ? most : whole < -limit ? -most - 1 : int64_t(whole);
  }
  if (whole >= limit) return bits == 64 ? -1 : int64_t((uint64_t(1) << bits) - 1);
  return whole <= 0 ? 0 : int64_t(uint64_t(whole));
}

}  // namespace emulator
