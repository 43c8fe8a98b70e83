// 8-bit floating-point numbers on the CPU: scales and codes, in loops that compilers turn into vector instructions.

#pragma once

#include <cstdint>

#include "float_bits.h"

namespace fp8 {

constexpr int kFloatInfinity = 0x7f800000;  // The bits of float's.

// The formats of the OCP 8-bit floating point specification (2023): E5M2, or E4M3, PyTorch's float8_e4m3fn. That has no
// infinity: NaN stands in its place.
struct Format {
  int fraction, bias;  // The bits of the fraction, and the bias of the exponent.
  float largest;
  int infinity, nan = 0x7f;

  explicit Format(bool e5m2)
      : fraction(e5m2 ? 2 : 3), bias(e5m2 ? 15 : 7), largest(e5m2 ? 57344.f : 448.f), infinity(e5m2 ? 0x7c : 0x7f) {}
};

// The larger of `largest` and a number's magnitude, as bits, which are in the order of the numbers. Infinity and NaN do
// not count.
inline int larger_magnitude(int largest, float x) {
  const int bits = bits_of(x) & INT32_MAX;
  const int finite = bits < kFloatInfinity ? bits : 0;
  return finite > largest ? finite : largest;
}

// The code of `x` times `inverse`: to nearest, ties to even; beyond the largest number that number; infinity and NaN
// stay so.
inline uint8_t encode(float x, float inverse, const Format& format) {
  const int dropped = 23 - format.fraction;
  const int smallest = (128 - format.bias) << 23;  // The bits of the smallest normal number.
  // Added to a smaller number, it leaves the code in the sum's last bits: their unit is that of subnormal numbers.
  const int rounder = smallest + (dropped << 23);
  const int magnitude = bits_of(x) & INT32_MAX;
  const int scaled = bits_of(x * inverse), scaled_magnitude = scaled & INT32_MAX;
  const int largest = bits_of(format.largest);
  const int bits = scaled_magnitude < largest ? scaled_magnitude : largest;
  const int subnormal = bits_of(float_of(bits < smallest ? bits : smallest) + float_of(rounder)) - rounder;
  const int rounded = (bits + (1 << (dropped - 1)) - 1 + (bits >> dropped & 1)) >> dropped;
  const int normal = rounded - ((127 - format.bias) << format.fraction);
  int code = bits < smallest ? subnormal : normal;
  code = magnitude == kFloatInfinity ? format.infinity : code;
  code = magnitude > kFloatInfinity || scaled_magnitude > kFloatInfinity ? format.nan : code;
  return static_cast<uint8_t>(code | (scaled >> 24 & 0x80));
}

// A scale, by which codes are multiplied, and its inverse, by which numbers are before they are encoded.
struct Scale {
  float value, inverse;

  explicit Scale(float value) : value(value), inverse(1 / value) {}
};

// The scale of numbers of which the largest magnitude has these bits: 1 if all are 0. It is no smaller than the
// smallest normal number, so its inverse is finite. A power of two is the next one that is no smaller.
inline Scale scale_for(int largest, bool power_of_two, const Format& format) {
  if (largest == 0) return Scale(1);
  int bits = bits_of(float_of(largest) / format.largest);
  bits = bits > 1 << 23 ? bits : 1 << 23;
  if (power_of_two) bits = (bits + 0x7fffff) & kFloatInfinity;
  return Scale(float_of(bits));
}

// The largest magnitude of some numbers, as bits, or `largest`.
inline int largest_of(const float* x, int64_t count, int largest = 0) {
  for (int64_t i = 0; i < count; ++i) largest = larger_magnitude(largest, x[i]);
  return largest;
}

inline void encode(const float* x, int64_t count, float inverse, const Format& format, uint8_t* codes) {
  for (int64_t i = 0; i < count; ++i) codes[i] = encode(x[i], inverse, format);
}

// Codes of numbers that share a scale, and that scale.
inline float quantise(const float* x, int64_t count, bool power_of_two, const Format& format, uint8_t* codes) {
  const Scale scale = scale_for(largest_of(x, count), power_of_two, format);
  encode(x, count, scale.inverse, format, codes);
  return scale.value;
}

// Codes of a row of which `length` elements share a scale; the scale of the i-th group goes to scales[i * step].
inline void quantise_groups(
    const float* x,
    int64_t count,
    int64_t length,
    bool power_of_two,
    const Format& format,
    uint8_t* codes,
    float* scales,
    int64_t step) {
  for (int64_t first = 0; first < count; first += length, scales += step) {
    const int64_t rest = count - first;
    *scales = quantise(x + first, rest < length ? rest : length, power_of_two, format, codes + first);
  }
}

}  // namespace fp8
