// Rows that are quantised as they are, for fp8_row_kernels.cuh.

#pragma once

#include "fp8_row_kernels.cuh"

namespace fp8 {

// The source of such rows.
template <typename T>
struct Plain {
  static constexpr bool kHasFactor = false;
  RowMatrix<const T> x;

  template <int N, int kAccesses, bool kFull>
  __device__ Held<N, kAccesses> chunk(int64_t row, const RowPart<N, kAccesses, kFull>& part) const {
    Vector<T, N> loaded[kAccesses];
    load_part(x.row(row), part, loaded);
    Held<N, kAccesses> values;
#pragma unroll
    for (int access = 0; access < kAccesses; ++access) {
      values[access] = widen(loaded[access]);
    }
    return values;
  }

  template <int N, int kAccesses, bool kFull>
  __device__ Held<N, kAccesses> whole(int64_t row, const RowPart<N, kAccesses, kFull>& part) const {
    return chunk(row, part);
  }

  template <int N, int kAccesses>
  __device__ void prepare(BlockGroup&, int64_t, int64_t, int) const {}

  template <int N, int kAccesses, bool kFull, typename Values>
  __device__ void keep(int64_t, const RowPart<N, kAccesses, kFull>&, const Values&, float) const {}
};

}  // namespace fp8
