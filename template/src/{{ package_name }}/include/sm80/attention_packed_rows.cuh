// Rows of all heads that share a head of keys: row i is query i / group of head i % group.

#pragma once

#include <cstdint>

#include "divisor.cuh"
#include "mask.h"

namespace attention::sm80 {

// A mask of such rows.
struct PackedMask {
  Mask mask;
  const Divisor& group;
  int queries, keys;  // Rows, and keys.

  __device__ int begin(int row) const { return mask.begin(group.divide(row)); }
  __device__ int end(int row) const { return mask.end(group.divide(row)); }
  __device__ bool allows(int row, int key) const { return mask.allows(group.divide(row), key); }
  __device__ bool allows_all(int first_row, int end_row, int first_key, int end_key) const {
    return mask.allows_all(group.divide(first_row), group.divide(end_row - 1) + 1, first_key, end_key);
  }
};

// The rows themselves: queries, or their outputs. `data` is that of the group's first head, `begin` its first query.
template <typename T>
struct PackedRows {
  T* data;
  int stride, begin;
  int64_t head_stride;
  const Divisor& group;

  __device__ T* operator[](int row) const {
    const int query = group.divide(row);
    return data + int64_t(begin + query) * stride + (row - query * group.value()) * head_stride;
  }
};

}  // namespace attention::sm80
