// What a block of the backward for Hopper computes, a tile of keys and the tiles of queries that attend to it; and what
// its warps share: shared memory, barriers and rings. attention_backward_pipeline.cuh explains the whole.

#pragma once

#include <algorithm>
#include <cstdint>

#include "attention_operands.cuh"
#include "attention_wgmma_tiles.h"
#include "mask.h"
#include "mbarrier.cuh"

namespace attention::sm90 {
namespace bwd {

template <typename Tile>
struct KernelTraits {
  static constexpr int D = Tile::kDims, V = Tile::kValueDims;  // The widths of queries and keys, and of values.
  // Which gradients the block computes, beside that of queries, which comes with that of keys.
  static constexpr bool kHasGradK = Tile::kGradients != Gradients::kOfValues;
  static constexpr bool kHasGradV = Tile::kGradients != Gradients::kOfKeys;
  // The columns of their tiles in shared memory: those past D or V are zeros, which no product reads.
  static constexpr int kLoadedD = (D + kPanel - 1) / kPanel * kPanel, kLoadedV = (V + kPanel - 1) / kPanel * kPanel;
  static constexpr int kConsumers = Tile::kConsumers, kKeys = kConsumers * kWgmmaRows, kRows = Tile::kRows;
  static constexpr int kQueryStages = Tile::kQueryStages, kGradStages = Tile::kGradStages;
  static constexpr int kThreads = (1 + kConsumers) * kWarpgroup;
  // An iteration is one step or several, whose queries are loaded apart.
  static constexpr int kStepRows = Tile::kStepRows, kSteps = kRows / kStepRows;
  static constexpr int kKeysBytes = kTileBytes<kKeys, D>, kRowsBytes = kTileBytes<kStepRows, D>;
  static constexpr int kValuesBytes = kTileBytes<kKeys, V>, kGradsBytes = kTileBytes<kStepRows, V>;
  static constexpr int kDsBytes = kTileBytes<kKeys, kRows>;
  // In an iteration a consumer computes its share of grad_q: 64 rows if there are so many for each, or some columns.
  // Elements are float32 or, of a SingleTile, as the output has them, in whole panels.
  static constexpr bool kSharesRows = kRows == kConsumers * kWgmmaRows;
  static constexpr int kShareColumns = kSharesRows ? D : D / kConsumers, kShare = kWgmmaRows * kShareColumns;
  static constexpr int kShareBytes = Tile::kSingle ? kTileBytes<kWgmmaRows, kShareColumns> : kShare * sizeof(float);
  // Whether each consumer leaves its share in shared memory, for a warp to add; and whether a warp either adds shares
  // or, of an ordered backward, says when consumers may.
  static constexpr bool kStagesShares = kHasGradK && !Tile::kAddsRegisters;
  static constexpr bool kHasAdder = kStagesShares || (kHasGradK && Tile::kOrdered);
  static constexpr int kSumRows = D > 128 ? kWgmmaRows : kKeys;  // Rows of a split's sums that a block adds up.
  static constexpr int kStats = 2 * kStepRows, kStatsBytes = kStats * sizeof(float);  // LSEs and deltas of a step.
  // Offsets in shared memory: keys, values, the rings of queries and gradients, dS^T, the shares of grad_q, and the
  // ring of row statistics, whose stages are those of the queries. The gradient of values alone needs no values.
  static constexpr int kValuesOffset = kKeysBytes, kQueriesOffset = kValuesOffset + (kHasGradK ? kValuesBytes : 0);
  static constexpr int kGradsOffset = kQueriesOffset + kQueryStages * kRowsBytes;
  static constexpr int kDsOffset = kGradsOffset + kGradStages * kGradsBytes;
  static constexpr int kSharesOffset = kDsOffset + Tile::kDsTiles * kDsBytes;
  static constexpr int kStatsOffset = kSharesOffset + (kStagesShares ? kConsumers * kShareBytes : 0);
  static constexpr int kEnd = kStatsOffset + kQueryStages * kStatsBytes, kBytes = kEnd + kSwizzleAlignment;
  static_assert(kSharesRows || kRows == kWgmmaRows, "a consumer computes 64 rows of grad_q");
  static_assert(kSteps == 1 || kStepRows == kWgmmaRows, "a consumer computes grad_q of one of several steps");
  static_assert(Tile::kBlocks * (kBytes + 1024) <= 227 * 1024, "more shared memory than a multiprocessor has");
};

// A tile of a sequence's keys; `head` counts those of keys. The block has the queries of a split.
template <typename Sequence>
struct KeyTile {
  Sequence sequence;
  int head, tile, split;
  int block;  // Of a wide tile, which of its two blocks: see visit_block.
};

// Whether blocks visit tiles of queries from the last to the first, each for all of their heads, and not head by head
// from the first tile to the last. Where heads share keys and a mask makes tiles differ in length, blocks that run
// together then read the same queries: they begin with about the same tile, wherever they end. Blocks of an OrderedTile
// wait less: head by head, one whose tiles are few would wait for the others at each head's beginning. More heads are
// then side by side (wide sections), so that long blocks begin early, and a block's neighbour is a step ahead.
template <typename Tile>
__host__ __device__ bool descends(const Mask& mask, int group) {
  return Tile::kOrdered || (group > 1 && !mask.is_even());
}

// Whether a tile of keys has all of its sequence, so that its block computes all of grad_q and stores it.
template <typename Tile>
__host__ __device__ bool is_single(int keys) {
  return Tile::kSingle || (Tile::kFindsSingle && keys > 0 && keys <= KernelTraits<Tile>::kKeys);
}

// The iterations for a tile of keys: the tiles of queries that attend to it or, of a single one, all of them, so that
// grad_q has a value everywhere.
struct Iterations {
  int first_head, end_head, first_tile, end_tile, count;
  bool descending;

