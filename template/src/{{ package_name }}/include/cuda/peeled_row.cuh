// Rows of any length at any address, in accesses of 16 bytes.
//
// A row is peeled to whole vectors that are aligned in one tensor, mostly the result. The up to 30 elements before and
// after them are the row's edges: each of 32 threads takes one. In another tensor the same vectors may lie across two
// aligned ones; a thread then reads both and shifts them. Nothing outside of the row is read.

#pragma once

#include <cstdint>

#include "row_matrix.h"
#include "vector.cuh"

// N columns of a row on their way to registers. If `kShifted`, they may lie across two aligned vectors.
template <typename T, int N, bool kShifted>
struct LoadedColumns {
  Vector<T, N> vectors[kShifted ? 2 : 1] = {};
  int by = 0;  // The elements by which they lie past an aligned vector.

  // Predicates, not branches: several loads are in flight at once.
  __device__ void load(const RowMatrix<const T>& matrix, int64_t row, int64_t column, bool valid) {
    if (kShifted) by = (matrix.template offset<N>(row) + column) % N;
    const T* const from = matrix.row(row) + column - by;
    if (valid) vectors[0] = ::load<N>(from, 0);
    if (kShifted && valid && by) vectors[kShifted] = ::load<N>(from, 1);
  }

  // At the ends of a row of n elements, where an aligned vector may reach out of it.
  __device__ void load_elements(const RowMatrix<const T>& matrix, int64_t row, int64_t column, int64_t n) {
    by = 0;
#pragma unroll
    for (int k = 0; k < N; ++k) {
      if (column + k < n) vectors[0][k] = matrix.row(row)[column + k];
    }
  }

  __device__ Vector<T, N> value() const { return kShifted ? shifted(vectors[0], vectors[kShifted], by) : vectors[0]; }
};

// Where the whole vectors of a row of n elements are.
template <int N>
struct PeeledRow {
  int64_t begin = 0, vectors = 0, n = 0;  // The first vector's first element, and how many vectors there are.
  bool shifted = false;                   // Whether the vectors lie across aligned ones in another tensor.

  PeeledRow() = default;

  // `offset` is that of the row in the tensor that is to be aligned. If others are `shifted`, the two aligned vectors
  // that hold one of the row's are inside the row.
  __device__ PeeledRow(int64_t n, int offset, bool shifted) : begin((N - offset) % N), n(n), shifted(shifted) {
    vectors = (n - begin) / N;  // Not above 0 for a short row.
    if (shifted) {
      begin += N;
      vectors -= 2;
    }
    if (vectors < 0) vectors = 0;
  }

  __device__ int64_t edges() const { return n - vectors * N; }
  __device__ int64_t edge(int i) const { return i < begin || vectors == 0 ? i : i + vectors * N; }
};

// Some neighbouring elements of a row, at any address: a vector, or an element of the edges.
template <int kLength_>
struct RowPlace {
  static constexpr int kLength = kLength_;
  int64_t row, first;

  template <typename T>
  __device__ Vector<T, kLength> load(const RowMatrix<const T>& matrix) const {
    const T* const from = matrix.row(row) + first;
    const int by = kLength == 1 ? 0 : reinterpret_cast<uintptr_t>(from) / sizeof(T) % kLength;
    const auto values = ::load<kLength>(from - by, 0);
    return by ? shifted(values, ::load<kLength>(from - by, 1), by) : values;
  }

  // N times `otherwise` where the matrix is null.
  template <typename T>
  __device__ Vector<T, kLength> load_or(const RowMatrix<const T>& matrix, float otherwise) const {
    return matrix.data ? load(matrix) : ::load_or<kLength>(static_cast<const T*>(nullptr), 0, otherwise);
  }

  // To the tensor whose vectors are aligned.
  template <typename T>
  __device__ void store(const RowMatrix<T>& matrix, const Vector<T, kLength>& values) const {
    ::store(matrix.row(row) + first, 0, values);
  }
};

// A vector that is aligned in every tensor.
template <int N>
struct AlignedPlace : RowPlace<N> {
  template <typename T>
  __device__ Vector<T, N> load(const RowMatrix<const T>& matrix) const {
    return ::load<N>(matrix.row(this->row) + this->first, 0);
  }

  template <typename T>
  __device__ Vector<T, N> load_or(const RowMatrix<const T>& matrix, float otherwise) const {
    return ::load_or<N>(matrix.data ? matrix.row(this->row) + this->first : nullptr, 0, otherwise);
  }
};

// Calls f(place) for each vector and each element of the edges that is this thread's.
template <int N, typename F>
__device__ void each_place(const PeeledRow<N>& peeled, int64_t row, int rank, int threads, const F& f) {
  if (peeled.shifted) {
    for (int64_t i = rank; i < peeled.vectors; i += threads) {
      f(RowPlace<N>{row, peeled.begin + i * N});
    }
  } else {
#pragma unroll 4  // Without branches the loads of several places are in flight at once.
    for (int64_t i = rank; i < peeled.vectors; i += threads) {
      f(AlignedPlace<N>{{row, peeled.begin + i * N}});
    }
  }
  if (rank < peeled.edges()) f(RowPlace<1>{row, peeled.edge(rank)});
}
