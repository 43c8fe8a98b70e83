// Conversion of vectors of elements to the type to compute in, and back.

#pragma once

#include <type_traits>

#include "accumulate.cuh"
#include "vector.cuh"

// bfloat16 is the upper half of float32, so each element of a pair in a register takes one instruction. Extracting the
// 16-bit element first would take two.
template <typename T, int N>
__device__ __forceinline__ Vector<accumulate_t<T>, N> widen(Vector<T, N> vector) {
  Vector<accumulate_t<T>, N> result;
  if constexpr (std::is_same_v<T, bfloat16> && N % 2 == 0) {
#pragma unroll
    for (int k = 0; k < N; k += 2) {
      const uint32_t pair = reinterpret_cast<const uint32_t*>(&vector)[k / 2];
      result[k] = __uint_as_float(pair << 16);
      result[k + 1] = __uint_as_float(pair & 0xffff0000);
    }
  } else {
#pragma unroll
    for (int k = 0; k < N; ++k) {
      result[k] = widen(vector[k]);
    }
  }
  return result;
}

// Element k of them, likewise.
template <typename T, int N>
__device__ __forceinline__ accumulate_t<T> widen_at(const Vector<T, N>& vector, int k) {
  if constexpr (std::is_same_v<T, bfloat16> && N % 2 == 0) {
    const uint32_t pair = reinterpret_cast<const uint32_t*>(&vector)[k / 2];
    return __uint_as_float(k % 2 ? pair & 0xffff0000 : pair << 16);
  } else {
    return widen(vector[k]);
  }
}

// Each element rounded once.
template <typename T, int N>
__device__ Vector<T, N> narrow(const Vector<accumulate_t<T>, N>& vector) {
  Vector<T, N> result;
#pragma unroll
  for (int k = 0; k < N; ++k) {
    result[k] = static_cast<T>(vector[k]);
  }
  return result;
}
