// delta = rowsum(grad * out), less the gradient of lse, by blocks of kRowThreads threads.

#pragma once

#include <cstdint>

#include "ceil_div.h"
#include "vector.cuh"

namespace attention::sm80 {

constexpr int kRowThreads = 128;  // Threads of a block that works row by row.
constexpr int kDeltaLanes = 16;   // Threads of a row: 16 bytes each, for up to 128 dimensions.

// Blocks for so many rows, with `lanes` threads for each.
inline int64_t row_blocks(int64_t rows, int lanes) {
  return ceil_div(rows, kRowThreads / lanes);
}

// `kLanes` threads of a row, 16 bytes each. Row(p, number) is a row by its number in lse, and address_in(view) where it
// lies.
template <typename T, int kLanes, typename Row, typename Problem>
__device__ void delta_of_rows(const Problem& p, int64_t rows) {
  constexpr int kLength = kVectorLength<T>;
  const int64_t row_number = int64_t(blockIdx.x) * (kRowThreads / kLanes) + threadIdx.x / kLanes;
  const int lane = threadIdx.x % kLanes;
  float sum = 0;
  if (row_number < rows && lane * kLength < p.out.dims) {
    const Row row(p, row_number);
    const auto out = load<kLength>(row.template address_in<const T>(p.out), lane);
    const auto grad = load<kLength>(row.template address_in<const T>(p.grad), lane);
#pragma unroll
    for (int i = 0; i < kLength; ++i) sum += static_cast<float>(out[i]) * static_cast<float>(grad[i]);
  }
#pragma unroll
  for (int distance = kLanes / 2; distance > 0; distance /= 2) {
    sum += __shfl_xor_sync(0xffffffff, sum, distance);
  }
  if (row_number < rows && lane == 0) p.delta[row_number] = sum - (p.grad_lse ? p.grad_lse[row_number] : 0);
}

}  // namespace attention::sm80
