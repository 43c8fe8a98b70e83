// The last step of gradients that are sums over the rows.

#pragma once

#include "column_sums.cuh"
#include "gradient.h"

// Adds up rows of partial sums.
template <typename T>
cudaError_t add_partial_sums(const Gradient<T>& gradient, int64_t rows, int64_t columns, cudaStream_t stream) {
  using Sum = accumulate_t<T>;
  if (!gradient.partial) return cudaSuccess;
  const Stored<Sum> partial{gradient.partial, gradient.partial_stride};
  return launch_sum_columns<Sum>(partial, Columns<T>{gradient.sums, nullptr, columns}, rows, columns, 1, stream);
}
