// Functions of statistics that C++ has not, for formulas: of the CPU, and of GPUs, which include this as well.
//
// functions.h, or cuda/functions.cuh, comes before it, and says what FORMULA is.

#pragma once

#include <cmath>

namespace math {

namespace detail {

constexpr double kPi = 3.141592653589793;

// From here on asymptotic series are as exact as float64: numbers below are moved up, one by one.
constexpr int kAsymptotic = 10;

// pi times the distance from the nearest integer, which is exact: the poles lie at integers.
template <typename Number>
FORMULA Number angle_from_integer(Number x) {
  return Number(kPi) * (x - std::nearbyint(x));
}

}  // namespace detail

template <typename Number>
FORMULA Number lgamma(Number x) {
  return std::lgamma(x);
}

// The derivative of lgamma (Abramowitz and Stegun, 6.3.7, 6.3.5 and 6.3.18).
template <typename Number>
FORMULA Number digamma(Number x) {
  if (x == 0) return std::copysign(kInfinity<Number>, -x);
  Number sum = 0;
  if (x < 0) {
    if (x == std::floor(x)) return kNaN<Number>;
    sum = -Number(detail::kPi) / std::tan(detail::angle_from_integer(x));
    x = 1 - x;
  }
  for (; x < detail::kAsymptotic; x += 1) sum -= 1 / x;
  const Number s = 1 / (x * x);
  const Number last = Number(1) / 132 - s * Number(691.0 / 32760);
  const Number tail = Number(1) / 120 - s * (Number(1) / 252 - s * (Number(1) / 240 - s * last));
  return sum + std::log(x) - Number(0.5) / x - s * (Number(1) / 12 - s * tail);
}

// The derivative of digamma (6.4.7, 6.4.6 and 6.4.12 there), of as many steps and terms as PyTorch's: 1e-9 of it.
template <typename Number>
FORMULA Number trigamma(Number x) {
  Number sum = 0, sign = 1;
  if (x < Number(0.5)) {
    const Number root = Number(detail::kPi) / std::sin(detail::angle_from_integer(x));
    sum = root * root;
    sign = -1;
    x = 1 - x;
  }
  for (int i = 0; i < 6; ++i, x += 1) sum += sign / (x * x);
  const Number s = 1 / (x * x);
  const Number tail = s * (Number(1) / 6 - s * (Number(1) / 30 - s * (Number(1) / 42)));
  return sum + sign * (1 + Number(0.5) / x + tail) / x;
}

// The inverse of erf: an estimate with three digits (Winitzki, 2008), and two steps of Halley's method, of which each
// makes three times as many. Beyond 1/2 they are by erfc, since 1 - y is exact there and erf(x) all but 1.
template <typename Number>
FORMULA Number erfinv(Number y) {
  const Number size = std::fabs(y);
  if (!(size < 1)) return size == 1 ? std::copysign(kInfinity<Number>, y) : kNaN<Number>;
  constexpr Number kFactor = Number(0.147);
  const Number logarithm = std::log1p(-size * size);
  const Number half = 2 / (Number(detail::kPi) * kFactor) + logarithm / 2, ratio = -logarithm / kFactor;
  Number x = std::sqrt(ratio / (std::sqrt(half * half + ratio) + half));
#ifdef __CUDACC__
#pragma unroll 1
#endif
  for (int i = 0; i < 2; ++i) {
    const Number error = size < Number(0.5) ? std::erf(x) - size : (1 - size) - std::erfc(x);
    const Number step = error * Number(0.8862269254527580) * std::exp(x * x);
    x -= step / (1 + x * step);
  }
  return std::copysign(x, y);
}

}  // namespace math
