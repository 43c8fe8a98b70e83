// The type to compute in for elements of a given type.

#pragma once

#include "float_types.cuh"

// float for 16-bit and 32-bit elements, double for 64-bit ones.
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

// The element as the type to compute in.
template <typename T>
__device__ accumulate_t<T> widen(T value) {
  return static_cast<accumulate_t<T>>(value);
}
