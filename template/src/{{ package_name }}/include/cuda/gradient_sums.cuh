// The last step of gradients that are sums over the rows.

#pragma once

#include "column_sums.cuh"
#include "gradient.h"
#include "widen.cuh"

// A term for sum_columns: the element of a matrix of gradients.
template <typename T>
struct StoredValues {
  const T* values;
  int64_t columns;

  __device__ accumulate_t<T> operator()(int64_t row, int64_t column) const {
    return static_cast<accumulate_t<T>>(values[row * columns + column]);
  }
};

// The rows, at most, that sum_few_rows adds up, the columns of a thread, and the threads of a column.
constexpr int64_t kFewSummedRows = 256;
constexpr int kFewSummedColumns = 4, kFewSummedLanes = 8;

// The sums over few rows of a matrix, by one launch: all loads of a thread are in flight at once.
template <typename T>
__global__ void __launch_bounds__(kWarp* kFewSummedLanes)
    sum_few_rows(const T* values, T* sums, int64_t rows, int64_t columns) {
  constexpr int N = kFewSummedColumns;
  using Sums = Vector<accumulate_t<T>, N>;
  __shared__ Sums of_lanes[kFewSummedLanes][kWarp];
  const int64_t access = int64_t(blockIdx.x) * kWarp + threadIdx.x;
  const bool is_valid = access < columns / N;
  Sums sum = {};
  wait_for_kernel_before();
  if (is_valid) {
#pragma unroll 8
    for (int64_t row = threadIdx.y; row < rows; row += kFewSummedLanes) {
      sum += widen(load<N>(values + row * columns, access));
    }
  }
  of_lanes[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y > 0 || !is_valid) return;
#pragma unroll
  for (int lane = 1; lane < kFewSummedLanes; ++lane) sum += of_lanes[lane][threadIdx.x];
  store(sums, access, narrow<T>(sum));
}

// Adds up a gradient over the rows: the values that a kernel has written, or its rows of partial sums.
template <typename T>
cudaError_t add_partial_sums(const Gradient<T>& gradient, int64_t rows, int64_t columns, cudaStream_t stream) {
  using Sum = accumulate_t<T>;
  if (!gradient.partial) return cudaSuccess;
  const int64_t partial_rows = gradient.partial_rows;
  if (gradient.values) {
    const StoredValues<T> values{gradient.values, columns};
    if (rows <= kFewSummedRows && columns % kFewSummedColumns == 0) {
      const int64_t accesses = columns / kFewSummedColumns;
      const dim3 blocks((accesses + kWarp - 1) / kWarp), threads(kWarp, kFewSummedLanes);
      return launch_dependent(sum_few_rows<T>, blocks, threads, stream, gradient.values, gradient.sums, rows, columns);
    }
    const Columns<Sum> partial{gradient.partial, nullptr, partial_rows * columns};
    const cudaError_t error = launch_sum_columns<Sum>(values, partial, rows, columns, partial_rows, stream);
    if (error != cudaSuccess) return error;
  }
  const Stored<Sum> partial{gradient.partial, gradient.partial_stride};
  return launch_sum_columns<Sum>(
      partial, Columns<T>{gradient.sums, nullptr, columns}, partial_rows, columns, 1, stream);
}
