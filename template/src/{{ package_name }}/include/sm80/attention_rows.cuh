// Copies between the rows of a head and a tile in shared memory.

#pragma once

#include "attention_views.h"
#include "swizzled_tile.cuh"

namespace attention::sm80 {

// The dimensions of values. The kernels for heads of up to 128 take heads of one width.
template <int D, typename Problem>
__device__ int value_dims(const Problem& p) {
  if constexpr (D <= 128) return p.dim;
  return p.v.dims;
}

// Until all copies that any thread of the block started have arrived.
__device__ inline void wait_for_copies() {
  cp_async_wait<0>();
  __syncthreads();
}

// Starts to copy the rows of a head from `first` on to a tile; those from `end` on become zeros.
template <int kRows, int D, int kThreads, typename T>
__device__ void load_head(
    uint8_t* tile, const Rows<T>& rows, int first, int end, int chunks, unsigned thread = threadIdx.x) {
  load_tile<kRows, D, kThreads>(tile, rows[first], rows.stride, end - first, chunks, thread);
}
// The same for rows that are not a stride apart.
template <int kRows, int D, int kThreads, typename AnyRows>
__device__ void load_head(uint8_t* tile, const AnyRows& rows, int first, int end, int chunks, unsigned = threadIdx.x) {
  load_tile_of<kRows, D, kThreads>(tile, [&](int row) { return rows[first + row]; }, end - first, chunks);
}

// Writes 16 rows of a tile, from `row` on, where row 0 of the tile is row `first` of the head: by one warp.
template <int kRows, int D, typename T>
__device__ void store_head(const uint8_t* tile, int row, const Rows<T>& rows, int first, int end, int chunks) {
  store_rows<kRows, D>(tile, row, rows[first], rows.stride, end - first, chunks);
}
template <int kRows, int D, typename AnyRows>
__device__ void store_head(const uint8_t* tile, int row, const AnyRows& rows, int first, int end, int chunks) {
  store_rows_of<kRows, D>(tile, row, [&](int i) { return rows[first + i]; }, end - first, chunks);
}

}  // namespace attention::sm80
