// Kernels that compute each element by itself, from tensors that are broadcast to one shape: which elements a thread
// takes, and how it reads and writes them.

#pragma once

#include "accumulate.cuh"
#include "evict_last.cuh"
#include "operand.h"
#include "vector.cuh"
#include "widen.cuh"

// A row is cut into chunks of width * unroll accesses, one for `width` threads. A block takes a chunk of each of
// threads / width rows.
struct RowGrid {
  int width;   // threads of a chunk, a power of 2
  int chunks;  // of a row

  RowGrid(int64_t accesses, int threads, int unroll) : width(1) {
    while (width < threads && int64_t(width) * unroll < accesses) {
      width *= 2;
    }
    const int64_t chunk = int64_t(width) * unroll;
    chunks = static_cast<int>((accesses + chunk - 1) / chunk);
  }

  unsigned blocks(int threads, int64_t rows) const {
    const int64_t rows_per_block = threads / width;
    return static_cast<unsigned>((rows + rows_per_block - 1) / rows_per_block * chunks);
  }
};

// What a thread takes: kUnroll accesses of N elements of one row, `step` elements apart.
template <int kThreads, int kUnroll, int N>
struct RowPart {
  int64_t row;
  int64_t first;  // element of the first access
  int64_t step;

  __device__ explicit RowPart(const RowGrid& grid) {
    const int64_t chunk = blockIdx.x % grid.chunks;
    row = int64_t(blockIdx.x / grid.chunks) * (kThreads / grid.width) + threadIdx.x / grid.width;
    first = (chunk * kUnroll * grid.width + threadIdx.x % grid.width) * N;
    step = int64_t(grid.width) * N;
  }

  __device__ int64_t element(int access) const { return first + access * step; }

  // Whether all accesses are inside a row of n elements.
  __device__ bool is_whole(int64_t n) const { return element(kUnroll - 1) + N <= n; }
};

// N elements of a row from `first` on; zeros past its end. kVectors: the row can be read by vectors. kWhole: no access
// is past its end.
template <int N, bool kVectors, bool kWhole, typename T>
__device__ Vector<T, N> read(const Operand<T>& operand, const T* row, int64_t first, int64_t n) {
  Vector<T, N> values{};
  if constexpr (kVectors && kWhole) {
    values = load_evict_last<N>(row + first, 0);
  } else if ((kVectors || operand.vectors) && first + N <= n) {
    values = load_evict_last<N>(row + first, 0);
  } else {
#pragma unroll
    for (int k = 0; k < N; ++k) {
      if (kWhole || first + k < n) values[k] = row[(first + k) * operand.step];
    }
  }
  return values;
}

// The same for results, whose rows are contiguous.
template <int N, bool kVectors, bool kWhole, typename T>
__device__ void write(T* row, int64_t first, int64_t n, const Vector<T, N>& values) {
  if constexpr (kVectors && kWhole) {
    store_evict_last(row + first, 0, values);
  } else if (kVectors && first + N <= n) {
    store_evict_last(row + first, 0, values);
  } else {
#pragma unroll
    for (int k = 0; k < N; ++k) {
      if (kWhole || first + k < n) row[first + k] = values[k];
    }
  }
}

// Whether all operands can be read by vectors of N elements, and rows of results be written by them.
template <int N, typename... Operands>
bool all_vectors(const Rows& rows, const Operands&... operands) {
  return (rows.count == 1 || rows.n % N == 0) && (operands.vectors && ...);
}
