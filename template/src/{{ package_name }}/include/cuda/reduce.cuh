// Sums and maxima over neighbouring threads of a warp, in a fixed order, so the same input gives the same bits.

#pragma once

#include "vector.cuh"

constexpr int kWarp = 32;

// The sum over each group of kLanes neighbouring threads, in every one of them. The whole warp takes part.
template <int kLanes = kWarp, typename T>
__device__ T warp_sum(T value) {
#pragma unroll
  for (int distance = kLanes / 2; distance > 0; distance /= 2) {
    value += __shfl_xor_sync(0xffffffff, value, distance);
  }
  return value;
}

// The largest, likewise; NaN where one of them is NaN.
template <int kLanes = kWarp, typename T>
__device__ T warp_max(T value) {
#pragma unroll
  for (int distance = kLanes / 2; distance > 0; distance /= 2) {
    const T other = __shfl_xor_sync(0xffffffff, value, distance);
    value = value > other || value != value ? value : other;
  }
  return value;
}

// The sums of each element of a vector.
template <int kLanes = kWarp, typename T, int N>
__device__ Vector<T, N> warp_sum(Vector<T, N> values) {
#pragma unroll
  for (int i = 0; i < N; ++i) {
    values[i] = warp_sum<kLanes>(values[i]);
  }
  return values;
}