  struct RowTile {
    int head, tile;
  };

  // For a split of a group of heads, the one with this number among those of all groups. Where there are more splits
  // than heads, each has some of a head's tiles.
  template <typename Tile>
  __device__ static Iterations of(const Mask& mask, int first_key, int split, int group, int splits) {
    const int heads = max(group / splits, 1), query_splits = max(splits / group, 1);
    const int first_head = split / query_splits * heads;
    constexpr int kRows = KernelTraits<Tile>::kRows;
    const int last_key = min(first_key + KernelTraits<Tile>::kKeys, mask.keys) - 1;
    const bool single = is_single<Tile>(mask.keys);
    const int first = single ? 0 : mask.first_query(first_key);
    const int end = single ? mask.queries : mask.end_query(last_key);
    int first_tile = first / kRows, end_tile = max((end + kRows - 1) / kRows, first_tile);
    const int tiles = (end_tile - first_tile + query_splits - 1) / query_splits;
    first_tile = min(first_tile + split % query_splits * tiles, end_tile);
    end_tile = min(first_tile + tiles, end_tile);
    const int count = (end_tile - first_tile) * heads;
    return {first_head, first_head + heads, first_tile, end_tile, count, descends<Tile>(mask, group)};
  }
  __device__ RowTile first() const { return {first_head, descending ? end_tile - 1 : first_tile}; }
  __device__ void advance(RowTile& rows) const {
    if (descending) {
      if (++rows.head == end_head) rows = {first_head, rows.tile - 1};
    } else {
      if (++rows.tile == end_tile) rows = {rows.head + 1, first_tile};
    }
  }
};

// What a block computes: a tile of keys, and the tiles of queries that attend to it.
template <typename Sequences>
struct BlockWork {
  KeyTile<typename Sequences::Sequence> key_tile;
  Iterations iterations;
  // How many works the block has had before. And of those with the same gradients: for how many there were iterations,
  // and how many steps these had, which says where the rings are.
  int number, loaded, steps;

