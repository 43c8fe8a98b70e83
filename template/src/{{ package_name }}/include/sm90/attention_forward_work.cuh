// What the forward's producer and consumers share: the layout of shared memory, and the work items. A work item's
// sequence is described by the op (see attention_forward_pipeline.cuh).

#pragma once

#include <cstdint>

#include "attention_operands.cuh"
#include "attention_scheduler.cuh"
#include "ceil_div.h"
#include "divisor.cuh"
#include "mask.h"

namespace attention::sm90 {
namespace fwd {

template <typename Tile>
struct KernelTraits {
  static constexpr int D = Tile::kDims, V = Tile::kValueDims;
  static constexpr bool kPacked = Tile::kPacked;
  static constexpr int kConsumers = Tile::kConsumers, kKeys = Tile::kKeys, kStages = Tile::kStages;
  static constexpr int kThreads = (1 + kConsumers) * kWarpgroup, kRows = kConsumers * kWgmmaRows;
  static constexpr int kQueryStages = Tile::kQueryStages;  // Of the ring of queries: one stage is one tile's.
  // Offsets in shared memory: the rings of queries, keys and values, and each consumer's output tile.
  static constexpr int kQueriesBytes = Panels<D>::template kTile<kRows>;
  static constexpr int kKeyStageBytes = Panels<D>::template kTile<kKeys>;
  static constexpr int kValueStageBytes = Panels<V>::template kTile<kKeys>;
  static constexpr int kOutBytes = Tile::kStoresRegisters ? 0 : Panels<V>::template kTile<kWgmmaRows>;
  static constexpr int kKeysOffset = kQueryStages * kQueriesBytes;
  static constexpr int kValuesOffset = kKeysOffset + kStages * kKeyStageBytes;
  static constexpr int kOutOffset = kValuesOffset + kStages * kValueStageBytes;
  static constexpr int kBytes = kOutOffset + kConsumers * kOutBytes + kSwizzleAlignment;
  static_assert(kKeys % 16 == 0 && kRows <= 256 && kKeys <= 256);
  static_assert(Tile::kBlocks * (kBytes + 1024) <= 227 * 1024, "more shared memory than a multiprocessor has");
};

// Packed rows: a group of `heads` heads has the rows query * heads + head. A tile has the rows of whole queries, which
// may leave its last rows undefined. A work item is one split of one tile. Without packing, groups are single heads and
// tiles have one item.
struct Packing {
  Divisor heads;
  int tile_queries, tiles;

  Packing(int rows, int packed_heads, int queries)
      : heads(packed_heads),
        tile_queries(rows / packed_heads),
        tiles(static_cast<int>(ceil_div(queries, tile_queries))) {}

  __device__ int tile_rows() const { return tile_queries * heads.value(); }
};

// A tile of queries and its range of keys. The producer computes it for the consumers, whose time is scarce: it takes
// several divisions.
template <typename Sequence>
struct WorkTile {
  // `head` counts groups of packed heads. first_key and last_key are the first keys of tiles of keys.
  Sequence sequence;
  int head, first_row, first_key, last_key;

  // A tile of its sequence's queries, whose mask this is; `tile` counts those of a head.
  template <typename Traits>
  __device__ static WorkTile of(
      const Sequence& sequence, int head, int tile, const Mask& mask, const Packing& packing) {
    constexpr int kKeys = Traits::kKeys;
    const int tile_queries = Traits::kPacked ? packing.tile_queries : Traits::kRows;
    const int first_query = tile * tile_queries, end_query = min(first_query + tile_queries, mask.queries);
    WorkTile work = {sequence, head, first_query};
    work.last_key = (mask.end(end_query - 1) + kKeys - 1) / kKeys * kKeys - kKeys;
    // Rows that attend to no key get one iteration over keys before the first, which TMA loads as zeros.
    work.first_key = min(mask.begin(first_query) / kKeys * kKeys, work.last_key);
    if (Traits::kPacked) work.first_row *= packing.heads.value();
    return work;
  }

  // Leaves one of so many splits of the keys, an equal number of iterations.
  template <int kKeys>
  __device__ void take_split(int split, int splits, const Mask& mask) {
    const int iterations = (last_key - first_key) / kKeys + 1;
    const int shortest = iterations / splits, rest = iterations % splits;
    const int begin = split * shortest + min(split, rest), size = shortest + (split < rest);
    first_key += begin * kKeys;
    last_key = first_key + (size - 1) * kKeys;
    // With more splits than iterations, some get one over keys after the last, which the mask leaves out.
    if (size == 0) first_key = last_key = (mask.keys + kKeys - 1) / kKeys * kKeys;
  }

  // Tells the consumers that there is no further tile.
  __device__ static WorkTile none() { return {Sequence::none()}; }
  __device__ bool is_valid() const { return sequence.is_valid(); }

  // A copy that the compiler knows to be the same in all lanes of a warp.
  __device__ WorkTile broadcast() const {
    return {
        sequence.broadcast(),
        same_in_warp(head),
        same_in_warp(first_row),
        same_in_warp(first_key),
        same_in_warp(last_key)};
  }
};

}  // namespace fwd
}  // namespace attention::sm90
