// Numbers of 8 bits as formulas have them: codes, which PyTorch's casts give. Of the CPU, and of GPUs, which include
// this as well.
//
// The formats of the OCP 8-bit floating point specification (2023): E5M2, or E4M3, PyTorch's float8_e4m3fn. A number is
// rounded to nearest, ties to even. Beyond the largest it is infinity, or the largest in E4M3, which has none: as from
// PyTorch 2.14 on, where older ones have NaN. functions.h, or cuda/functions.cuh, comes before this header, and says
// what FORMULA is.

#pragma once

#include <cstdint>

namespace float8 {

namespace detail {

#ifdef __CUDACC__
FORMULA uint32_t bits_of(float x) {
  return __float_as_uint(x);
}

FORMULA float float_of(uint32_t bits) {
  return __uint_as_float(bits);
}
#else
FORMULA uint32_t bits_of(float x) {
  return static_cast<uint32_t>(::bits_of(x));
}

FORMULA float float_of(uint32_t bits) {
  return ::float_of(static_cast<int32_t>(bits));
}
#endif

// The code of a magnitude, by its bits, in a format with so many bits of a fraction and this bias of the exponent.
template <int kFraction, int kBias>
FORMULA uint32_t rounded(uint32_t bits) {
  constexpr int kDropped = 23 - kFraction;
  constexpr uint32_t kSmallest = (128 - kBias) << 23;  // The bits of the smallest normal number.
  // Added to a subnormal number, it leaves the code in the sum's last bits: their unit is that of such numbers.
  constexpr uint32_t kRounder = kSmallest + (kDropped << 23);
  const uint32_t normal = (bits + (1u << (kDropped - 1)) - 1 + (bits >> kDropped & 1)) >> kDropped;
  const uint32_t subnormal = bits_of(float_of(bits < kSmallest ? bits : kSmallest) + float_of(kRounder)) - kRounder;
  return bits < kSmallest ? subnormal : normal - ((127 - kBias) << kFraction);
}

}  // namespace detail

FORMULA uint8_t to_e4m3(float x) {
  const uint32_t bits = detail::bits_of(x), magnitude = bits & 0x7fffffff;
  constexpr uint32_t kLargest = 0x43e00000, kInfinity = 0x7f800000;  // 448
  const uint32_t finite = detail::rounded<3, 7>(magnitude < kLargest ? magnitude : kLargest);
  const uint32_t code = magnitude > kInfinity ? 0x7f : finite;
  return static_cast<uint8_t>(code | (bits >> 24 & 0x80));
}

FORMULA uint8_t to_e5m2(float x) {
  const uint32_t bits = detail::bits_of(x), magnitude = bits & 0x7fffffff;
  constexpr uint32_t kBeyond = 0x47800000, kInfinity = 0x7f800000;  // 65536, the number that 0x7c would be.
  const uint32_t special = magnitude > kInfinity ? 0x7f : 0x7c;
  const uint32_t code = magnitude < kBeyond ? detail::rounded<2, 15>(magnitude) : special;
  return static_cast<uint8_t>(code | (bits >> 24 & 0x80));
}

FORMULA float of_e4m3(uint8_t code) {
  const uint32_t rest = code & 0x7f;
  const float normal = detail::float_of(rest == 0x7f ? 0x7fc00000 : (rest << 20) + (120u << 23));
  const float magnitude = rest < 8 ? static_cast<float>(rest) * (1.f / 512) : normal;
  return code & 0x80 ? -magnitude : magnitude;
}

FORMULA float of_e5m2(uint8_t code) {
  const uint32_t rest = code & 0x7f;
  const float normal = detail::float_of((rest << 21) + (rest < 0x7c ? 112u << 23 : 224u << 23));
  const float magnitude = rest < 4 ? static_cast<float>(rest) * (1.f / 65536) : normal;
  return code & 0x80 ? -magnitude : magnitude;
}

}  // namespace float8