  template <typename Tile>
  __device__ void find_iterations(const typename Sequences::Backward& p) {
    iterations = Iterations::of<Tile>(
        Sequences::mask(p, key_tile.sequence),
        key_tile.tile * KernelTraits<Tile>::kKeys,
        key_tile.head * p.group_splits + key_tile.split,
        p.heads / p.kv_heads,
        p.group_splits);
  }
  // By a warp, of what its threads have in common.
  template <typename Tile>
  __device__ BlockWork in_registers(const typename Sequences::Backward& p) const {
    const KeyTile<typename Sequences::Sequence> common = Sequences::broadcast(key_tile);
    BlockWork work{common, {}, same_in_warp(number), same_in_warp(loaded), same_in_warp(steps)};
    work.template find_iterations<Tile>(p);
    return work;
  }
};

template <typename Tile>
struct Barriers {
  using Traits = KernelTraits<Tile>;
  MBarrier full_keys, full_values;
  MBarrier full_queries[Traits::kQueryStages], empty_queries[Traits::kQueryStages];
  MBarrier full_grads[Traits::kGradStages], empty_grads[Traits::kGradStages];

  __device__ void init() {
    full_keys.init(1);
    full_values.init(1);
    for (int stage = 0; stage < std::max(Traits::kQueryStages, Traits::kGradStages); ++stage) {
      if (stage < Traits::kQueryStages) {
        full_queries[stage].init(1);
        empty_queries[stage].init(Traits::kConsumers);
      }
      if (stage < Traits::kGradStages) {
        full_grads[stage].init(1);
        empty_grads[stage].init(Traits::kConsumers);
      }
    }
  }
};

// An iteration's position in the rings of queries and of gradients.
template <int kQueryStages, int kGradStages>
struct Rings {
  RingPosition<kQueryStages> queries;
  RingPosition<kGradStages> grads;

  // After so many steps.
  __device__ explicit Rings(int steps) : queries(steps), grads(steps) {}
  __device__ int query_stage() const { return queries.stage(); }
  __device__ int query_parity() const { return queries.parity(); }
  __device__ int grad_stage() const { return grads.stage(); }
  __device__ int grad_parity() const { return grads.parity(); }
  __device__ void advance() {
    queries.advance();
    grads.advance();
  }
};

// Rings of the same length share one position.
template <int kStages>
struct Rings<kStages, kStages> : RingPosition<kStages> {
  using RingPosition<kStages>::RingPosition;
  __device__ int query_stage() const { return this->stage(); }
  __device__ int query_parity() const { return this->parity(); }
  __device__ int grad_stage() const { return this->stage(); }
  __device__ int grad_parity() const { return this->parity(); }
};

// Named barriers: of all consumers; of each consumer with the warp that issues the reduce-adds, for its share of grad_q
// being full and empty (or added, and to be added, where consumers add); and of each consumer alone.
constexpr int kConsumersBarrier = 1, kShareFull = 2, kShareEmpty = 4, kWarpgroupBarrier = 6;
// Likewise, of all consumers: a step's dS^T is written, and no longer read.
constexpr int kDsFull = 8, kDsEmpty = 10;
constexpr int kWarp = 32;

// How many blocks a tile of keys has.
template <typename Tile>
constexpr int kBlocksOfTile = Tile::kGradients == Gradients::kAll ? 1 : 2;

// Calls visitor(tile) with what this one of them has for a tile.
template <typename Tile, typename Visitor>
__device__ __forceinline__ void visit_block(int block, const Visitor& visitor) {
  if constexpr (kBlocksOfTile<Tile> == 1) {
    visitor(Tile());
  } else if (block == 0) {
    visitor(typename Tile::OfKeys());
  } else {
    visitor(typename Tile::OfValues());
  }
}

// The dynamic shared memory of a block, whichever it is.
template <typename Tile>
constexpr int shared_bytes() {
  if constexpr (kBlocksOfTile<Tile> == 1) {
    return KernelTraits<Tile>::kBytes;
  } else {
    return std::max(KernelTraits<typename Tile::OfKeys>::kBytes, KernelTraits<typename Tile::OfValues>::kBytes);
  }
}

}  // namespace bwd
}  // namespace attention::sm90
