// Accesses to a row of a formula: which elements each has, wherever the row begins, and how it reads them.

#pragma once

#include <cstdint>

#include "cache_hints.cuh"
#include "operand.h"
#include "vector.cuh"

// Which elements of a row an access has. Of rows that start at multiples of 16 bytes, access i has those from i * N on.
// Index: int where a block holds the row, which is short then.
template <int N, bool kAligned, typename Index>
struct RowStart {
  __device__ RowStart(int64_t, int64_t n) : accesses(static_cast<Index>(n / N)) {}

  __device__ Index first(Index access) const { return access * N; }

  Index accesses;  // of the row
};

// Rows of any size, which lie one after the other: the accesses are aligned and have elements of the row alone. At its
// ends are elements, fewer than N at each, of which a thread has one.
template <int N>
struct PeeledStart {
  __device__ PeeledStart(int64_t row, int n)
      : head(min(n, static_cast<int>((N - row * n % N) % N))), accesses((n - head) / N), edges(n - accesses * N) {}

  __device__ int first(int access) const { return head + access * N; }

  __device__ int edge(int i) const { return i < head ? i : i + accesses * N; }

  int head;
  int accesses;
  int edges;
};

// Others lie each as it likes, or are too long for a block: the accesses are aligned, so a row's first and last one may
// have elements of the rows before and after it.
template <int N, typename Index>
struct RowStart<N, false, Index> {
  __device__ RowStart(int64_t row, int64_t n)
      : shift(static_cast<int>(row * n % N)), accesses(n == 0 ? 0 : static_cast<Index>((n + shift + N - 1) / N)) {}

  __device__ Index first(Index access) const { return access * N - shift; }

  int shift;
  Index accesses;
};

// N elements of an input's row from `first` on; zeros where they are not the row's. Nothing waits for a load here:
// there are predicates, but no branches. kInParts: a row may have two dimensions.
template <int N, bool kAligned, bool kInParts, typename Index, typename T>
__device__ Vector<T, N> read_row(
    const Operand<T>& input, const Rows& rows, const T* row, Index first, Index n, int64_t end) {
  if constexpr (kAligned) {
    return load_evict_last<N>(row + first, 0, first < n);
  } else {
    // `end` is the number of elements from the row's first one to the last one of the tensor.
    const bool is_aligned = reinterpret_cast<uintptr_t>(input.data) % sizeof(Vector<T, N>) == 0;
    const bool is_vector = input.flat && is_aligned && first + N <= end && first < n;
    Vector<T, N> values = load_evict_last<N>(row + first, 0, is_vector);
#pragma unroll
    for (int k = 0; k < N; ++k) {
      const bool is_inside = first + k >= 0 && first + k < n;
      const T value =
          !is_vector && is_inside ? row[kInParts ? input.offset(rows, first + k) : (first + k) * input.step] : T();
      if (!is_vector) values[k] = value;
    }
    return values;
  }
}

// Whether an input's accesses of a row that is peeled are vectors: those of a weight that rows have in common are not.
template <int N, typename T>
__device__ bool has_peeled_vectors(const Operand<T>& input) {
  return input.flat && reinterpret_cast<uintptr_t>(input.data) % sizeof(Vector<T, N>) == 0;
}

// The elements of an access that has those of the row alone, or none, one by one.
template <int N, typename T>
__device__ Vector<T, N> read_apart(const Operand<T>& input, const T* row, int first, bool is_valid) {
  Vector<T, N> values = {};
#pragma unroll
  for (int k = 0; k < N; ++k) {
    if (is_valid) values[k] = row[(first + k) * input.step];
  }
  // Packed here, in the branch: unpacked where branches meet, vectors that are being loaded would be waited for.
  forget_conversions(values);
  return values;
}
