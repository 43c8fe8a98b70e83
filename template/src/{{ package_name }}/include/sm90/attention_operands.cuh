// What attention's forward and backward share: tiles that TMA moves, and wgmma's operands in them.
//
// Tiles are laid out as in swizzled_tile.cuh. TMA loads rows past the last and columns past the dimension as zeros, and
// does not store them.

#pragma once

#include <cstdint>

#include "attention_views.h"
#include "mbarrier.cuh"
#include "mma.cuh"
#include "pack.cuh"
#include "swizzle.cuh"
#include "swizzled_tile.cuh"
#include "tma.cuh"
#include "tma.h"
#include "warpgroup.cuh"
#include "wgmma.cuh"

namespace attention::sm90 {

constexpr int kWgmmaRows = 64;   // M of a wgmma.
constexpr int kWgmmaDepth = 16;  // K of a wgmma.

template <int kRows>
constexpr int kPanelBytes = kRows * kSwizzleRow;

// How a tile of D columns is laid out: as panels of 64 columns or, where these would not be whole, of 32, whose rows
// are 64 bytes.
template <int D>
struct Panels {
  static constexpr int kColumns = D % kPanel == 0 ? kPanel : kPanel / 2, kCount = (D + kColumns - 1) / kColumns;
  static constexpr int kRow = kColumns * 2;  // Bytes.
  template <int kRows>
  static constexpr int kBytes = kRows * kRow;  // Of one of so many rows.
  template <int kRows>
  static constexpr int kTile = kCount * kBytes<kRows>;
  static_assert(D % kWgmmaDepth == 0);
};

// A tensor (batch, row, head, dimension) for TMA. Batches or heads that alias each other (stride 0) are described as
// one.
struct Tensor {
  CUtensorMap map;
  int batch_step, head_step;

