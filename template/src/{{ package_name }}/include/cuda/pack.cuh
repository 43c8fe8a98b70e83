// Converts two float32 numbers to 16-bit ones in one register, the first in the lower half, and back.

#pragma once

#include <cstdint>
#include <cstring>

#include "float_types.cuh"

template <typename T>
__device__ uint32_t pack(float first, float second);

template <>
__device__ inline uint32_t pack<float16>(float first, float second) {
  const __half2 pair = __floats2half2_rn(first, second);
  uint32_t bits;
  memcpy(&bits, &pair, sizeof(bits));
  return bits;
}

template <>
__device__ inline uint32_t pack<bfloat16>(float first, float second) {
  const __nv_bfloat162 pair = __floats2bfloat162_rn(first, second);
  uint32_t bits;
  memcpy(&bits, &pair, sizeof(bits));
  return bits;
}

template <typename T>
__device__ float2 unpack(uint32_t bits);

template <>
__device__ inline float2 unpack<float16>(uint32_t bits) {
  __half2 pair;
  memcpy(&pair, &bits, sizeof(bits));
  return __half22float2(pair);
}

template <>
__device__ inline float2 unpack<bfloat16>(uint32_t bits) {
  return {__uint_as_float(bits << 16), __uint_as_float(bits & 0xffff0000)};
}
