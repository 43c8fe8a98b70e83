// Conversion to 8-bit floating-point numbers with a scale, and back: by one instruction a pair from compute
// capability 8.9 on, in integer arithmetic before.
//
// Which format a kernel writes is known at run time only: with a version for each, kernels would take twice as long to
// compile, for half an instruction an element.

#pragma once

#include <cstdint>

#include "float_types.cuh"
#include "vector.cuh"

namespace fp8 {

constexpr uint32_t kFloatInfinity = 0x7f800000;  // The bits of float32's.

// The formats of the OCP 8-bit floating point specification (2023): E5M2, or E4M3, PyTorch's float8_e4m3fn. That has no
// infinity: NaN stands in its place.
struct Format {
  bool e5m2;

  __device__ int fraction() const { return e5m2 ? 2 : 3; }  // Its bits.
  __device__ int bias() const { return e5m2 ? 15 : 7; }     // Of the exponent.
  __device__ float largest() const { return e5m2 ? 57344.f : 448.f; }
  __device__ uint32_t infinity() const { return e5m2 ? 0x7c : 0x7f; }
  __device__ uint32_t nan() const { return 0x7f; }

  // The nearest number that the format holds.
  __device__ float saturate(float x) const { return fminf(fmaxf(x, -largest()), largest()); }
};

// The bits of |x|. They are in the order of the numbers, with infinity and NaN at the end.
__device__ __forceinline__ uint32_t magnitude(float x) {
  return __float_as_uint(x) & 0x7fffffff;
}

// The code of infinity or NaN.
__device__ __forceinline__ uint32_t code_of_special(float x, Format format) {
  const uint32_t sign = (__float_as_uint(x) >> 24) & 0x80;
  return (magnitude(x) == kFloatInfinity ? format.infinity() : format.nan()) | sign;
}

// The code of x times `inverse`: to nearest, ties to even; beyond the largest number that number; infinity and NaN stay
// so.
__device__ __noinline__ inline uint32_t encode(float x, float inverse, Format format) {
  const bool is_finite = magnitude(x) < kFloatInfinity;
  const float scaled = is_finite ? format.saturate(x * inverse) : x;
  const int dropped = 23 - format.fraction();
  const uint32_t smallest = (128 - format.bias()) << 23;  // The bits of the smallest normal number.
  const uint32_t bits = magnitude(scaled), sign = (__float_as_uint(scaled) >> 24) & 0x80;
  if (bits >= kFloatInfinity) return code_of_special(scaled, format);
  if (bits < smallest) {
    // Added to a subnormal number, this leaves the code in the sum's last bits: their unit is that of such numbers.
    const uint32_t rounder = smallest + (dropped << 23);
    return (__float_as_uint(__uint_as_float(bits) + __uint_as_float(rounder)) - rounder) | sign;
  }
  const uint32_t rounded = (bits + (1u << (dropped - 1)) - 1 + ((bits >> dropped) & 1)) >> dropped;
  return (rounded - ((127 - format.bias()) << format.fraction())) | sign;
}

// The codes of two finite numbers times `inverse`, the first in the lower byte.
template <bool kE5m2>
__device__ __forceinline__ uint32_t encode_pair(float first, float second, float inverse) {
#if __CUDA_ARCH__ >= 890
  uint16_t pair;
  const float a = first * inverse, b = second * inverse;
  if constexpr (kE5m2) {
    asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(b), "f"(a));
  } else {
    asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(b), "f"(a));
  }
  return pair;
#else
  constexpr Format kFormat{kE5m2};
  return encode(first, inverse, kFormat) | encode(second, inverse, kFormat) << 8;
#endif
}

// Four codes are a register: as bytes the compiler would take them apart where two branches meet, and put them together
// again.
template <int N>
using CodeWords = Vector<uint32_t, N / 4>;

// Those of finite numbers times `inverse`.
template <bool kE5m2, int N>
__device__ __forceinline__ CodeWords<N> encode_finite(const Vector<float, N>& values, float inverse) {
  static_assert(N % 4 == 0, "codes are made four at a time");
  CodeWords<N> words;
#pragma unroll
  for (int i = 0; i < N; i += 4) {
    const uint32_t low = encode_pair<kE5m2>(values[i], values[i + 1], inverse);
    const uint32_t high = encode_pair<kE5m2>(values[i + 2], values[i + 3], inverse);
    words[i / 4] = low | high << 16;
  }
  return words;
}