  __device__ TmaPlace coordinates(int batch, int head, int row, int column) const {
    return {column, row, head * head_step, batch * batch_step};
  }
};

template <typename T>
cudaError_t describe(
    Tensor& tensor,
    const View& view,
    int batch,
    int heads,
    int rows,
    int dim,
    int box_rows,
    int box_columns = kSwizzleRow / sizeof(T)) {
  tensor.batch_step = view.batch != 0;
  tensor.head_step = view.head != 0;
  // TMA checks the strides of dimensions of size 1 as well.
  const auto stride = [&](int64_t value) { return value != 0 ? value : kSwizzleChunk / int64_t(sizeof(T)); };
  return tma::describe<T, 4>(
      tensor.map,
      static_cast<const T*>(view.data),
      {dim, rows, tensor.head_step ? heads : 1, tensor.batch_step ? batch : 1},
      {stride(view.row), stride(view.head), stride(view.batch)},
      {box_rows, 1, 1},
      box_columns);
}

// Describes queries for tiles with a row for each of `packed` consecutive heads of a query, and so on for `box_queries`
// queries: the tensor (batch, row, head, dimension), whose box has rows and heads.
template <typename T>
cudaError_t describe_packed(
    Tensor& tensor, const View& view, int batch, int heads, int rows, int dim, int packed, int box_queries) {
  tensor.batch_step = view.batch != 0;
  tensor.head_step = view.head != 0 ? packed : 0;  // Heads that alias each other are one, and are not packed.
  const auto stride = [&](int64_t value) { return value != 0 ? value : kSwizzleChunk / int64_t(sizeof(T)); };
  return tma::describe<T, 4>(
      tensor.map,
      static_cast<const T*>(view.data),
      {dim, tensor.head_step ? heads : 1, rows, tensor.batch_step ? batch : 1},
      {stride(view.head), stride(view.row), stride(view.batch)},
      {packed, box_queries, 1});
}

// Loads a tile of kRows rows, those of one of a tensor's sequences.
template <int kRows, int D, typename Tensor, typename Sequence>
__device__ void load_panels(
    char* tile, const Tensor& tensor, const Sequence& sequence, int head, int row, MBarrier& barrier) {
#pragma unroll
  for (int panel = 0; panel < Panels<D>::kCount; ++panel) {
    const auto place = tensor.coordinates(sequence, head, row, panel * Panels<D>::kColumns);
    tma_load(tile + panel * Panels<D>::template kBytes<kRows>, tensor.map, place, barrier);
  }
}

// Loads the queries of a tile of kRows packed rows. `group` counts the packed heads.
template <int kRows, int D>
__device__ void load_packed_panels(
    char* tile, const Tensor& tensor, int batch, int group, int query, MBarrier& barrier) {
#pragma unroll
  for (int panel = 0; panel < D / kPanel; ++panel) {
    const TmaPlace place = {panel * kPanel, group * tensor.head_step, query, batch * tensor.batch_step};
    tma_load(tile + panel * kPanelBytes<kRows>, tensor.map, place, barrier);
  }
}

// What to add to an operand's wgmma descriptor to skip the first k of GEMM-K: where K runs along the columns of a tile
// of kRows rows and D columns (K-major), and where it runs along the rows.
template <int kRows, int D = kPanel>
__device__ constexpr uint64_t skip_columns(int k) {
  constexpr int kColumns = Panels<D>::kColumns;
  return wgmma_bytes(k / kColumns * Panels<D>::template kBytes<kRows> + k % kColumns * 2);
}
template <int D = kPanel>
__device__ constexpr uint64_t skip_rows(int k) {
  return wgmma_bytes(k * Panels<D>::kRow);
}

// A warpgroup's accumulator of 64 rows, rounded to T, as the left operand of the next GEMM. wgmma.cuh and mma.cuh say
// how both are laid out.
template <typename T, int kSize>
__device__ void round_to(uint32_t (&operand)[kSize / 8][4], const float (&acc)[kSize]) {
#pragma unroll
  for (int k = 0; k < kSize / 8; ++k) {
#pragma unroll
    for (int i = 0; i < 4; ++i) operand[k][i] = pack<T>(acc[k * 8 + 2 * i], acc[k * 8 + 2 * i + 1]);
  }
}

// Writes such an operand, 64 rows, to a tile of kRows rows and D columns, from `row` on.
template <typename T, int kRows, int D = kPanel, int kSize>
__device__ void store_rows(char* tile, int row, const uint32_t (&rounded)[kSize][4]) {
  const int thread = threadIdx.x % kWarpgroup, lane = thread % 32;
  row += thread / 32 * 16 + lane % 16;
#pragma unroll
  for (int step = 0; step < kSize; ++step) {
    // The four 8 x 8 matrices in the order upper left, lower left, upper right, lower right.
    const int chunk = 2 * step + lane / 16;
    constexpr int kRow = Panels<D>::kRow, kChunks = kRow / kSwizzleChunk;
    char* const panel = tile + chunk / kChunks * Panels<D>::template kBytes<kRows>;
    stmatrix_x4(panel + swizzled<kRow>(row, chunk % kChunks), rounded[step]);
  }
}

// Marks a stage as empty, once this thread's warpgroup has read it.
__device__ inline void release(MBarrier& empty) {
  if (threadIdx.x % kWarpgroup == 0) empty.arrive();
}

// A dimension of a tensor that ends with a sequence, or with what a page has of it, for TMA: its rows are zeros from
// there on, and are not stored. It takes three dimensions of the descriptor, of which the last two only shift
// addresses:
//
//   address = data + row * stride + shift * (2^34 - stride) + end * stride, modulo 2^64
//
// Row r of `count` that end at `end` has row = kRowLimit - count + r and shift = kRowLimit, which is 2^30, so that the
// address is that of row end - count + r. From r = count on, row is out of bounds. The address of the tensor itself
// stays as it is: TMA faults where the first byte of what a descriptor describes is no memory.
constexpr int kRowLimit = 1 << 30;

// The stride, in elements, of `shift`.
template <typename T>
constexpr int64_t shifting_stride(int64_t row_stride) {
  return (int64_t(1) << 34) / int64_t(sizeof(T)) - row_stride;
}

}  // namespace attention::sm90
