// The processor's directed rounding. Volatile operands keep the compiler from computing before the mode is set.

#include "rounding.h"

#include <cfenv>
#include <cmath>

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

}  // namespace

template <typename T>
T rounded_add(T a, T b, Rounding rounding) {
  const Mode mode(rounding);
  const volatile T x = a, y = b;
  const volatile T result = x + y;
  return result;
}

template <typename T>
T rounded_multiply(T a, T b, Rounding rounding) {
  const Mode mode(rounding);
  const volatile T x = a, y = b;
  const volatile T result = x * y;
  return result;
}

template <typename T>
T rounded_multiply_add(T a, T b, T c, Rounding rounding) {
  const Mode mode(rounding);
  const volatile T x = a, y = b, z = c;
  const volatile T result = std::fma(T(x), T(y), T(z));
  return result;
}

template <typename T>
T rounded_divide(T a, T b, Rounding rounding) {
  const Mode mode(rounding);
  const volatile T x = a, y = b;
  const volatile T result = x / y;
  return result;
}

template <typename T>
T rounded_root(T value, Rounding rounding) {
  const Mode mode(rounding);
  const volatile T x = value;
  const volatile T result = std::sqrt(T(x));
  return result;
}

template float rounded_add(float, float, Rounding);
template double rounded_add(double, double, Rounding);
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
  if (x != x) return from_double || bits == 64 ? int64_t(uint64_t(1) << (bits - 1)) : 0;
  const double whole = rounded_whole(x, rounding);
  const double limit = std::ldexp(1.0, is_signed ? bits - 1 : bits);
  if (is_signed) {
    const int64_t most = int64_t((uint64_t(1) << (bits - 1)) - 1);
    return whole >= limit ? most : whole < -limit ? -most - 1 : int64_t(whole);
  }
  if (whole >= limit) return bits == 64 ? -1 : int64_t((uint64_t(1) << bits) - 1);
  return whole <= 0 ? 0 : int64_t(uint64_t(whole));
}

}  // namespace emulator
