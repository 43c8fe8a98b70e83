// Angles of any size, without branches and tables, so that compilers turn loops of sines into vector instructions.

#pragma once

#include <cmath>
#include <cstdint>

#include "float_bits.h"

// An angle as quadrant * pi / 2 + rest, with a rest between -pi / 4 and pi / 4. The quadrant's last two bits count.
struct Angle {
  float rest;
  int32_t quadrant;
};

namespace detail {

// 32 bits of a number: the last 32 - shift of `high`, and the first of `low`.
inline uint32_t joined(uint32_t high, uint32_t low, uint32_t shift) {
  return (high << shift) | ((low >> 1) >> (31 - shift));
}

// A whole number below 2^32 as it stands among the bits of 2^52 plus that number.
inline double above_2_52(uint64_t number) {
  const uint64_t bits = number | 0x4330000000000000;
  double sum;
  std::memcpy(&sum, &bits, sizeof(sum));
  return sum;
}

}  // namespace detail

// That of |x|; the rest of an infinity is NaN. Of 2 / pi, only those bits matter that the exponent of x brings near the
// point: the ones before make whole turns (Payne and Hanek, Radian reduction for trigonometric functions, 1983).
inline Angle reduced(float x) {
  const float magnitude = std::fabs(x);
  const uint32_t bits = static_cast<uint32_t>(bits_of(magnitude)), exponent = bits >> 23;
  const uint32_t mantissa = (bits & 0x7fffff) | 0x800000;
  // Where the 96 bits begin in the words below, of which the first comes before the point. No angle below 1/2 is
  // reduced.
  const uint32_t place = exponent < 126 ? 6 : exponent - 120, shift = place & 31;
  uint32_t words[] = {0, 0xa2f9836e, 0x4e441529, 0xfc2757d1, 0xf534ddc0, 0xdb629599, 0x3c439041, 0xfe5163ab};
  for (int i = 0; i < 4; ++i) words[i] = place & 128 ? words[i + 4] : words[i];
  for (int i = 0; i < 5; ++i) words[i] = place & 64 ? words[i + 2] : words[i];
  for (int i = 0; i < 4; ++i) words[i] = place & 32 ? words[i + 1] : words[i];
  const uint64_t first = detail::joined(words[0], words[1], shift), second = detail::joined(words[1], words[2], shift);
  const uint64_t third = detail::joined(words[2], words[3], shift);
  // In units of 2^-62 quadrants, modulo four quadrants; then half a quadrant more, so that quadrants are rounded.
  const uint64_t product = ((mantissa * first) << 32) + mantissa * second + ((mantissa * third) >> 32);
  const uint64_t turned = product + (uint64_t{1} << 61), rest = turned & ((uint64_t{1} << 62) - 1);
  const double upper = detail::above_2_52(rest >> 32) - (4503599627370496.0 + 536870912.0);
  const double lower = detail::above_2_52(rest & 0xffffffff) - 4503599627370496.0;
  const float angle = static_cast<float>(upper * 1.4629180792671596e-09 + lower * 3.4061215800865545e-19);
  const bool is_small = magnitude < 0.785398163f;
  const int32_t quadrant = static_cast<int32_t>(turned >> 62);
  return {choose(is_small, magnitude, angle) + (x - x), is_small ? 0 : quadrant};
}
