// The last step of gradients that are sums over the rows.

#pragma once

#include "column_sums.cuh"
#include "gradient.h"

// A term for sum_columns: the element of a matrix of gradients.
template <typename T>
struct StoredValues {
  const T* values;
  int64_t columns;

  __device__ accumulate_t<T> operator()(int64_t row, int64_t column) const {
    return static_cast<accumulate_t<T>>(values[row * columns + column]);
  }
};

// Adds up a gradient over the rows: the values that a kernel has written, or its rows of partial sums.
template <typename T>
cudaError_t add_partial_sums(const Gradient<T>& gradient, int64_t rows, int64_t columns, cudaStream_t stream) {
  using Sum = accumulate_t<T>;
  if (!gradient.partial) return cudaSuccess;
  const int64_t partial_rows = gradient.partial_rows;
  if (gradient.values) {
    const StoredValues<T> values{gradient.values, columns};
    if (partial_rows == 1) {
      return launch_sum_columns<Sum>(values, Columns<T>{gradient.sums, nullptr, columns}, rows, columns, 1, stream);
    }
    const Columns<Sum> partial{gradient.partial, nullptr, partial_rows * columns};
    const cudaError_t error = launch_sum_columns<Sum>(values, partial, rows, columns, partial_rows, stream);
    if (error != cudaSuccess) return error;
  }
  const Stored<Sum> partial{gradient.partial, gradient.partial_stride};
  return launch_sum_columns<Sum>(
      partial, Columns<T>{gradient.sums, nullptr, columns}, partial_rows, columns, 1, stream);
}
