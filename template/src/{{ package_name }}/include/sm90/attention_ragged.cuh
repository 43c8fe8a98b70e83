// Sequences of different lengths that follow each other in one tensor: what TMA copies of them, and the slots of their
// tiles (packed_sequences.cuh).
//
// A box of TMA ends at the end of a tensor, not of a sequence: a tile's last rows would be the next sequence's, and
// what is not finite there would reach this one. So descriptors have rows that end with their sequence
// (attention_operands.cuh).

#pragma once

#include <cstdint>

#include "attention_forward_work.cuh"
#include "attention_operands.cuh"
#include "attention_scheduler.cuh"
#include "attention_views.h"
#include "packed_sequences.cuh"

namespace attention::sm90 {

// A sequence's rows: `count`, which end at row `end` of the tensor.
struct RaggedRows {
  int end, count;

  __device__ static RaggedRows of(const PackedSequences& sequences, int number) {
    const int end = sequences.end(number);
    return {end, end - sequences.begin(number)};
  }
  __device__ int begin() const { return end - count; }
  __device__ RaggedRows broadcast() const { return {same_in_warp(end), same_in_warp(count)}; }
};

// A tensor (row, head, dimension). Heads that alias each other (stride 0) are described as one.
struct RaggedTensor {
  CUtensorMap map;
  int head_step;

  // All of a box before a sequence's first row is taken for one after its last.
  __device__ TmaPlace5 coordinates(const RaggedRows& sequence, int head, int row, int column) const {
    return {column, row < 0 ? kRowLimit : kRowLimit - sequence.count + row, head * head_step, kRowLimit, sequence.end};
  }
};

template <typename T>
cudaError_t describe(
    RaggedTensor& tensor, const View& view, int heads, int rows, int dim, int box_rows, int box_columns = kPanel) {
  tensor.head_step = view.head != 0;
  // TMA checks the strides of dimensions of size 1 as well.
  const auto stride = [&](int64_t value) { return value != 0 ? value : kSwizzleChunk / int64_t(sizeof(T)); };
  const int64_t row = stride(view.row);
  return tma::describe<T, 5>(
      tensor.map,
      static_cast<const T*>(view.data),
      {dim, kRowLimit, tensor.head_step ? heads : 1, int64_t(kRowLimit) + 1, int64_t(rows) + 1},
      {row, stride(view.head), shifting_stride<T>(row), row},
      {box_rows, 1, 1, 1},
      box_columns);
}

namespace fwd {

// A head's tile of queries: the tile with this number of this sequence, which has rows. `number` is -1 if there is
// none.
struct RaggedTile {
  int number, head, tile;
};

// The tile with this index or, if that slot is empty, with the next that has rows. By a warp.
template <int kRows>
__device__ RaggedTile next_ragged_tile(const PackedSequences& queries, const TileScheduler& scheduler, int& index) {
  for (; index < scheduler.tiles; index = next_index<32>(scheduler, index)) {
    const TileScheduler::Coordinates slot = scheduler.coordinates(index);
    const int number = queries.sequence_of(slot.tile, kRows), tile = slot.tile - queries.first_slot(number, kRows);
    if (tile >= 0 && tile * kRows < queries.end(number) - queries.begin(number)) return {number, slot.head, tile};
  }
  return {-1};
}

}  // namespace fwd
}  // namespace attention::sm90
