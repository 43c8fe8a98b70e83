// Converts two float32 numbers to 16-bit ones in one register, the first in the lower half.

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
