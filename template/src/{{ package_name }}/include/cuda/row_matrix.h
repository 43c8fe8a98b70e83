// A matrix whose rows are contiguous. Plain C++: the host's sources use it too.

#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "divisor.cuh"

// `stride`: elements from one row to the next; 0 where one row stands for all.
template <typename T>
struct RowMatrix {
  T* data;
  int64_t stride;

  __host__ __device__ T* row(int64_t i) const { return data + i * stride; }

  // The elements by which row i starts past a multiple of N elements.
  template <int N>
  __host__ __device__ int offset(int64_t i) const {
    const auto first = static_cast<uint32_t>(reinterpret_cast<uintptr_t>(data) / sizeof(T));
    return (first + static_cast<uint32_t>(i) * static_cast<uint32_t>(stride)) % N;
  }
};

// Whether rows of n elements lie one after the other, each at a multiple of 16 bytes. A null matrix does not matter.
template <typename T>
bool in_vectors(const RowMatrix<T>& matrix, int64_t n) {
  const bool aligned = reinterpret_cast<uintptr_t>(matrix.data) % 16 == 0 && n * sizeof(T) % 16 == 0;
  return !matrix.data || (matrix.stride == n && aligned);
}

// How the rows of a matrix lie in groups, such as the heads of each token in a fused projection: `size` rows a group,
// and `stride` elements from a group's first row to the next group's. 0: there are no groups.
struct RowGroups {
  int64_t stride = 0;
  Divisor size = Divisor();
};

// The row of a matrix whose rows may lie in groups.
template <typename T>
__host__ __device__ T* row_in_groups(const RowMatrix<T>& matrix, const RowGroups& groups, int64_t row) {
  if (groups.stride == 0) return matrix.row(row);
  const int group = groups.size.divide(static_cast<int>(row));
  return matrix.row(row - int64_t(group) * groups.size.value()) + group * groups.stride;
}

// Rows of so many bytes have a kernel of their own, in a normalisation's forward, if they start at multiples of 16.
constexpr int64_t kMostShortBytes = 1024;

template <typename T>
bool short_in_vectors(const RowMatrix<T>& matrix, int64_t n) {
  const bool aligned = reinterpret_cast<uintptr_t>(matrix.data) % 16 == 0 && matrix.stride * sizeof(T) % 16 == 0;
  return aligned && n * sizeof(T) % 16 == 0 && n * int64_t(sizeof(T)) <= kMostShortBytes;
}
