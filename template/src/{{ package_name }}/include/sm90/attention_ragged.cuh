// Sequences of different lengths that follow each other in one tensor: what TMA copies of them, and the order of the
// forward's tiles.
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

// The order of the tiles: sequence after sequence, from the last to the first, and in a sequence by sections of heads,
// whose keys and values fit in the L2 cache together. In a section comes the last tile of every head, the longest of a
// causal mask, then the tile before it and so on. So tiles that run at the same time have neighbouring rows of many
// heads, which are neighbours in memory, too, if sequences are short.
struct RaggedScheduler : DrawnTiles {
  int heads, group;  // `group` heads share keys.
  int tiles;         // At most.
  int section_keys;  // Of how many keys of a head the L2 cache is to hold what is read.

  // A key and its value take `key_bytes`, of `section_bytes` in the cache.
  RaggedScheduler(int heads, int group, int tiles, int key_bytes, int64_t section_bytes)
      : heads(heads), group(group), tiles(tiles), section_keys(static_cast<int>(section_bytes / key_bytes)) {}

  // The heads of a section of a sequence with so many keys, if sections have about equal sizes.
  __device__ int section_heads(int keys) const {
    const int groups = heads / group, most = min(max(section_keys / max(keys, 1), 1), groups);
    const int sections = (groups + most - 1) / most;
    return (groups + sections - 1) / sections * group;
  }
};

// A head's tile of queries: the tile with this number of this sequence, which has rows. `number` is -1 if there is
// none.
struct RaggedTile {
  int number, head, tile;
};

// A warp that walks along the tiles in that order. Each lane knows a sequence of 32, that with the number last - lane.
template <int kRows>
class RaggedWalk {
 public:
  __device__ explicit RaggedWalk(const PackedSequences& queries) : last_(queries.count + 32) {}

  // The tile with this index, which is at least the one before. keys_of(number): how many keys a sequence has.
  template <typename KeysOf>
  __device__ RaggedTile
  find(const PackedSequences& queries, const RaggedScheduler& scheduler, const KeysOf& keys_of, int index) {
    if (index >= scheduler.tiles) return {-1};
    for (int end = __shfl_sync(kAll, end_, 31); index >= end; end = __shfl_sync(kAll, end_, 31)) {
      if (last_ < 32) return {-1};
      look_at_next(queries, scheduler, keys_of, end);
    }
    const int lane = __ffs(__ballot_sync(kAll, index < end_)) - 1;
    const int tiles = __shfl_sync(kAll, tiles_, lane), section = __shfl_sync(kAll, section_, lane);
    const int in_sequence = index - __shfl_sync(kAll, end_, lane) + tiles * scheduler.heads;
    const int first_head = in_sequence / (tiles * section) * section, in_section = in_sequence - first_head * tiles;
    const int heads = min(scheduler.heads - first_head, section), round = in_section / heads;
    return {last_ - lane, first_head + in_section - round * heads, tiles - 1 - round};
  }

 private:
  static constexpr unsigned kAll = 0xffffffff;

  // At the next 32 sequences. Those before them have `before` tiles.
  template <typename KeysOf>
  __device__ void look_at_next(
      const PackedSequences& queries, const RaggedScheduler& scheduler, const KeysOf& keys_of, int before) {
    last_ -= 32;
    const int lane = threadIdx.x % 32, number = last_ - lane;
    tiles_ = number < 0 ? 0 : (queries.end(number) - queries.begin(number) + kRows - 1) / kRows;
    section_ = scheduler.section_heads(number < 0 ? 0 : keys_of(number));
    end_ = tiles_ * scheduler.heads;
    for (int lanes = 1; lanes < 32; lanes *= 2) {
      const int others = __shfl_up_sync(kAll, end_, lanes);
      if (lane >= lanes) end_ += others;
    }
    end_ += before;
  }

  int last_;
  // Of the lane's sequence: the tiles of a head, how many tiles there are up to its end, and its sections' heads.
  int tiles_ = 0, end_ = 0, section_ = 1;
};

}  // namespace fwd
}  // namespace attention::sm90
