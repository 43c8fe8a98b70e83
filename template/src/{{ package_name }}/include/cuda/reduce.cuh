// Sums and maxima over neighbouring threads of a warp, in a fixed order, so the same input gives the same bits.

#pragma once

#include <cstdint>
#include <type_traits>

#include "maximum.cuh"
#include "vector.cuh"

constexpr int kWarp = 32;

// The sum over each group of kLanes neighbouring threads, in every one of them. The whole warp takes part. `lanes`: the
// same over fewer, or as many as the next power of 2.
template <int kLanes = kWarp, typename T>
__device__ T warp_sum(T value, int lanes = kLanes) {
#pragma unroll
  for (int distance = kLanes / 2; distance > 0; distance /= 2) {
    if (distance < lanes) value += __shfl_xor_sync(0xffffffff, value, distance);
  }
  return value;
}

// The product, likewise.
template <int kLanes = kWarp, typename T>
__device__ T warp_product(T value) {
#pragma unroll
  for (int distance = kLanes / 2; distance > 0; distance /= 2) {
    value *= __shfl_xor_sync(0xffffffff, value, distance);
  }
  return value;
}

// The largest, likewise; NaN where one of them is NaN. Of a whole warp's unsigned numbers by one instruction.
template <int kLanes = kWarp, typename T>
__device__ T warp_max(T value, int lanes = kLanes) {
#if __CUDA_ARCH__ >= 800
  if constexpr (std::is_same_v<T, uint32_t> && kLanes == kWarp) {
    if (lanes == kWarp) return __reduce_max_sync(0xffffffff, value);
  }
#endif
#pragma unroll
  for (int distance = kLanes / 2; distance > 0; distance /= 2) {
    if (distance < lanes) value = maximum_or_nan(value, __shfl_xor_sync(0xffffffff, value, distance));
  }
  return value;
}

// A value and where it stands.
template <typename T>
struct Ranked {
  T value;
  int64_t place;

  // Whether it goes before another: the larger value does, NaN before any number, and of equal ones the first.
  __device__ bool is_before(const Ranked& other) const {
    const bool is_nan = value != value, other_is_nan = other.value != other.value;
    if (is_nan || other_is_nan) return is_nan && (!other_is_nan || place < other.place);
    return value > other.value || (value == other.value && place < other.place);
  }
};

// The one that goes before all others, over each group of kLanes neighbouring threads, in every one of them.
template <int kLanes = kWarp, typename T>
__device__ Ranked<T> warp_argmax(Ranked<T> best) {
#pragma unroll
  for (int distance = kLanes / 2; distance > 0; distance /= 2) {
    const Ranked<T> other{
        __shfl_xor_sync(0xffffffff, best.value, distance), __shfl_xor_sync(0xffffffff, best.place, distance)};
    if (other.is_before(best)) best = other;
  }
  return best;
}

// The sums of each element of a vector.
template <int kLanes = kWarp, typename T, int N>
__device__ Vector<T, N> warp_sum(Vector<T, N> values, int lanes = kLanes) {
#pragma unroll
  for (int i = 0; i < N; ++i) {
    values[i] = warp_sum<kLanes>(values[i], lanes);
  }
  return values;
}

// A lane's place among `lanes` or as many as the next power of 2, which all groups of the warp repeat.
__device__ inline int lane_of(int lanes) {
  const int below = (1 << (32 - __clz(lanes - 1))) - 1;
  return threadIdx.x & below;
}
