// Loads and stores with the L2 cache's eviction priority evict_last; see hinted.cuh.

#pragma once

#include "hinted.cuh"

// The i-th group of N elements, or `vector` if not `valid`. The pointer must be aligned to the group's size.
template <int N, typename T>
__device__ Vector<T, N> load_evict_last(const T* pointer, int64_t i, bool valid = true, Vector<T, N> vector = {}) {
  return load_hinted<Hint::kEvictLast, N>(pointer, i, valid, vector);
}

template <int N, typename T>
__device__ void store_evict_last(T* pointer, int64_t i, const Vector<T, N>& vector) {
  store_hinted<Hint::kEvictLast>(pointer, i, vector);
}
