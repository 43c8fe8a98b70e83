// Maxima and minima of two numbers, NaN where one of them is NaN: one instruction for float32 from sm_80 on.

#pragma once

#include <type_traits>

template <typename T>
__device__ __forceinline__ T maximum_or_nan(T x, T y) {
#if __CUDA_ARCH__ >= 800
  if constexpr (std::is_same_v<T, float>) {
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(x) : "f"(x), "f"(y));
    return x;
  }
#endif
  return x > y || x != x ? x : y;
}

template <typename T>
__device__ __forceinline__ T minimum_or_nan(T x, T y) {
#if __CUDA_ARCH__ >= 800
  if constexpr (std::is_same_v<T, float>) {
    asm("min.NaN.f32 %0, %1, %2;" : "=f"(x) : "f"(x), "f"(y));
    return x;
  }
#endif
  return x < y || x != x ? x : y;
}
