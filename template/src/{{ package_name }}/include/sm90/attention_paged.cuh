// Keys and values in the pages of a cache, as TMA copies them: a box for each page of a tile, or for a part of a page.
//
// What follows a sequence's last key in its page may be anything, NaN too. So descriptors have rows that end with what
// a page has of the sequence (attention_operands.cuh). Page and head share a dimension, as there are five.

#pragma once

#include <algorithm>
#include <cstdint>
#include <numeric>

#include "attention_operands.cuh"
#include "attention_views.h"
#include "paged_rows.cuh"

namespace attention::sm90 {

// A view (page, row, head, dimension), for tiles of keys that a warp loads. Strides of pages and heads are multiples of
// one unit.
struct PagedTensor {
  CUtensorMap map;
  int page_units, head_units;
  int page_shift, box_shift;  // 2^box_shift rows of a box, which divide pages and tiles.

  __device__ int page_size() const { return 1 << page_shift; }
  // The first row of this lane's box.
  __device__ int box_row() const { return int(threadIdx.x % 32) << box_shift; }
};

// The most boxes of a tile: one for each lane of the warp.
constexpr int kTileBoxes = 32;

// Rows of a box: as many as divide pages and tiles of so many keys.
constexpr int page_box_shift(int page_shift, int keys) {
  int shift = 0;
  while (shift < page_shift && keys % (2 << shift) == 0) ++shift;
  return shift;
}

// Whether tiles of so many keys can be loaded: a box has whole groups of 8 rows, after which the swizzle repeats.
constexpr bool takes_pages(int page_shift, int keys) {
  const int shift = page_box_shift(page_shift, keys);
  return shift >= 3 && keys >> shift <= kTileBoxes;
}

template <typename T>
cudaError_t describe_pages(
    PagedTensor& tensor,
    const View& view,
    int pages,
    int page_shift,
    int heads,
    int dim,
    int keys,
    int box_columns = kPanel) {
  constexpr int64_t kLeast = kSwizzleChunk / int64_t(sizeof(T));
  // TMA checks the strides of dimensions of size 1 as well.
  const int64_t row = view.row != 0 ? view.row : kLeast, gcd = std::gcd(view.batch, view.head);
  const int64_t unit = gcd != 0 ? gcd : kLeast;
  const int64_t units = ((pages - 1) * view.batch + (heads - 1) * view.head) / unit + 1;
  tensor.page_units = static_cast<int>(view.batch / unit);
  tensor.head_units = static_cast<int>(view.head / unit);
  tensor.page_shift = page_shift;
  tensor.box_shift = page_box_shift(page_shift, keys);
  return tma::describe<T, 5>(
      tensor.map,
      static_cast<const T*>(view.data),
      {dim, kRowLimit, units, int64_t(kRowLimit) + 1, (int64_t(1) << page_shift) + 1},
      {row, unit, shifting_stride<T>(row), row},
      {1 << tensor.box_shift, 1, 1, 1},
      box_columns);
}

// Loads a tile of kKeys rows of a sequence of `keys`, by a warp; `page` is that of this lane's box.
template <int kKeys, int D>
__device__ void load_paged_panels(
    char* tile, const PagedTensor& tensor, int keys, int head, int first_key, int64_t page, MBarrier& barrier) {
  __syncwarp();  // The barrier expects the bytes.
  const int in_tile = tensor.box_row(), key = first_key + in_tile;
  if (in_tile >= kKeys) return;
  const int size = tensor.page_size(), row = key & (size - 1);
  const int valid = key < 0 ? 0 : min(max(keys - (key - row), 0), size);
#pragma unroll
  for (int panel = 0; panel < Panels<D>::kCount; ++panel) {
    const TmaPlace5 place = {
        panel * Panels<D>::kColumns,
        valid == 0 ? kRowLimit : kRowLimit - valid + row,
        static_cast<int>(page) * tensor.page_units + head * tensor.head_units,
        kRowLimit,
        valid};
    char* const rows = tile + panel * Panels<D>::template kBytes<kKeys> + in_tile * Panels<D>::kRow;
    tma_load(rows, tensor.map, place, barrier);
  }
}

}  // namespace attention::sm90
