// Functions of numbers, for formulas that the CPU computes as well: cpu/functions.h has the same names.
//
// A number is float32 or float64. NaN stays NaN, as in PyTorch. Where the elements have 16 bits, exponentials are the
// GPU's approximations, whose errors are far below a rounding of the element.

#pragma once

#include <cmath>

#include "common_functions.h"
#include "float_types.cuh"
#include "maximum.cuh"

namespace math {

constexpr bool kIsApproximate = sizeof(INSTANCE_T) == 2;

namespace detail {

// 2^x and 1 / x as one instruction each. Subnormal numbers count as 0.
FORMULA float exp2_approximate(float x) {
  float result;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
}

FORMULA float inverse_approximate(float x) {
  float result;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
}

constexpr float kLog2E = 1.4426950408889634f;

}  // namespace detail

template <typename Number>
FORMULA Number exp(Number x) {
  if constexpr (kIsApproximate) {
    return detail::exp2_approximate(x * detail::kLog2E);
  } else {
    return std::exp(x);
  }
}

template <typename Number>
FORMULA Number sqrt(Number x) {
  if constexpr (kIsApproximate) {
    Number result;
    asm("sqrt.approx.f32 %0, %1;" : "=f"(result) : "f"(x));
    return result;
  } else {
    return std::sqrt(x);
  }
}

template <typename Number>
FORMULA Number rsqrt(Number x) {
  if constexpr (kIsApproximate) {
    return ::rsqrtf(x);
  } else {
    return 1 / std::sqrt(x);
  }
}

template <typename Number>
FORMULA Number sigmoid(Number x) {
  if constexpr (kIsApproximate) {
    return detail::inverse_approximate(1 + detail::exp2_approximate(x * -detail::kLog2E));
  } else {
    return 1 / (1 + std::exp(-x));
  }
}

template <typename Number>
FORMULA Number tanh(Number x) {
  if constexpr (kIsApproximate) {
    // Near 0 the difference would cancel; there two terms of the series are exact enough.
    const Number y = detail::exp2_approximate(x * (2 * detail::kLog2E));
    const Number far = 1 - 2 * detail::inverse_approximate(1 + y);
    return std::fabs(x) < Number(0.0625) ? x * (1 - x * x * (Number(1) / 3)) : far;
  } else {
    return std::tanh(x);
  }
}

// x / y. Where the elements have 16 bits, the last bits of float32 do not matter.
template <typename Number>
FORMULA Number quotient(Number x, Number y) {
  if constexpr (kIsApproximate) {
    Number result;
    asm("div.full.f32 %0, %1, %2;" : "=f"(result) : "f"(x), "f"(y));
    return result;
  } else {
    return x / y;
  }
}

// Approximations near the point where the plain one would cancel: so many terms of the series that what is left out is
// below a 16-bit element's rounding.
template <typename Number>
FORMULA Number log1p(Number x) {
  if constexpr (kIsApproximate) {
    const Number near = x * (1 - x * (Number(0.5) - x * (Number(1) / 3 - x * Number(0.25))));
    return std::fabs(x) < Number(0.0625) ? near : __logf(1 + x);
  } else {
    return std::log1p(x);
  }
}

template <typename Number>
FORMULA Number log(Number x) {
  if constexpr (kIsApproximate) {
    return std::fabs(x - 1) < Number(0.0625) ? math::log1p(x - 1) : __logf(x);
  } else {
    return std::log(x);
  }
}

template <typename Number>
FORMULA Number expm1(Number x) {
  if constexpr (kIsApproximate) {
    const Number near = x * (1 + x * (Number(0.5) + x * (Number(1) / 6 + x * (Number(1) / 24))));
    return std::fabs(x) < Number(0.125) ? near : __expf(x) - 1;
  } else {
    return std::expm1(x);
  }
}

// Exponents that are often asked for have ways of their own: all threads of a kernel usually have the same.
template <typename Number>
FORMULA Number pow(Number x, Number y) {
  if (y == 2) return x * x;
  if (y == 1) return x;
  if (y == 3) return x * x * x;
  if (y == Number(0.5) && x > 0) return std::sqrt(x);
  if constexpr (kIsApproximate) {
    if (x > 0 && std::fabs(y) < 64) return exp2f(y * __log2f(x));
  }
  return std::pow(x, y);
}

// With an exponent that all elements share. PyTorch has roots then, which differ for -inf and for -0.
template <typename Number>
FORMULA Number scalar_power(Number x, Number y) {
  if (y == Number(0.5)) return std::sqrt(x);
  if (y == Number(-0.5)) return math::rsqrt(x);
  return math::pow(x, y);
}

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
template <typename Number> FORMULA Number exp2(Number x) { return std::exp2(x); }
template <typename Number> FORMULA Number floor(Number x) { return std::floor(x); }
template <typename Number> FORMULA Number hypot(Number x, Number y) { return std::hypot(x, y); }
template <typename Number> FORMULA bool is_infinite(Number x) { return std::fabs(x) == kInfinity<Number>; }
template <typename Number> FORMULA bool is_nan(Number x) { return x != x; }
template <typename Number> FORMULA Number log10(Number x) { return std::log10(x); }
template <typename Number> FORMULA Number log2(Number x) { return std::log2(x); }
template <typename Number> FORMULA Number maximum(Number x, Number y) { return maximum_or_nan(x, y); }
template <typename Number> FORMULA Number minimum(Number x, Number y) { return minimum_or_nan(x, y); }
template <typename Number> FORMULA Number relu(Number x) { return x < 0 ? Number(0) : x; }
template <typename Number> FORMULA Number remainder_of_truncated(Number x, Number y) { return std::fmod(x, y); }
template <typename Number> FORMULA Number round(Number x) { return std::nearbyint(x); }
template <typename Number> FORMULA Number sign(Number x) { return Number(x > 0) - Number(x < 0); }
template <typename Number> FORMULA Number sin(Number x) { return std::sin(x); }
template <typename Number> FORMULA Number sinh(Number x) { return std::sinh(x); }
template <typename Number> FORMULA Number tan(Number x) { return std::tan(x); }
template <typename Number> FORMULA Number trunc(Number x) { return std::trunc(x); }
// clang-format on

// What Python's % gives: it has the sign of y.
template <typename Number>
FORMULA Number remainder(Number x, Number y) {
  const Number rest = std::fmod(x, y);
  return rest != 0 && (rest < 0) != (y < 0) ? rest + y : rest;
}

}  // namespace math
