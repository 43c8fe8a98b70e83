// Functions of numbers, for formulas that GPUs compute as well: cuda/functions.cuh has the same names.
//
// A number is float32 or float64. NaN stays NaN, as in PyTorch.

#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>

#include "exponential.h"

#define FORMULA inline

namespace math {

template <typename Number>
constexpr Number kInfinity = std::numeric_limits<Number>::infinity();
template <typename Number>
constexpr Number kNaN = std::numeric_limits<Number>::quiet_NaN();

// clang-format off
template <typename Number> FORMULA Number abs(Number x) { return std::fabs(x); }
template <typename Number> FORMULA Number acos(Number x) { return std::acos(x); }
template <typename Number> FORMULA Number acosh(Number x) { return std::acosh(x); }
template <typename Number> FORMULA Number asin(Number x) { return std::asin(x); }
template <typename Number> FORMULA Number asinh(Number x) { return std::asinh(x); }
template <typename Number> FORMULA Number atan(Number x) { return std::atan(x); }
template <typename Number> FORMULA Number atan2(Number y, Number x) { return std::atan2(y, x); }
template <typename Number> FORMULA Number atanh(Number x) { return std::atanh(x); }
template <typename Number> FORMULA Number ceil(Number x) { return std::ceil(x); }
template <typename Number> FORMULA Number copy_sign(Number x, Number y) { return std::copysign(x, y); }
template <typename Number> FORMULA Number cos(Number x) { return std::cos(x); }
template <typename Number> FORMULA Number cosh(Number x) { return std::cosh(x); }
template <typename Number> FORMULA Number erf(Number x) { return std::erf(x); }
template <typename Number> FORMULA Number erfc(Number x) { return std::erfc(x); }
template <typename Number> FORMULA Number exp(Number x) { return exponential(x); }
template <typename Number> FORMULA Number exp2(Number x) { return std::exp2(x); }
template <typename Number> FORMULA Number expm1(Number x) { return std::expm1(x); }
template <typename Number> FORMULA Number floor(Number x) { return std::floor(x); }
template <typename Number> FORMULA Number hypot(Number x, Number y) { return std::hypot(x, y); }
template <typename Number> FORMULA bool is_infinite(Number x) { return std::fabs(x) == kInfinity<Number>; }
template <typename Number> FORMULA bool is_nan(Number x) { return x != x; }
template <typename Number> FORMULA Number log(Number x) { return std::log(x); }
template <typename Number> FORMULA Number log10(Number x) { return std::log10(x); }
template <typename Number> FORMULA Number log1p(Number x) { return std::log1p(x); }
template <typename Number> FORMULA Number log2(Number x) { return std::log2(x); }
template <typename Number> FORMULA Number maximum(Number x, Number y) { return x > y || x != x ? x : y; }
template <typename Number> FORMULA Number minimum(Number x, Number y) { return x < y || x != x ? x : y; }
template <typename Number> FORMULA Number quotient(Number x, Number y) { return x / y; }
template <typename Number> FORMULA Number relu(Number x) { return x < 0 ? Number(0) : x; }
template <typename Number> FORMULA Number remainder_of_truncated(Number x, Number y) { return std::fmod(x, y); }
template <typename Number> FORMULA Number round(Number x) { return std::nearbyint(x); }
template <typename Number> FORMULA Number rsqrt(Number x) { return 1 / std::sqrt(x); }
template <typename Number> FORMULA Number sigmoid(Number x) { return 1 / (1 + exponential(-x)); }
template <typename Number> FORMULA Number sign(Number x) { return Number(x > 0) - Number(x < 0); }
template <typename Number> FORMULA Number sin(Number x) { return std::sin(x); }
template <typename Number> FORMULA Number sinh(Number x) { return std::sinh(x); }
template <typename Number> FORMULA Number sqrt(Number x) { return std::sqrt(x); }
template <typename Number> FORMULA Number tan(Number x) { return std::tan(x); }
template <typename Number> FORMULA Number tanh(Number x) { return std::tanh(x); }
template <typename Number> FORMULA Number trunc(Number x) { return std::trunc(x); }
// clang-format on

// Exponents that are often asked for have ways of their own, which compilers can vectorise.
template <typename Number>
FORMULA Number pow(Number x, Number y) {
  if (y == 2) return x * x;
  if (y == 1) return x;
  if (y == 3) return x * x * x;
  return std::pow(x, y);
}

// What Python's % gives: it has the sign of y.
template <typename Number>
FORMULA Number remainder(Number x, Number y) {
  const Number rest = std::fmod(x, y);
  return rest != 0 && (rest < 0) != (y < 0) ? rest + y : rest;
}

// ---- float32, in a form that compilers turn into vector instructions -----------------------------------------
//
// A call of std::tanh in a loop is one call for each element. The polynomials are closest to the function at the
// Chebyshev points of their interval; both sides of a choice are computed. Errors are below 4 units in the last place.

namespace detail {

// first + x * (second + x * (...)).
template <typename... Floats>
inline float polynomial(float x, float first, Floats... others) {
  if constexpr (sizeof...(others) == 0) {
    return first;
  } else {
    return first + x * polynomial(x, others...);
  }
}

// log(1 + f), for 1 + f between the square roots of 1/2 and of 2.
inline float log_near_one(float f) {
  const float p = polynomial(
      f,
      0.333333312f,
      -0.24999997f,
      0.200007157f,
      -0.166678023f,
      0.142490576f,
      -0.124256873f,
      0.116854199f,
      -0.114797339f,
      0.0697161162f);
  return f - (0.5f * f * f - f * f * f * p);
}

}  // namespace detail

inline float tanh(float x) {
  const float magnitude = std::fabs(x), square = x * x;
  const float p =
      detail::polynomial(square, -0.333333289f, 0.133327697f, -0.0538509096f, 0.020997179f, -0.00609671416f);
  const float far = 1.0f - 2.0f / (exponential(2.0f * magnitude) + 1.0f);
  return magnitude < 0.625f ? x + x * square * p : std::copysign(far, x);
}

inline float erf(float x) {
  const float magnitude = std::fabs(x), square = x * x;
  const float near = detail::polynomial(
      square,
      1.12837917f,
      -0.376126267f,
      0.112835947f,
      -0.026854212f,
      0.00518908742f,
      -0.000801686429f,
      7.87587508e-05f);
  // From 4 on the result is 1.
  const float far = magnitude < 4.0f ? magnitude : 4.0f;
  const float tail = detail::polynomial(
      1.0f / (far < 1.0f ? 1.0f : far),
      0.00027731486f,
      0.558895503f,
      0.0432018949f,
      -0.476690931f,
      0.509401363f,
      -0.260517346f,
      0.0404056119f,
      0.0203504747f,
      -0.00774031998f);
  const float outside = std::copysign(1.0f - exponential(-far * far) * tail, x);
  const float result = magnitude < 1.0f ? x * near : outside;
  return x != x ? x : result;
}

inline float log(float x) {
  // Subnormal numbers times 2^23.
  const bool is_small = x < 1.17549435e-38f;
  const float scaled = is_small ? x * 8388608.0f : x;
  int32_t bits;
  std::memcpy(&bits, &scaled, sizeof(bits));
  // The exponent of the number nearest to 1 by a power of 2: the fraction then lies between the roots of 1/2 and 2.
  const int32_t exponent = (bits - 0x3f3504f3) >> 23;
  const int32_t fraction = bits - exponent * (1 << 23);
  float m;
  std::memcpy(&m, &fraction, sizeof(m));
  const float k = static_cast<float>(exponent) - (is_small ? 23.0f : 0.0f);
  const float value = k * -2.12194440e-4f + detail::log_near_one(m - 1.0f) + k * 0.693359375f;
  const float finite = x == 0.0f ? -kInfinity<float> : x < 0.0f ? kNaN<float> : value;
  return x == kInfinity<float> || x != x ? x : finite;
}

inline float log1p(float x) {
  const float sum = 1.0f + x;
  // What rounding the sum has lost.
  const float lost = std::fabs(x) < 1.0f ? x - (sum - 1.0f) : 0.0f;
  const float value = log(sum) + (sum > 0.0f ? lost / sum : 0.0f);
  return std::fabs(x) < 1e-4f ? x - 0.5f * x * x : value;
}

inline float expm1(float x) {
  const float p = detail::polynomial(
      x, 0.5f, 0.166666671f, 0.0416666671f, 0.00833318207f, 0.00138887377f, 0.000199621762f, 2.49224364e-05f);
  return std::fabs(x) < 0.5f ? x + x * x * p : exponential(x) - 1.0f;
}

}  // namespace math
