// float16 on the CPU, with conversions that compilers turn into vector instructions of any CPU (PyTorch's have
// branches).

#pragma once

#include <cstdint>
#include <limits>

#include "float_bits.h"

namespace dtypes {

// IEEE 754's binary16: a sign, 5 bits of exponent, 10 bits of fraction. It is stored; arithmetic is float's.
struct Half {
  uint16_t bits;

  Half() = default;
  Half(float value) : bits(narrow(value)) {}
  operator float() const { return widen(bits); }

 private:
  static constexpr int kSign = INT32_MIN, kInfinity = 0x7f800000;  // The bits of float's -0 and infinity,
  static constexpr int kSmallest = (127 - 14) << 23;               // and of 2^-14, float16's smallest normal number.

  // SSE2, which is what any x86-64 has, knows no maximum of integers; that with 0 takes it two instructions.
  static int positive_part(int x) { return x > 0 ? x : 0; }

  // The fields go to where float has them, with an exponent that is one too high: a normal number x gives 2x, and a
  // subnormal one 2^-14 + x, since float takes it to have a leading 1. To be taken off is the half of that in the first
  // case and 2^-14 in the second: whichever is larger. No float on the way is subnormal, and so none is lost in a
  // program that has those flushed to 0.
  static float widen(uint16_t half) {
    const int fields = static_cast<int>(half) << 16;
    const int magnitude = (fields & 0x7fff0000) >> 3;
    const float value = float_of(magnitude + kSmallest) - float_of(positive_part(magnitude - (1 << 23)) + kSmallest);
    const int special = magnitude >= 31 << 23 ? kInfinity : 0;  // Infinity or NaN, which keeps its fraction.
    return float_of(bits_of(value) | special | (fields & kSign));
  }

  // The addition rounds, to nearest and ties to even: what is added is so large that the sum's last place is that of
  // the result (as in F. Giesen's "float->half variants", 2012, for subnormal results, and M. Dukhan's FP16, 2017, for
  // all). For x in [2^e, 2^(e + 1)) it is 2^(e + 13), for subnormal results 2^(-14 + 13). The sum's last bits are then
  // the fraction, with its leading 1 if the result is normal; that 1 is the last of the exponent.
  static uint16_t narrow(float x) {
    constexpr int kTooLarge = (127 + 16) << 23;
    const int magnitude = bits_of(x) & INT32_MAX;
    const int finite = magnitude < kTooLarge ? magnitude : kTooLarge;  // 2^16 becomes infinity, and so does NaN here.
    const int exponent = positive_part((finite & kInfinity) - kSmallest);
    const int rounder = exponent + kSmallest + (13 << 23);
    const int fraction = bits_of(float_of(finite) + float_of(rounder)) - rounder;
    const int quiet = magnitude > kInfinity ? 0x200 : 0;
    const uint32_t result = static_cast<uint32_t>((exponent >> 13) + fraction) | static_cast<uint32_t>(quiet);
    return static_cast<uint16_t>((result << 16 | static_cast<uint32_t>(bits_of(x) & kSign)) >> 16);
  }
};

}  // namespace dtypes

// Not needed so far. Left undefined, because the primary template would return 0 for every limit.
template <>
class std::numeric_limits<dtypes::Half>;