// The same in the format that is known at run time.
template <int N>
__device__ __forceinline__ CodeWords<N> encode_finite(const Vector<float, N>& values, float inverse, Format format) {
  return format.e5m2 ? encode_finite<true>(values, inverse) : encode_finite<false>(values, inverse);
}

// Writes the codes of N finite numbers times `inverse`, the i-th N.
template <bool kE5m2, int N>
__device__ __forceinline__ void store_encoded_finite(
    uint8_t* codes, int64_t i, const Vector<float, N>& values, float inverse) {
  if constexpr (N % 4 == 0) {
    store(reinterpret_cast<uint32_t*>(codes), i, encode_finite<kE5m2>(values, inverse));
  } else {
    constexpr Format kFormat{kE5m2};
#pragma unroll
    for (int k = 0; k < N; ++k) codes[i * N + k] = encode(values[k], inverse, kFormat);
  }
}

// The same of any numbers: each takes a call.
template <int N>
__device__ __forceinline__ void store_encoded(
    uint8_t* codes, int64_t i, const Vector<float, N>& values, float inverse, Format format) {
  if constexpr (N % 4 == 0) {
    CodeWords<N> words = {};
#pragma unroll
    for (int k = 0; k < N; ++k) words[k / 4] |= encode(values[k], inverse, format) << 8 * (k % 4);
    store(reinterpret_cast<uint32_t*>(codes), i, words);
  } else {
#pragma unroll
    for (int k = 0; k < N; ++k) codes[i * N + k] = encode(values[k], inverse, format);
  }
}

// The codes of N numbers times `inverse` without calls, for kernels that have registers for it.
template <int N>
__device__ __forceinline__ CodeWords<N> encode_all_inline(
    const Vector<float, N>& values, float inverse, bool finite, Format format) {
  CodeWords<N> words = encode_finite(values, inverse, format);
  if (finite) return words;
#pragma unroll
  for (int i = 0; i < N; ++i) {
    if (magnitude(values[i]) < kFloatInfinity) continue;
    const int place = 8 * (i % 4);
    words[i / 4] = (words[i / 4] & ~(0xffu << place)) | code_of_special(values[i], format) << place;
  }
  return words;
}

// The number of a code, exactly: through float16, whose numbers hold those of both formats.
__device__ inline float decode(uint32_t code, Format format) {
  const uint32_t sign = (code & 0x80) << 8, rest = code & 0x7f;
  if (!format.e5m2 && rest == format.nan()) return __uint_as_float(kFloatInfinity | 1u << 22);
  // E5M2 is the upper byte of float16. E4M3's exponent has a bias that is less by 8.
  const __half_raw bits{static_cast<uint16_t>(sign | rest << (format.e5m2 ? 8 : 7))};
  return __half2float(__half(bits)) * (format.e5m2 ? 1.f : 256.f);
}

template <int N>
__device__ Vector<float, N> decode_all(const Vector<uint8_t, N>& codes, Format format) {
  Vector<float, N> values;
#pragma unroll
  for (int i = 0; i < N; ++i) {
    values[i] = decode(codes[i], format);
  }
  return values;
}

// A scale, by which codes are multiplied, and its inverse, by which numbers are before they are encoded.
struct Scale {
  float value, inverse;

  __device__ explicit Scale(float value) : value(value), inverse(1.f / value) {}
  __device__ Scale(float value, float inverse) : value(value), inverse(inverse) {}
};

// The scale of numbers of which the largest magnitude has these bits: 1 if all are 0. It is no smaller than the
// smallest normal number, so its inverse is finite. A power of two is the next one that is no smaller.
__device__ inline Scale scale_for(uint32_t largest, bool power_of_two, Format format) {
  if (largest == 0) return Scale(1.f, 1.f);
  uint32_t bits = __float_as_uint(__uint_as_float(largest) / format.largest());
  bits = max(bits, 1u << 23);
  if (power_of_two) bits = (bits + 0x7fffff) & kFloatInfinity;
  return Scale(__uint_as_float(bits));
}

}  // namespace fp8
