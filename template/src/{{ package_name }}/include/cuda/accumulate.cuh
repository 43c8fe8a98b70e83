// The type that elements are accumulated in.

#pragma once

#include "float_types.cuh"

// float32 for 16-bit and 32-bit elements, float64 for float64 ones.
template <typename T>
struct Accumulate {
  using type = float;
};

template <>
struct Accumulate<float64> {
  using type = float64;
};

template <typename T>
using accumulate_t = typename Accumulate<T>::type;

// The element in that type.
template <typename T>
__device__ __forceinline__ accumulate_t<T> widen(T value) {
  return static_cast<accumulate_t<T>>(value);
}
