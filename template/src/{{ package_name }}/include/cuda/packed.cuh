// 8-bit whole numbers, four in a register: conversion from and to float32, and their dot product.

#pragma once

#include <cstdint>

#include "vector.cuh"

// The nearest whole number, ties to even, within the range of T: int8_t or uint8_t. NaN becomes 0.
template <typename T>
__device__ __forceinline__ T to_byte(float value) {
  constexpr int kLeast = T(-1) < T(0) ? -128 : 0, kMost = kLeast + 255;
  if (value != value) return 0;
  return static_cast<T>(__float2int_rn(fminf(fmaxf(value, kLeast), kMost)));
}

// Each number times `factor`, as above.
template <typename T, int N>
__device__ Vector<T, N> to_bytes(const Vector<float, N>& values, float factor) {
  Vector<T, N> bytes;
#pragma unroll
  for (int i = 0; i < N; ++i) {
    bytes[i] = to_byte<T>(values[i] * factor);
  }
  return bytes;
}

// Four neighbouring bytes as a register, the first in the lowest byte. The vector is aligned to its size.
template <typename T, int N>
__device__ __forceinline__ int32_t word(const Vector<T, N>& bytes, int i) {
  static_assert(sizeof(T) == 1 && N % 4 == 0, "words are four bytes");
  return reinterpret_cast<const int32_t*>(&bytes)[i];
}

// `sum` plus the dot product of two vectors of bytes, in 32-bit integers.
template <int N>
__device__ __forceinline__ int32_t dot(const Vector<int8_t, N>& a, const Vector<int8_t, N>& b, int32_t sum) {
#pragma unroll
  for (int i = 0; i < N / 4; ++i) {
    sum = __dp4a(word(a, i), word(b, i), sum);
  }
  return sum;
}

template <int N>
__device__ __forceinline__ uint32_t dot(const Vector<uint8_t, N>& a, const Vector<uint8_t, N>& b, uint32_t sum) {
#pragma unroll
  for (int i = 0; i < N / 4; ++i) {
    sum = __dp4a(static_cast<uint32_t>(word(a, i)), static_cast<uint32_t>(word(b, i)), sum);
  }
  return sum;
}
