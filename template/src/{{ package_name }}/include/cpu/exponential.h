// The exponential on the CPU, in a form that compilers turn into vector instructions (a call of std::exp in a loop is
// one call for each element).

#pragma once

#include <cmath>
#include <cstdint>

#include "float_bits.h"

// As std::exp, and no more than 1.1 units in the last place away; NaN, infinities and subnormal results included.
//
// exp(x) = 2^k exp(r) with x = k ln 2 + r and |r| <= ln 2 / 2 (Cody & Waite, Software Manual for the Elementary
// Functions, 1980), and exp(r) = 1 + r + r^2 p(r), with p of degree 5 that is closest to it in the largest error.
inline float exponential(float x) {
  // Beyond these the result is infinite, or 0. NaN compares false, and stays.
  x = choose(x > 89.0f, 89.0f, x);
  x = choose(x < -104.0f, -104.0f, x);
  constexpr float kRounder = 12582912.0f;  // 1.5 * 2^23: numbers near it have no bits for fractions.
  const float rounded = x * 1.44269504f + kRounder;
  const float k = rounded - kRounder;
  // ln 2 in two parts, of which k times the first is exact.
  const float r = (x - k * 0.693359375f) + k * 2.12194440e-4f;
  float p = 1.98909911e-4f;
  p = p * r + 1.39336498e-3f;
  p = p * r + 8.33331048e-3f;
  p = p * r + 4.16664667e-2f;
  p = p * r + 1.66666672e-1f;
  p = p * r + 0.5f;
  // The power in two factors, because it may be a subnormal number or beyond the largest.
  const int32_t whole = bits_of(rounded) - bits_of(kRounder), half = whole >> 1;
  return ((p * r) * r + r + 1.0f) * power_of_2(half) * power_of_2(whole - half);
}

inline double exponential(double x) {
  return std::exp(x);
}
