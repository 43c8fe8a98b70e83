// Functions of numbers, for formulas that GPUs compute as well: cuda/functions.cuh has the same names.
//
// A number is float32 or float64. NaN stays NaN, as in PyTorch.

#pragma once

#include <cmath>
#include <cstdint>
#include <limits>

#include "angles.h"
#include "common_functions.h"
#include "exponential.h"
#include "float_bits.h"

namespace math {

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

// Exponents that are often asked for have results of their own, as in PyTorch.
template <typename Number>
FORMULA Number pow(Number x, Number y) {
  if (y == 2) return x * x;
  if (y == 1) return x;
  if (y == 3) return x * x * x;
  return std::pow(x, y);
}

// With an exponent that all elements share. PyTorch has roots then, which differ for -inf and for -0.
template <typename Number>
FORMULA Number scalar_power(Number x, Number y) {
  if (y == Number(0.5)) return std::sqrt(x);
  if (y == Number(-0.5)) return 1 / std::sqrt(x);
  return math::pow(x, y);
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
// Chebyshev points of their interval. Errors are below 4 units in the last place.

namespace detail {

// first + x * (second + x * (...)).
template <typename Number, typename... Numbers>
inline Number polynomial(Number x, Number first, Numbers... others) {
  if constexpr (sizeof...(others) == 0) {
    return first;
  } else {
    return first + x * polynomial(x, others...);
  }
}

// A positive number as fraction * 2^exponent, with the fraction between the square roots of 1/2 and 2.
struct Parts {
  float fraction, exponent;
};

inline Parts parts_of(float x) {
  // Subnormal numbers times 2^23.
  const bool is_small = x < 1.17549435e-38f;
  const uint32_t bits = static_cast<uint32_t>(bits_of(choose(is_small, x * 8388608.0f, x)));
  const int32_t exponent = static_cast<int32_t>(bits - 0x3f3504f3) >> 23;
  const float fraction = float_of(static_cast<int32_t>(bits - (static_cast<uint32_t>(exponent) << 23)));
  return {fraction, static_cast<float>(exponent) - choose(is_small, 23.0f, 0.0f)};
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

// A logarithm of x, given that of a positive finite number.
inline float of_any_number(float x, float logarithm) {
  const float finite = choose(x == 0.0f, -kInfinity<float>, choose(x < 0.0f, kNaN<float>, logarithm));
  return choose((x == kInfinity<float>) | (x != x), x, finite);
}

// log2 of a positive finite number: log2(m) = s p(s^2) with s = (m - 1) / (m + 1).
inline double accurate_log2(float x) {
  const Parts parts = parts_of(x);
  const double m = parts.fraction, s = (m - 1) / (m + 1), square = s * s;
  const double p = polynomial(
      square, 2.8853900817900677, 0.9617966733606409, 0.57708358180893016, 0.41167288974496991, 0.34072721252073096);
  return parts.exponent + s * p;
}

// 2^x of a number between -200 and 200: in two factors, since it may be subnormal.
inline float accurate_exp2(double x) {
  constexpr double kRounder = 6755399441055744.0;  // 1.5 * 2^52: numbers near it have no bits for fractions.
  const double k = (x + kRounder) - kRounder, r = x - k;
  const double p = polynomial(
      r,
      0.99999999995954825,
      0.6931472067106198,
      0.24022651213596563,
      0.055503272142099151,
      0.009618025602807178,
      0.0013400432165100828,
      0.00015469732020323849);
  const int32_t whole = static_cast<int32_t>(k), half = whole >> 1;
  return static_cast<float>(p) * power_of_2(half) * power_of_2(whole - half);
}

}  // namespace detail

inline float tanh(float x) {
  const float magnitude = std::fabs(x), square = x * x;
  const float p =
      detail::polynomial(square, -0.333333289f, 0.133327697f, -0.0538509096f, 0.020997179f, -0.00609671416f);
  const float far = 1.0f - 2.0f / (exponential(2.0f * magnitude) + 1.0f);
  return std::copysign(choose(magnitude < 0.625f, x + x * square * p, far), x);
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
  const float far = choose(magnitude < 4.0f, magnitude, 4.0f);
  const float tail = detail::polynomial(
      1.0f / choose(far < 1.0f, 1.0f, far),
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
  return choose(x != x, x, choose(magnitude < 1.0f, x * near, outside));
}

inline float log(float x) {
  const detail::Parts parts = detail::parts_of(x);
  const float near = detail::log_near_one(parts.fraction - 1.0f);
  return detail::of_any_number(x, parts.exponent * -2.12194440e-4f + near + parts.exponent * 0.693359375f);
}

inline float log2(float x) {
  const detail::Parts parts = detail::parts_of(x);
  return detail::of_any_number(x, detail::log_near_one(parts.fraction - 1.0f) * 1.44269504f + parts.exponent);
}

// log10(2) in two parts, of which the exponent times the first is exact.
inline float log10(float x) {
  const detail::Parts parts = detail::parts_of(x);
  const float near = detail::log_near_one(parts.fraction - 1.0f) * 0.434294482f;
  return detail::of_any_number(x, parts.exponent * 4.60503845e-06f + near + parts.exponent * 0.301025391f);
}

// 1 + x = 2^k (1 + m), with 1 + m between 3/4 and 3/2. For small x k is 0, so that m is x; for others only rounding the
// sum 2^-k x + (2^-k - 1) loses something.
inline float log1p(float x) {
  const float sum = 1.0f + x;
  const uint32_t power = (static_cast<uint32_t>(bits_of(sum)) - 0x3f400000) & 0xff800000;  // k, among bits of 2^k
  const float scaled = float_of(static_cast<int32_t>(static_cast<uint32_t>(bits_of(x)) - power));
  const float m = scaled + (0.25f * float_of(static_cast<int32_t>(0x40800000 - power)) - 1.0f);
  const float k = static_cast<float>(static_cast<int32_t>(power) >> 23);
  const float p = detail::polynomial(
      m,
      0.333334506f,
      -0.250000954f,
      0.199908614f,
      -0.16647312f,
      0.144783944f,
      -0.131611943f,
      0.104630224f,
      -0.0450748019f);
  const float near = m - (0.5f * m * m - m * m * m * p);
  const float value = k * -2.12194440e-4f + near + k * 0.693359375f;
  return std::copysign(detail::of_any_number(sum, value), x);
}

inline float expm1(float x) {
  const float p = detail::polynomial(
      x, 0.5f, 0.166666671f, 0.0416666671f, 0.00833318207f, 0.00138887377f, 0.000199621762f, 2.49224364e-05f);
  return std::copysign(choose(std::fabs(x) < 0.5f, x + x * x * p, exponential(x) - 1.0f), x);
}

inline float exp2(float x) {
  const float below = choose(x > 200.0f, 200.0f, x);
  return choose(x != x, x, detail::accurate_exp2(choose(below < -200.0f, -200.0f, below)));
}

inline float sinh(float x) {
  const float magnitude = std::fabs(x), e = expm1(magnitude), root = exponential(0.5f * magnitude);
  const float near = 0.5f * (e + e / (e + 1.0f));
  return std::copysign(choose(magnitude < 80.0f, near, 0.5f * root * root), x);
}

inline float cosh(float x) {
  const float root = exponential(0.5f * std::fabs(x));
  return 0.5f * root * root + 0.5f / root / root;
}

// As C has it of zeros, infinities and NaN.
inline float pow(float x, float y) {
  const float base = std::fabs(x), size = std::fabs(y);
  const double exponent = y * detail::accurate_log2(base);
  const double below = exponent > 200 ? 200 : exponent;
  const float finite = detail::accurate_exp2(below < -200 ? -200 : below);
  // Of a base or an exponent that is infinite, or of 0.
  const float limit = choose((base > 1.0f) == (y > 0.0f), kInfinity<float>, 0.0f);
  const bool is_limit = (base == 0.0f) | (base == kInfinity<float>) | (size == kInfinity<float>);
  // From 2^24 on all numbers are even.
  const float small = choose(size < 16777216.0f, y, 0.0f);
  const float whole = static_cast<float>(static_cast<int32_t>(small)), half = 0.5f * whole;
  const bool is_whole = small == whole, is_odd = is_whole & (half != static_cast<float>(static_cast<int32_t>(half)));
  const float root = choose(!is_whole & (x < 0.0f), kNaN<float>, finite);
  const float size_of_result = choose(is_limit, limit, root);
  const float power = choose(is_odd, std::copysign(size_of_result, x), size_of_result);
  const float number = choose((x != x) | (y != y), x + y, power);
  const bool is_one = (y == 0.0f) | (x == 1.0f) | ((x == -1.0f) & (size == kInfinity<float>));
  const float result = choose(is_one, 1.0f, number);
  // As PyTorch has these exponents.
  return choose(y == 3.0f, x * x * x, choose(y == 2.0f, x * x, choose(y == 1.0f, x, result)));
}

inline float scalar_power(float x, float y) {
  const float root = std::sqrt(x);
  return choose(y == 0.5f, root, choose(y == -0.5f, 1.0f / root, pow(x, y)));
}

namespace detail {

// The sine and the cosine of an angle between -pi / 4 and pi / 4.
inline float sine_near_zero(float r) {
  const float square = r * r;
  return r + r * square * polynomial(square, -0.16666655f, 0.00833218f, -0.00019517f);
}

inline float cosine_near_zero(float r) {
  const float square = r * r;
  return 1.0f - (0.5f * square - square * square * polynomial(square, 0.0416666469f, -0.00138873672f, 2.44384145e-05f));
}

// The sine of an angle that is so many quadrants further on.
inline float sine(const Angle& angle, int32_t further) {
  const int32_t quadrant = angle.quadrant + further;
  const float sine = choose(quadrant & 1, cosine_near_zero(angle.rest), sine_near_zero(angle.rest));
  return float_of(bits_of(sine) ^ static_cast<int32_t>(static_cast<uint32_t>(quadrant & 2) << 30));
}

// y with the other sign where x is negative.
inline float with_sign(float y, float x) {
  return float_of(bits_of(y) ^ (bits_of(x) & std::numeric_limits<int32_t>::min()));
}

}  // namespace detail

inline float sin(float x) {
  return detail::with_sign(detail::sine(reduced(x), 0), x);
}

inline float cos(float x) {
  return detail::sine(reduced(x), 1);
}

inline float tan(float x) {
  const Angle angle = reduced(x);
  return detail::with_sign(detail::sine(angle, 0) / detail::sine(angle, 1), x);
}

inline float atan(float x) {
  const float magnitude = std::fabs(x);
  // Between tan(pi / 8) and its inverse, atan(x) = pi / 4 + atan((x - 1) / (x + 1)); beyond, pi / 2 - atan(1 / x).
  const bool is_far = magnitude > 2.41421356f, is_near = magnitude < 0.414213562f;
  const float shifted = (magnitude - 1.0f) / (magnitude + 1.0f);
  const float r = choose(is_far, -1.0f / magnitude, choose(is_near, magnitude, shifted)), square = r * r;
  const float p = detail::polynomial(square, -0.333333313f, 0.199995503f, -0.142642319f, 0.107462935f, -0.0645936355f);
  const float angle = choose(is_far, 1.57079633f, choose(is_near, 0.0f, 0.785398163f));
  return std::copysign(angle + (r + r * square * p), x);
}

inline float asin(float x) {
  const float magnitude = std::fabs(x);
  // Above 1/2, asin(x) = pi / 2 - 2 asin(sqrt((1 - x) / 2)).
  const bool is_large = magnitude > 0.5f;
  const float square = choose(is_large, 0.5f * (1.0f - magnitude), x * x);
  const float r = choose(is_large, std::sqrt(square), magnitude);
  const float p = detail::polynomial(
      square, 0.166666657f, 0.0750009865f, 0.0445980169f, 0.0311163031f, 0.0170772746f, 0.0338065997f);
  const float angle = r + r * square * p;
  return std::copysign(choose(is_large, 1.57079633f - 2.0f * angle, angle), x);
}

}  // namespace math
