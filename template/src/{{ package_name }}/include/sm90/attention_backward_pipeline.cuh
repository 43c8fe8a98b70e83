// The backward with TMA and wgmma, after Shah et al., FlashAttention-3 (2024). sm80/attention_backward.cuh has the
// formulas.
//
// A block has a tile of keys and iterates over the tiles of queries that attend to these, for each head of the group.
// In the producer warpgroup, one thread issues the TMA loads: keys and values once; queries, gradients and row
// statistics (LSE and delta) for each iteration. A second warp issues the TMA reduce-adds of grad_q to its accumulator
// in global memory. Each consumer warpgroup has 64 keys, whose gradients stay in registers:
//
//   multiply_transposed  k q^T and v grad^T
//   compute_p            P^T, from k q^T and the LSEs
//   accumulate_grad_v    grad_v += P^T grad, with P^T from registers
//   compute_ds           dS^T, from P^T, v grad^T and the deltas
//   store_ds             dS^T to shared memory
//   accumulate           grad_k += dS^T q, with dS^T from registers
//   multiply_columns     the consumer's share of the iteration's dS k, over all keys of the block
//   store_grad_q         that share to shared memory, for the reduce-add
//
// Heads of 64 have an iteration of 128 queries, of which a consumer multiplies dS of 64 with keys; heads of 128 have
// one of 64, and a consumer multiplies with half of the keys' columns. For heads of 96 an iteration is two steps of 64
// queries, since registers hold the scores of so many.
//
// prepare_rows runs before, convert_tile after; each of the three is launched while the one before it runs. With an
// OrderedTile, blocks add to grad_q in a fixed order: see attention_turns.cuh. With a SingleTile, which has all keys,
// they store it, as those of a MixedTile do for a sequence with one tile of keys. Blocks of a MixedTile draw one tile
// of keys after the other (DrawnWork). Where the heads of a group, or their queries, are split among blocks
// (attention_group_splits.h), a block leaves grad_k and grad_v of its split in float32, and convert_tile adds them up.
//
// Heads of more than 128 dimensions have two blocks for each tile of keys, since registers hold one gradient of them:
// one computes grad_k and grad_q (iterate_of_keys), the other grad_v (accumulate_values). Those of a MixedWideTile draw
// tiles for either, so that both kinds go on at the rate at which they are computed, and read the same queries.
//
// An op says by the class Sequences what its tiles are of:
//
//   Backward     the problem, a kernel's parameter
//   Tensors      q, k, v, grad, grad_k, grad_v and, for a SingleTile or a MixedTile that is not wide, grad_q, as TMA
//                copies them (see attention_forward_pipeline.cuh)
//   Sequence     which sequence a tile of keys is of; queries() and keys() are what `coordinates` takes for its rows
//   kRagged      whether sequences differ in length, so that more registers say where a tile is
//   mask         the mask of a sequence
//   tile_index   the index of a tile of queries, in the row statistics and in the accumulator of grad_q
//   padded_tile  the tile with this index: how many rows it has, none or fewer if it is not used; where they are, in
//                tensors and, by `number`, in lse; and how many keys the sequence has
//   key_tile_index, padded_key_tile   the same of tiles of keys
//   broadcast    of a MixedTile: the same tile of keys, of which the compiler knows that a warp has it in common
//   query_rows   of a MixedWideTile: where a head's queries are, from one of them on, as padded_tile tells

#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "attention_operands.cuh"
#include "attention_scheduler.cuh"
#include "attention_turns.cuh"
#include "attention_wgmma_tiles.h"
#include "ceil_div.h"
#include "dependent_launch.cuh"
#include "exponential.cuh"
#include "mask.h"
#include "pack.cuh"
#include "score.h"
#include "vector.cuh"

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

// For one thread of the producer warpgroup.
template <typename Tile, typename Sequences>
__device__ void produce(
    const typename Sequences::Backward& p,
    const typename Sequences::Tensors& tensors,
    char* shared,
    Barriers<Tile>& barriers,
    const BlockWork<Sequences>& work) {
  using Traits = KernelTraits<Tile>;
  constexpr int kRows = Traits::kRows, kKeys = Traits::kKeys;
  const auto& iterations = work.iterations;
  const auto& key_tile = work.key_tile;
  Rings<Tile::kQueryStages, Tile::kGradStages> rings(Tile::kDraws ? work.steps : 0);
  auto rows = iterations.first();
  for (int iteration = 0; iteration < iterations.count; ++iteration, iterations.advance(rows)) {
#pragma unroll 1
    for (int step = 0; step < Traits::kSteps; ++step, rings.advance()) {
      const int first_row = rows.tile * kRows + step * Traits::kStepRows;
      const auto sequence = key_tile.sequence;  // A copy, which is not read again for each of the loads.
      const bool is_first = iteration + step == 0;
      if (is_first) {
        barriers.full_keys.arrive_expecting(Traits::kKeysBytes);
        load_panels<kKeys, Traits::kLoadedD>(
            shared, tensors.k, sequence.keys(), key_tile.head, key_tile.tile * kKeys, barriers.full_keys);
      }
      MBarrier& full_queries = barriers.full_queries[rings.query_stage()];
      barriers.empty_queries[rings.query_stage()].wait(rings.query_parity() ^ 1);
      full_queries.arrive_expecting(Traits::kRowsBytes + Traits::kStatsBytes);
      char* queries = shared + Traits::kQueriesOffset + rings.query_stage() * Traits::kRowsBytes;
      load_panels<Traits::kStepRows, Traits::kLoadedD>(
          queries, tensors.q, sequence.queries(), rows.head, first_row, full_queries);
      const int64_t tile = Sequences::tile_index(p, sequence, rows.head, rows.tile, kRows);
      const float* source = p.delta + (tile * Traits::kSteps + step) * Traits::kStats;
      char* stats = shared + Traits::kStatsOffset + rings.query_stage() * Traits::kStatsBytes;
      tma_load_bytes(stats, source, Traits::kStatsBytes, full_queries);
      if (Traits::kHasGradK && is_first) {
        barriers.full_values.arrive_expecting(Traits::kValuesBytes);
        load_panels<kKeys, Traits::kLoadedV>(
            shared + Traits::kValuesOffset,
            tensors.v,
            sequence.keys(),
            key_tile.head,
            key_tile.tile * kKeys,
            barriers.full_values);
      }
      MBarrier& full_grads = barriers.full_grads[rings.grad_stage()];
      barriers.empty_grads[rings.grad_stage()].wait(rings.grad_parity() ^ 1);
      full_grads.arrive_expecting(Traits::kGradsBytes);
      char* grads = shared + Traits::kGradsOffset + rings.grad_stage() * Traits::kGradsBytes;
      load_panels<Traits::kStepRows, Traits::kLoadedV>(
          grads, tensors.grad, sequence.queries(), rows.head, first_row, full_grads);
    }
  }
}

// For one warp of the producer warpgroup: stores a consumer's share of grad_q of a single tile.
template <typename Traits, typename Tensors, typename Sequence, typename RowTile>
__device__ void store_share(
    const Tensors& tensors, const Sequence& sequence, const RowTile& rows, int share, const char* source) {
  const int row = rows.tile * Traits::kRows + (Traits::kSharesRows ? share * kWgmmaRows : 0);
  const int first_column = Traits::kSharesRows ? 0 : share * Traits::kShareColumns;
#pragma unroll
  for (int column = 0; column < Traits::kShareColumns; column += kPanel, source += kPanelBytes<kWgmmaRows>) {
    const auto place = tensors.grad_q.coordinates(sequence.queries(), rows.head, row, first_column + column);
    tma_store(tensors.grad_q.map, source, place);
  }
}

// How many blocks of an ordered backward add to the tile of queries from first_row on before the one with this key.
// Those before the first whose keys the tile attends to never come.
template <typename Tile>
__device__ int adders_before(const Mask& mask, int first_row, int key) {
  return key / KernelTraits<Tile>::kKeys - mask.begin(first_row) / KernelTraits<Tile>::kKeys;
}

// The block's turn at a tile of queries.
template <typename Tile, typename Sequences>
__device__ Turn turn_of(
    const typename Sequences::Backward& p,
    const KeyTile<typename Sequences::Sequence>& key_tile,
    const Iterations::RowTile& rows) {
  using Traits = KernelTraits<Tile>;
  const auto& mask = Sequences::mask(p, key_tile.sequence);
  const int before = adders_before<Tile>(mask, rows.tile * Traits::kRows, key_tile.tile * Traits::kKeys);
  return Turn::of(p.progress, Sequences::tile_index(p, key_tile.sequence, rows.head, rows.tile, Traits::kRows), before);
}

// For that warp: adds the parts of grad_q to the accumulator in global memory. The first block of an ordered backward
// stores them, so that nothing need be zeroed. kStores: they are those of a single tile.
template <typename Tile, typename Sequences, bool kStores>
__device__ void reduce_grad_q(
    const typename Sequences::Backward& p,
    const typename Sequences::Tensors& tensors,
    const char* shared,
    const Iterations& iterations,
    const KeyTile<typename Sequences::Sequence>& key_tile) {
  using Traits = KernelTraits<Tile>;
  constexpr int kThreads = kWarpgroup + kWarp;
  const bool leads = threadIdx.x % kWarp == 0;
  constexpr bool kTakesTurns = Tile::kOrdered && !kStores;
  auto rows = iterations.first();
  for (int step = 0; step < iterations.count; ++step, iterations.advance(rows)) {
    const int64_t tile = Sequences::tile_index(p, key_tile.sequence, rows.head, rows.tile, Traits::kRows);
    float* accum = p.grad_q_accum + tile * Traits::kRows * Traits::D;
    Turn turn{};
    if constexpr (kTakesTurns) {
      turn = turn_of<Tile, Sequences>(p, key_tile, rows);
      if (leads) turn.wait();
      __syncwarp();
    }
    for (int part = 0; part < Traits::kConsumers; ++part) {
      named_barrier_sync(kShareFull + part, kThreads);
      if (leads) {
        float* target = accum + part * Traits::kShare;
        const char* source = shared + Traits::kSharesOffset + part * Traits::kShareBytes;
        if constexpr (kStores) {
          store_share<Traits>(tensors, key_tile.sequence, rows, part, source);
        } else if (kTakesTurns && turn.is_first()) {
          tma_store_bytes(target, source, Traits::kShareBytes);
        } else {
          tma_add(target, source, Traits::kShareBytes);
        }
        tma_store_commit();
      }
    }
    if (Traits::kConsumers > 1) {
      if (leads) tma_store_wait_read<1>();
      __syncwarp();
      named_barrier_arrive(kShareEmpty, kThreads);
    }
    if (leads) tma_store_wait_read<0>();
    __syncwarp();
    named_barrier_arrive(kShareEmpty + Traits::kConsumers - 1, kThreads);
    if (kTakesTurns && leads) turn.pass();
  }
}

// For that warp, before the first tile of keys: consumers may write their shares.
template <typename Tile>
__device__ void let_consumers_share() {
  for (int part = 0; part < Tile::kConsumers; ++part) named_barrier_arrive(kShareEmpty + part, kWarpgroup + kWarp);
}

// The same where consumers add their shares, from registers: in the block's turn.
template <typename Tile, typename Sequences>
__device__ void let_consumers_add(
    const typename Sequences::Backward& p,
    const Iterations& iterations,
    const KeyTile<typename Sequences::Sequence>& key_tile) {
  using Traits = KernelTraits<Tile>;
  constexpr int kThreads = kWarpgroup + kWarp;
  const bool leads = threadIdx.x % kWarp == 0;
  auto rows = iterations.first();
  for (int step = 0; step < iterations.count; ++step, iterations.advance(rows)) {
    const Turn turn = turn_of<Tile, Sequences>(p, key_tile, rows);
    if (leads) turn.wait();
    __syncwarp();
    for (int part = 0; part < Traits::kConsumers; ++part) named_barrier_arrive(kShareEmpty + part, kThreads);
    for (int part = 0; part < Traits::kConsumers; ++part) named_barrier_sync(kShareFull + part, kThreads);
    if (leads) turn.pass();
  }
}

// For that warp: a tile of keys. A single one of wide heads has grad_q in registers, and its consumers store it.
template <typename Tile, typename Sequences>
__device__ void add_grad_q(
    const typename Sequences::Backward& p,
    const typename Sequences::Tensors& tensors,
    const char* shared,
    const Iterations& iterations,
    const KeyTile<typename Sequences::Sequence>& key_tile) {
  using Traits = KernelTraits<Tile>;
  if constexpr (Tile::kSingle || Tile::kFindsSingle) {
    if (is_single<Tile>(Sequences::mask(p, key_tile.sequence).keys)) {
      if constexpr (Traits::kStagesShares && Tile::kGradients == Gradients::kAll) {
        reduce_grad_q<Tile, Sequences, true>(p, tensors, shared, iterations, key_tile);
      }
      return;
    }
  }
  if constexpr (Traits::kStagesShares && !Tile::kSingle) {
    reduce_grad_q<Tile, Sequences, false>(p, tensors, shared, iterations, key_tile);
  } else if constexpr (Traits::kHasAdder && !Tile::kSingle) {
    let_consumers_add<Tile, Sequences>(p, iterations, key_tile);
  }
}

// Transposes a matrix of which each of four neighbouring threads has a row.
__device__ inline void transpose_in_quad(uint32_t (&row)[4]) {
#pragma unroll
  for (int distance = 1; distance < 4; distance *= 2) {
    const bool is_upper = threadIdx.x & distance;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if (i & distance) continue;
      uint32_t &lower = row[i], &upper = row[i | distance];
      const uint32_t other = __shfl_xor_sync(0xffffffff, is_upper ? lower : upper, distance);
      (is_upper ? lower : upper) = other;
    }
  }
}

// A consumer's 64 keys. A thread has keys thread / 32 * 16 + lane / 4 and that + 8; of an iteration's P^T and dS^T,
// those keys with the queries 8 n + lane % 4 * 2 and the next.
template <typename T, typename Tile>
struct Keys {
  using Traits = KernelTraits<Tile>;
  static constexpr int kRows = Traits::kStepRows, kKeys = Traits::kKeys, D = Traits::D, V = Traits::V;
  float grad_k[D / 2], grad_v[V / 2];  // Of wide heads, the block uses one of them.
  float weights[kRows / 2], ds[kRows / 2];

  // The consumer's index.
  const int consumer = same_in_warp(threadIdx.x / kWarpgroup - 1);

  __device__ __forceinline__ void clear() {
#pragma unroll
    for (int i = 0; i < D / 2; ++i) grad_k[i] = 0;
#pragma unroll
    for (int i = 0; i < V / 2; ++i) grad_v[i] = 0;
  }

  // acc = keys rows^T, for this consumer's rows of the tile of keys (or values), which have kDims dimensions. Like all
  // that follow, it only issues the GEMM.
  template <int kDims>
  __device__ __forceinline__ void multiply_transposed(
      float (&acc)[kRows / 2], const char* keys, const char* rows) const {
    const uint64_t a = wgmma_operand(keys + consumer * kWgmmaRows * kSwizzleRow), b = wgmma_operand(rows);
    wgmma_pin(acc);
    wgmma_fence();
#pragma unroll
    for (int step = 0; step < kDims; step += kWgmmaDepth) {
      wgmma<T>(acc, a + skip_columns<kKeys>(step), b + skip_columns<kRows>(step), step > 0);
    }
    wgmma_commit();
  }

  // acc += a rows, with `a` from registers.
  template <int kSize>
  __device__ __forceinline__ static void accumulate(
      float (&acc)[kSize], uint32_t (&a)[kRows / 16][4], const char* rows) {
    const uint64_t b = wgmma_operand(rows, kPanelBytes<kRows>);
    wgmma_pin(acc);
    wgmma_pin(a);
    wgmma_fence();
#pragma unroll
    for (int step = 0; step < kRows; step += kWgmmaDepth) {
      wgmma<T, Transposed::kB>(acc, a[step / kWgmmaDepth], b + skip_rows(step));
    }
    wgmma_commit();
  }

  // compute_p: in place of k q^T.
  __device__ __forceinline__ void compute_p(
      const Score& score, const Mask& mask, const float* lse, int first_key, int first_row) {
    const int thread = threadIdx.x % kWarpgroup, lane = thread % 32;
    const int key = first_key + thread / 32 * 16 + lane / 4, row = first_row + lane % 4 * 2;
    if (score.transforms()) {
#pragma unroll
      for (int i = 0; i < kRows / 2; ++i) weights[i] = score.transform(weights[i]);
    }
#pragma unroll
    for (int n = 0; n < kRows / 8; ++n) {
      const float2 pair = reinterpret_cast<const float2*>(lse)[n * 4 + lane % 4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        // The difference is taken before log2(e) is multiplied in, so that the weight of a row's only key is exactly 1.
        const float scaled = __fmul_rn(weights[n * 4 + i], score.scale);
        weights[n * 4 + i] = exp2_fast((scaled - (i % 2 ? pair.y : pair.x)) * kLog2E);
      }
    }
    if (mask.allows_all(first_row, first_row + kRows, first_key, first_key + kWgmmaRows)) return;
#pragma unroll
    for (int n = 0; n < kRows / 8; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        if (!mask.allows(row + n * 8 + i % 2, key + i / 2 * 8)) weights[n * 4 + i] = 0;
      }
    }
  }

  __device__ __forceinline__ void accumulate_grad_v(const char* grad) {
    uint32_t rounded[kRows / 16][4];
    round_to<T>(rounded, weights);
    accumulate(grad_v, rounded, grad);
  }

  // Also writes dS^T to this consumer's rows of a tile. If there is one tile, every consumer has to have waited for the
  // last iteration's GEMM that read it.
  __device__ __forceinline__ void accumulate_grad_k(const char* q, char* tile) {
    uint32_t rounded[kRows / 16][4];
    round_to<T>(rounded, ds);
    accumulate(grad_k, rounded, q);
    if constexpr (Tile::kDsTiles == 1) named_barrier_sync(kConsumersBarrier, Traits::kConsumers * kWarpgroup);
    store_ds(rounded, tile);
    fence_async_shared();
  }

  __device__ __forceinline__ void store_ds(const uint32_t (&rounded)[kRows / 16][4], char* tile) const {
    store_rows<T, kKeys>(tile, consumer * kWgmmaRows, rounded);
  }

  // compute_ds: in place of v grad^T.
  __device__ __forceinline__ void compute_ds(const Score& score, const float* lse, const float* delta) {
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int n = 0; n < kRows / 8; ++n) {
      const float2 pair = reinterpret_cast<const float2*>(delta)[n * 4 + lane % 4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        float& value = ds[n * 4 + i];
        value = weights[n * 4 + i] * (value - (i % 2 ? pair.y : pair.x));
      }
    }
    if (!score.transforms()) return;
#pragma unroll
    for (int n = 0; n < kRows / 8; ++n) {
      const float2 pair = reinterpret_cast<const float2*>(lse)[n * 4 + lane % 4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        ds[n * 4 + i] *= score.derivative_at(weights[n * 4 + i], i % 2 ? pair.y : pair.x);
      }
    }
  }

  // A consumer's share of grad_q of wide heads: kWhole panels and, where their number is odd, half of the columns of
  // the panel in the middle.
  static constexpr int kWhole = D / kPanel / Traits::kConsumers;
  static constexpr bool kHasHalf = D / kPanel % Traits::kConsumers != 0;

  __device__ __forceinline__ int whole_column() const { return consumer * (kWhole + kHasHalf) * kPanel; }
  __device__ __forceinline__ int half_column() const { return kWhole * kPanel + consumer * kPanel / 2; }

  // sums = dS keys, for columns from `column` on.
  template <int kSize>
  __device__ __forceinline__ static void multiply_columns(
      float (&sums)[kSize], const char* ds_tile, const char* keys, int column) {
    const uint64_t a = wgmma_operand(ds_tile);
    const uint64_t b = wgmma_operand(keys, kPanelBytes<kKeys>) + skip_columns<kKeys>(column);
    wgmma_pin(sums);
    wgmma_fence();
#pragma unroll
    for (int step = 0; step < kKeys; step += kWgmmaDepth) {
      wgmma<T, Transposed::kBoth>(sums, a + skip_rows(step), b + skip_rows(step), step > 0);
    }
    wgmma_commit();
  }

  // Adds such columns to the accumulator of grad_q, or stores them there or in shared memory: in the order of registers
  // and threads.
  template <int kSize>
  __device__ __forceinline__ static void add_columns(float* tile, const float (&sums)[kSize], int column, bool stores) {
    float4* target = reinterpret_cast<float4*>(tile + column * kWgmmaRows) + threadIdx.x % kWarpgroup;
#pragma unroll
    for (int n = 0; n < kSize / 4; ++n) {
      const float4 values = {sums[4 * n], sums[4 * n + 1], sums[4 * n + 2], sums[4 * n + 3]};
      if (stores) {
        target[n * kWarpgroup] = values;
      } else {
        atomicAdd(target + n * kWarpgroup, values);
      }
    }
  }

  // Stores such columns of a single tile: what grad_q has of them, scaled. The four threads of a row exchange what they
  // have, so that each stores 16 bytes.
  template <int kSize, typename Rows>
  __device__ __forceinline__ static void store_columns(
      const View& view, const Rows& rows, int dim, const float (&sums)[kSize], float scale, int column) {
    const int thread = threadIdx.x % kWarpgroup, lane = thread % 4;
    const int row = thread / 32 * 16 + thread % 32 / 4;
    T* target = static_cast<T*>(view.data) + rows.offset(view);
#pragma unroll
    for (int n = 0; n < kSize / 4; n += 4) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        uint32_t chunk[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const float* pair = sums + 4 * (n + i) + 2 * half;
          chunk[i] = pack<T>(pair[0] * scale, pair[1] * scale);
        }
        transpose_in_quad(chunk);
        const int of_half = row + half * 8, first = column + 8 * (n + lane);
        if (of_half < rows.count && first < dim) {
          const uint4 bits = {chunk[0], chunk[1], chunk[2], chunk[3]};
          *reinterpret_cast<uint4*>(target + int64_t(of_half) * view.row + first) = bits;
        }
      }
    }
  }

  // In the order of registers and threads, which convert_tile undoes; of a single tile as grad_q has it.
  template <int kSize>
  __device__ __forceinline__ void store_grad_q(char* shared, float (&sums)[kSize], float scale, bool single) const {
    char* share = shared + Traits::kSharesOffset + consumer * Traits::kShareBytes;
    named_barrier_sync(kShareEmpty + consumer, kWarpgroup + kWarp);
    if (single) {
#pragma unroll
      for (int i = 0; i < kSize; ++i) sums[i] *= scale;
      uint32_t rounded[kSize / 8][4];
      round_to<T>(rounded, sums);
      store_rows<T, kWgmmaRows>(share, 0, rounded);
    } else {
      float4* target = reinterpret_cast<float4*>(share);
#pragma unroll
      for (int n = 0; n < kSize / 4; ++n) {
        target[n * kWarpgroup + threadIdx.x % kWarpgroup] = {
            sums[4 * n], sums[4 * n + 1], sums[4 * n + 2], sums[4 * n + 3]};
      }
    }
    fence_async_shared();
    named_barrier_arrive(kShareFull + consumer, kWarpgroup + kWarp);
  }

  // The epilogue: writes a gradient by way of this consumer's rows of a tile that is no longer read.
  template <int kSize, typename Tensor, typename Sequence>
  __device__ __forceinline__ void store(
      char* tile, float (&acc)[kSize], float scale, const Tensor& tensor, const KeyTile<Sequence>& key_tile) const {
    const int row = consumer * kWgmmaRows;
#pragma unroll
    for (int i = 0; i < kSize; ++i) acc[i] *= scale;
    uint32_t rounded[kSize / 8][4];
    round_to<T>(rounded, acc);
    store_rows<T, kKeys>(tile, row, rounded);
    fence_async_shared();
    named_barrier_sync(kWarpgroupBarrier + consumer, kWarpgroup);
    if (threadIdx.x % kWarpgroup == 0) {
#pragma unroll
      for (int panel = 0; panel * kPanel < 2 * kSize; ++panel) {
        const int first_row = key_tile.tile * kKeys + row;
        const auto target = tensor.coordinates(key_tile.sequence.keys(), key_tile.head, first_row, panel * kPanel);
        tma_store(tensor.map, tile + panel * kPanelBytes<kKeys> + row * kSwizzleRow, target);
      }
      tma_store_commit();
    }
  }

  // The epilogue of a split: leaves a gradient for convert_tile to add up.
  template <int kSize>
  __device__ __forceinline__ void store_sums(float* tile, const float (&acc)[kSize]) const {
    float4* target = reinterpret_cast<float4*>(tile + consumer * kWgmmaRows * 2 * kSize);
#pragma unroll
    for (int n = 0; n < kSize / 4; ++n) {
      target[n * kWarpgroup + threadIdx.x % kWarpgroup] = {acc[4 * n], acc[4 * n + 1], acc[4 * n + 2], acc[4 * n + 3]};
    }
  }
};

// Where a split leaves its sums for a tile of keys: grad_k, then grad_v, each for one consumer's keys after the
// other's, in the order of registers and threads.
template <typename Traits, typename Backward>
__device__ float* split_sums(const Backward& p, int64_t tile, int split) {
  return p.split_sums + (tile * p.group_splits + split) * Traits::kKeys * (Traits::D + Traits::V);
}

// dS^T of an iteration in shared memory, as a consumer sees it: panels of 64 queries, for the keys of all consumers. If
// there is one step, iterations alternate between two tiles: once all consumers have written one, none reads the other.
// If there are several, each writes a panel, from which one consumer computes its share of grad_q; barriers of each
// panel let consumers be half an iteration apart.
template <typename Tile>
struct DsTile {
  using Traits = KernelTraits<Tile>;
  static constexpr bool kOneStep = Traits::kSteps == 1;
  static constexpr int kThreads = Traits::kConsumers * kWarpgroup;
  char* tile;
  int consumer;
  bool was_read;  // By an iteration before.

  __device__ DsTile(char* shared, int consumer, int iteration, bool was_read)
      : tile(shared + Traits::kDsOffset + (kOneStep ? iteration % 2 * Traits::kDsBytes : 0)),
        consumer(consumer),
        was_read(was_read) {}

  __device__ char* panel(int step) const { return tile + step * kPanelBytes<Traits::kKeys>; }
  __device__ const char* own_panel() const { return panel(Traits::kSharesRows ? consumer : 0); }
  // Of the keys, the first that the consumer multiplies with.
  __device__ int own_column() const { return Traits::kSharesRows ? 0 : consumer * Traits::kShareColumns; }

  __device__ void wait_until_empty(int step) const {
    if (was_read && consumer != step) named_barrier_sync(kDsEmpty + step, kThreads);
  }
  __device__ void say_full(int step) const {
    if (!kOneStep && consumer != step) named_barrier_arrive(kDsFull + step, kThreads);
    // The whole warpgroup has read the row statistics.
    if (step + 1 < Traits::kSteps) named_barrier_sync(kWarpgroupBarrier + consumer, kWarpgroup);
  }
  __device__ void wait_until_full() const {
    named_barrier_sync(kOneStep ? kConsumersBarrier : kDsFull + consumer, kThreads);
  }
  __device__ void say_empty() const { named_barrier_arrive(kDsEmpty + consumer, kThreads); }
};

// What a consumer reads in a step.
template <typename Tile>
struct Operands {
  using Traits = KernelTraits<Tile>;
  int query_stage, grad_stage;
  const char *q, *grad;
  const float *lse, *delta;

  __device__ Operands(const char* shared, const Rings<Tile::kQueryStages, Tile::kGradStages>& rings)
      : query_stage(same_in_warp(rings.query_stage())),
        grad_stage(Tile::kQueryStages == Tile::kGradStages ? query_stage : same_in_warp(rings.grad_stage())),
        q(shared + Traits::kQueriesOffset + query_stage * Traits::kRowsBytes),
        grad(shared + Traits::kGradsOffset + grad_stage * Traits::kGradsBytes),
        lse(reinterpret_cast<const float*>(shared + Traits::kStatsOffset + query_stage * Traits::kStatsBytes)),
        delta(lse + Traits::kStepRows) {}
};

// One iteration of a consumer: its steps, and then its share of grad_q, to which every consumer's dS^T contributes.
template <typename T, typename Tile>
__device__ __forceinline__ void iterate(
    Keys<T, Tile>& keys,
    const Score& score,
    const Mask& mask,
    char* shared,
    Barriers<Tile>& barriers,
    Rings<Tile::kQueryStages, Tile::kGradStages>& rings,
    const DsTile<Tile>& ds_tile,
    int first_key,
    int first_row) {
  using Traits = KernelTraits<Tile>;
  constexpr int kSteps = Traits::kSteps;
  constexpr bool kKeysLast = kSteps == 1;  // Whether the GEMM for grad_k comes after that for grad_q.
  // Of the latest step.
  int query_stage, grad_stage;
  const char* q;
  uint32_t rounded[Tile::kStepRows / 16][4];
#pragma unroll
  for (int step = 0; step < kSteps; ++step, rings.advance()) {
    const Operands<Tile> operands(shared, rings);
    barriers.full_queries[operands.query_stage].wait(rings.query_parity());
    keys.template multiply_transposed<Traits::D>(keys.weights, shared, operands.q);
    barriers.full_grads[operands.grad_stage].wait(rings.grad_parity());
    keys.template multiply_transposed<Traits::V>(keys.ds, shared + Traits::kValuesOffset, operands.grad);
    wgmma_wait<1>();
    wgmma_pin(keys.weights);
    if (step > 0) {
      wgmma_pin(keys.grad_k);
      wgmma_pin(keys.grad_v);
      release(barriers.empty_grads[grad_stage]);
      release(barriers.empty_queries[query_stage]);
    }
    keys.compute_p(score, mask, operands.lse, first_key, first_row + step * Tile::kStepRows);
    if constexpr (Tile::kValuesFirst) keys.accumulate_grad_v(operands.grad);
    wgmma_wait<Tile::kValuesFirst ? 1 : 0>();
    wgmma_pin(keys.ds);
    keys.compute_ds(score, operands.lse, operands.delta);
    round_to<T>(rounded, keys.ds);
    if constexpr (kKeysLast) {
      keys.store_ds(rounded, ds_tile.panel(step));
      if constexpr (!Tile::kValuesFirst) keys.accumulate_grad_v(operands.grad);
    } else {
      if constexpr (!Tile::kValuesFirst) keys.accumulate_grad_v(operands.grad);
      keys.accumulate(keys.grad_k, rounded, operands.q);
      ds_tile.wait_until_empty(step);
      keys.store_ds(rounded, ds_tile.panel(step));
    }
    fence_async_shared();
    ds_tile.say_full(step);
    query_stage = operands.query_stage;
    grad_stage = operands.grad_stage;
    q = operands.q;
  }
  ds_tile.wait_until_full();
  float sums[Traits::kShareColumns / 2];
  keys.multiply_columns(sums, ds_tile.own_panel(), shared, ds_tile.own_column());
  if constexpr (kKeysLast) {
    keys.accumulate(keys.grad_k, rounded, q);
    wgmma_wait<1>();
    wgmma_pin(keys.grad_v);
    wgmma_pin(sums);
    release(barriers.empty_grads[grad_stage]);
    keys.store_grad_q(shared, sums, score.scale, is_single<Tile>(mask.keys));
    wgmma_wait<0>();
    wgmma_pin(keys.grad_k);
    release(barriers.empty_queries[query_stage]);
  } else {
    wgmma_wait<1>();
    wgmma_pin(keys.grad_v);
    wgmma_pin(keys.grad_k);
    release(barriers.empty_grads[grad_stage]);
    release(barriers.empty_queries[query_stage]);
    wgmma_wait<0>();
    wgmma_pin(sums);
    ds_tile.say_empty();
    keys.store_grad_q(shared, sums, score.scale, is_single<Tile>(mask.keys));
  }
}

// Where a tile of wide queries has grad_q.
template <typename T, typename Tile, typename Sequences>
struct WideGradQ {
  using Traits = KernelTraits<Tile>;
  const typename Sequences::Backward& p;
  const KeyTile<typename Sequences::Sequence>& key_tile;
  const Iterations::RowTile& rows;

  __device__ float* accum() const {
    const int64_t tile = Sequences::tile_index(p, key_tile.sequence, rows.head, rows.tile, Traits::kRows);
    return p.grad_q_accum + tile * Traits::kRows * Traits::D;
  }
  template <int kSize>
  __device__ __forceinline__ void store(const float (&sums)[kSize], int column) const {
    const auto outputs = Sequences::query_rows(p, key_tile.sequence, rows.head, rows.tile * Traits::kRows);
    Keys<T, Tile>::store_columns(p.grad_q, outputs, p.dim, sums, p.score.scale, column);
  }
};

// The same for the gradients of wide keys and of queries. Without room in shared memory, the latter are added to their
// accumulator from registers: by the first block of an ordered backward, stored. Those of a single tile of keys are
// stored in the output.
template <typename T, typename Tile, typename GradQ>
__device__ __forceinline__ void iterate_of_keys(
    Keys<T, Tile>& keys,
    const Score& score,
    const Mask& mask,
    char* shared,
    Barriers<Tile>& barriers,
    const Rings<Tile::kQueryStages, Tile::kGradStages>& rings,
    int first_key,
    int first_row,
    const GradQ& grad_q) {
  using Traits = KernelTraits<Tile>;
  constexpr int kWhole = Keys<T, Tile>::kWhole;
  constexpr bool kHasHalf = Keys<T, Tile>::kHasHalf;
  const Operands<Tile> operands(shared, rings);
  char* ds_tile = shared + Traits::kDsOffset;

  barriers.full_queries[operands.query_stage].wait(rings.query_parity());
  keys.template multiply_transposed<Traits::D>(keys.weights, shared, operands.q);
  barriers.full_grads[operands.grad_stage].wait(rings.grad_parity());
  keys.template multiply_transposed<Traits::V>(keys.ds, shared + Traits::kValuesOffset, operands.grad);
  wgmma_wait<1>();
  wgmma_pin(keys.weights);
  keys.compute_p(score, mask, operands.lse, first_key, first_row);
  wgmma_wait<0>();
  wgmma_pin(keys.ds);
  release(barriers.empty_grads[operands.grad_stage]);
  keys.compute_ds(score, operands.lse, operands.delta);
  keys.accumulate_grad_k(operands.q, ds_tile);
  named_barrier_sync(kConsumersBarrier, Traits::kConsumers * kWarpgroup);  // Now all of dS^T has been written.
  float whole[kWhole * kPanel / 2], half[kPanel / 4];
  keys.multiply_columns(whole, ds_tile, shared, keys.whole_column());
  if constexpr (kHasHalf) keys.multiply_columns(half, ds_tile, shared, keys.half_column());
  wgmma_wait<kHasHalf ? 2 : 1>();
  wgmma_pin(keys.grad_k);
  release(barriers.empty_queries[operands.query_stage]);
  wgmma_wait<0>();
  wgmma_pin(whole);
  if constexpr (kHasHalf) wgmma_pin(half);
  if constexpr (Tile::kFindsSingle) {
    if (is_single<Tile>(mask.keys)) {
      grad_q.store(whole, keys.whole_column());
      if constexpr (kHasHalf) grad_q.store(half, keys.half_column());
      return;
    }
  }
  float* accum = reinterpret_cast<float*>(shared + Traits::kSharesOffset);
  if constexpr (Tile::kAddsRegisters) accum = grad_q.accum();
  if constexpr (Traits::kHasAdder) named_barrier_sync(kShareEmpty + keys.consumer, kWarpgroup + kWarp);
  const bool is_first = Tile::kOrdered && adders_before<Tile>(mask, first_row, first_key) == 0;
  const bool stores = Traits::kStagesShares || is_first;
  keys.add_columns(accum, whole, keys.whole_column(), stores);
  if constexpr (kHasHalf) keys.add_columns(accum, half, keys.half_column(), stores);
  if constexpr (Traits::kStagesShares) fence_async_shared();
  if constexpr (Traits::kHasAdder) named_barrier_arrive(kShareFull + keys.consumer, kWarpgroup + kWarp);
}

// All iterations for the gradient of wide values. P^T of one is computed while the tensor cores accumulate for the one
// before.
template <typename T, typename Tile>
__device__ __forceinline__ void accumulate_values(
    Keys<T, Tile>& keys,
    const Score& score,
    const Mask& mask,
    char* shared,
    Barriers<Tile>& barriers,
    Rings<Tile::kQueryStages, Tile::kGradStages> rings,
    const Iterations& iterations,
    int first_key) {
  auto before = rings;  // Of the iteration before.
  uint32_t weights[Tile::kStepRows / 16][4];
  auto rows = iterations.first();

  // The parts of an iteration.
  const auto wait_for_queries = [&] { barriers.full_queries[rings.query_stage()].wait(rings.query_parity()); };
  const auto multiply = [&] {
    keys.template multiply_transposed<Tile::kDims>(keys.weights, shared, Operands<Tile>(shared, rings).q);
  };
  const auto compute_p = [&] {
    wgmma_pin(keys.weights);
    keys.compute_p(score, mask, Operands<Tile>(shared, rings).lse, first_key, rows.tile * Tile::kRows);
    named_barrier_sync(kWarpgroupBarrier + keys.consumer, kWarpgroup);  // The whole warpgroup has read the LSEs.
    release(barriers.empty_queries[rings.query_stage()]);
    rings.advance();
    iterations.advance(rows);
  };
  const auto accumulate = [&] {
    barriers.full_grads[before.grad_stage()].wait(before.grad_parity());
    keys.accumulate(keys.grad_v, weights, Operands<Tile>(shared, before).grad);
  };
  const auto wait_for_grad_v = [&] {
    wgmma_wait<0>();
    wgmma_pin(keys.grad_v);
    release(barriers.empty_grads[before.grad_stage()]);
    before.advance();
  };

  wait_for_queries();
  multiply();
  wgmma_wait<0>();
  compute_p();
  round_to<T>(weights, keys.weights);
  if (iterations.count > 1) wait_for_queries();
#pragma unroll 1
  for (int step = 1; step < iterations.count; ++step) {
    multiply();
    accumulate();
    wgmma_wait<1>();
    compute_p();
    if (step + 1 < iterations.count) wait_for_queries();  // The compiler moves no exponential past a branch.
    wait_for_grad_v();
    round_to<T>(weights, keys.weights);
  }
  accumulate();
  wait_for_grad_v();
}

// The epilogue: the gradients of keys and values.
template <typename T, typename Tile, typename Sequences>
__device__ __forceinline__ void store_gradients(
    const typename Sequences::Backward& p,
    const typename Sequences::Tensors& tensors,
    char* shared,
    Keys<T, Tile>& keys,
    const KeyTile<typename Sequences::Sequence>& key_tile) {
  using Traits = KernelTraits<Tile>;
  if (p.group_splits > 1) {
    const int64_t tile = Sequences::key_tile_index(p, key_tile.sequence, key_tile.head, key_tile.tile, Traits::kKeys);
    float* sums = split_sums<Traits>(p, tile, key_tile.split);
    if constexpr (Traits::kHasGradK) keys.store_sums(sums, keys.grad_k);
    if constexpr (Traits::kHasGradV) keys.store_sums(sums + Traits::kKeys * Traits::D, keys.grad_v);
    return;
  }
  // The gradient of values alone takes the place of the keys.
  char* values = shared + (Traits::kHasGradK ? Traits::kValuesOffset : 0);
  if constexpr (Traits::kHasGradK) keys.store(shared, keys.grad_k, p.score.scale, tensors.grad_k, key_tile);
  if constexpr (Traits::kHasGradV) keys.store(values, keys.grad_v, 1, tensors.grad_v, key_tile);
  if (threadIdx.x % kWarpgroup == 0) tma_store_wait_read<0>();  // Shared memory must outlive the store.
}

template <typename T, typename Tile, typename Sequences, typename Works>
__device__ void consume(
    const typename Sequences::Backward& p,
    const typename Sequences::Tensors& tensors,
    char* shared,
    Barriers<Tile>& barriers,
    Works& works,
    const BlockWork<Sequences>& work) {
  using Traits = KernelTraits<Tile>;
  const auto& iterations = work.iterations;
  const auto& key_tile = work.key_tile;
  Keys<T, Tile> keys;
  const auto& mask = Sequences::mask(p, key_tile.sequence);
  const int first_key = key_tile.tile * Traits::kKeys + keys.consumer * kWgmmaRows;
  keys.clear();
  if (iterations.count > 0) {
    Rings<Tile::kQueryStages, Tile::kGradStages> rings(Tile::kDraws ? work.steps : 0);
    barriers.full_keys.wait(work.loaded % 2);
    if constexpr (Tile::kGradients == Gradients::kOfValues) {
      accumulate_values(keys, p.score, mask, shared, barriers, rings, iterations, first_key);
    } else {
      barriers.full_values.wait(work.loaded % 2);
      auto rows = iterations.first();
#pragma unroll 1
      for (int step = 0; step < iterations.count; ++step, iterations.advance(rows)) {
        const int first_row = rows.tile * Traits::kRows;
        if constexpr (Tile::kGradients == Gradients::kAll) {
          const DsTile<Tile> ds_tile(shared, keys.consumer, step, work.loaded + step > 0);
          iterate(keys, p.score, mask, shared, barriers, rings, ds_tile, first_key, first_row);
        } else {
          const WideGradQ<T, Tile, Sequences> grad_q{p, key_tile, rows};
          iterate_of_keys(keys, p.score, mask, shared, barriers, rings, first_key, first_row, grad_q);
          rings.advance();
        }
      }
    }
    named_barrier_sync(kConsumersBarrier, Traits::kConsumers * kWarpgroup);  // No consumer reads the keys any more.
  } else {
    works.wait_until_stored(work, keys.consumer);
  }
  works.say_read();
  store_gradients<T, Tile, Sequences>(p, tensors, shared, keys, key_tile);
  works.say_stored();
}

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

// Where sequences differ in length, producers have too few registers for a block's work, and so have consumers of large
// tiles or wide heads: they read it from shared memory wherever they need it.
template <typename Tile>
constexpr bool kConsumersRead =
    Tile::kAddsRegisters || Tile::kStepRows > 64 || (Tile::kDraws && Tile::kRows > Tile::kStepRows);

// The only work of a block, which producers may read from elsewhere than consumers.
template <typename Tile, typename Sequences>
struct OneWork {
  const BlockWork<Sequences>&producers, &consumers;
  Barriers<Tile>& barriers;

  template <int kThreads, typename Visitor>
  __device__ __forceinline__ void visit(const typename Sequences::Backward&, const Visitor& visitor) {
    visitor(kThreads == kWarpgroup ? consumers : producers, Tile(), barriers);
  }
  __device__ void schedule(const typename Sequences::Backward&) {}
  __device__ void wait_until_stored(const BlockWork<Sequences>&, int) const {}
  __device__ void say_read() const {}
  __device__ void say_stored() const {}
};

// The barriers of a block that draws: of wide heads a set for each kind of work, since their rings differ.
template <typename Tile, int kBlocks = kBlocksOfTile<Tile>>
struct DrawnBarriers {
  Barriers<Tile> barriers;

  __device__ void init() { barriers.init(); }
  __device__ Barriers<Tile>& of(Tile) { return barriers; }
};

template <typename Tile>
struct DrawnBarriers<Tile, 2> {
  using OfKeys = typename Tile::OfKeys;
  using OfValues = typename Tile::OfValues;
  static_assert(
      !KernelTraits<OfKeys>::kStagesShares || KernelTraits<OfValues>::kEnd <= KernelTraits<OfKeys>::kSharesOffset,
      "shares of grad_q may still be read when the next tile is loaded");
  Barriers<OfKeys> of_keys;
  Barriers<OfValues> of_values;

  __device__ void init() {
    of_keys.init();
    of_values.init();
  }
  __device__ Barriers<OfKeys>& of(OfKeys) { return of_keys; }
  __device__ Barriers<OfValues>& of(OfValues) { return of_values; }
};

// What a block computes one after the other, in shared memory: a thread of the producer warpgroup draws the next tile
// of keys while consumers write the gradients of the one before. So it costs no time that a block has to begin, and
// that the reads which say where its tile is wait for each other. It draws no sooner: blocks of higher keys that begin
// before this one would wait for it. A tile of wide heads is drawn twice, for grad_k and for grad_v.
//
// A tile of keys is replaced once the gradients of keys and values, which leave by way of it, are out of shared memory.
// Blocks of an OrderedTile still wait for lower tiles only: these have been drawn before, and a block computes what it
// has drawn in ascending order.
template <typename Tile, typename Sequences>
struct DrawnWork {
  using Work = BlockWork<Sequences>;
  static constexpr unsigned int kStages = 2;
  Work works[kStages];
  // Of the works before, by their kinds: see BlockWork.
  struct Before {
    int loaded, steps;
  } before[kBlocksOfTile<Tile>];
  DrawnBarriers<Tile> barriers;
  MBarrier full[kStages], empty[kStages];
  // No consumer reads what was loaded any more; and the gradients that take its place have been stored.
  MBarrier read, stored;

  // By one thread.
  __device__ void init() {
    barriers.init();
    for (Before& kind : before) kind = {0, 0};
    for (unsigned int stage = 0; stage < kStages; ++stage) {
      full[stage].init(1);
      empty[stage].init(1 + KernelTraits<Tile>::kHasAdder + Tile::kConsumers);  // The producer; the warp that adds.
    }
    read.init(Tile::kConsumers);
    stored.init(1 + Tile::kConsumers);
    fence_mbarrier_init();
  }

  // Calls visitor(work, tile, barriers) for the block's works one after the other. For kThreads neighbouring threads:
  // the one that loads, the warp that adds, or a consumer.
  template <int kThreads, typename Visitor>
  __device__ __forceinline__ void visit(const typename Sequences::Backward& p, const Visitor& visitor) {
    for (unsigned int number = 0;; ++number) {
      full[number % kStages].wait(number / kStages % 2);
      const Work& work = works[number % kStages];
      if (work.key_tile.tile < 0) return;
      if (kThreads == 1) {
        stored.wait((number + 1) % 2);
        stored.arrive();  // Consumers could be a phase ahead otherwise, where they have no iterations.
      }
      visit_block<Tile>(block_of<kThreads>(work), [&](auto tile) {
        if constexpr (kThreads == kWarpgroup && !kConsumersRead<Tile>) {
          visitor(work.template in_registers<Tile>(p), tile, barriers.of(tile));
        } else {
          visitor(work, tile, barriers.of(tile));
        }
      });
      number = work.number;  // Read again, so that it needs no register before.
      // All threads have read it.
      if (kThreads == kWarp) __syncwarp();
      if (kThreads == kWarpgroup) named_barrier_sync(kWarpgroupBarrier + threadIdx.x / kWarpgroup - 1, kWarpgroup);
      if (threadIdx.x % kThreads == 0) empty[number % kStages].arrive();
    }
  }

  // For one thread. next_key_tile(): the next tile, or -1 in place of its number after the last.
  template <typename NextKeyTile>
  __device__ __forceinline__ void schedule(const typename Sequences::Backward& p, const NextKeyTile& next_key_tile) {
    for (unsigned int number = 0;; ++number) {
      read.wait((number + 1) % 2);
      empty[number % kStages].wait((number / kStages + 1) % 2);
      Work& work = works[number % kStages];
      work.key_tile = next_key_tile();
      const bool is_valid = work.key_tile.tile >= 0;
      if (is_valid) {
        Before& kind = before[work.key_tile.block];
        work.template find_iterations<Tile>(p);
        work.number = number;
        work.loaded = kind.loaded;
        work.steps = kind.steps;
        kind.loaded += work.iterations.count > 0;
        kind.steps += work.iterations.count * KernelTraits<Tile>::kSteps;
      }
      full[number % kStages].arrive();
      if (!is_valid) return;
    }
  }

  // For consumers. Where there were no iterations: what was stored last has left shared memory, and all threads know,
  // before the next phase can end.
  __device__ void wait_until_stored(const Work& work, int consumer) {
    stored.wait((work.number + 1) % 2);
    named_barrier_sync(kWarpgroupBarrier + consumer, kWarpgroup);
  }
  __device__ void say_read() { release(read); }
  __device__ void say_stored() { release(stored); }

 private:
  template <int kThreads>
  __device__ static int block_of(const Work& work) {
    if (kBlocksOfTile<Tile> == 1) return 0;
    return kThreads == 1 ? work.key_tile.block : same_in_warp(work.key_tile.block);
  }
};

// What the warps of a block do, by their roles.
template <typename T, typename Tile, typename Sequences, typename Works, typename... NextKeyTile>
__device__ __forceinline__ void run_warps(
    const typename Sequences::Backward& p,
    const typename Sequences::Tensors& tensors,
    char* shared,
    Works& works,
    const NextKeyTile&... next_key_tile) {
  using Traits = KernelTraits<Tile>;
  if (threadIdx.x < kWarpgroup) {
    give_registers<Tile::Registers::kProducer>();
    if (threadIdx.x == 0) {
      works.template visit<1>(p, [&](const auto& work, auto tile, auto& barriers) {
        produce<decltype(tile), Sequences>(p, tensors, shared, barriers, work);
      });
    } else if (Traits::kHasAdder && threadIdx.x / kWarp == 1) {
      if constexpr (Traits::kStagesShares) let_consumers_share<Tile>();
      works.template visit<kWarp>(p, [&](const auto& work, auto tile, auto&) {
        add_grad_q<decltype(tile), Sequences>(p, tensors, shared, work.iterations, work.key_tile);
      });
    } else if (Tile::kDraws && threadIdx.x == 2 * kWarp) {
      works.schedule(p, next_key_tile...);
    }
  } else {
    take_registers<Tile::Registers::kConsumer>();
    works.template visit<kWarpgroup>(p, [&](const auto& work, auto tile, auto& barriers) {
      consume<T, decltype(tile), Sequences>(p, tensors, shared, barriers, works, work);
    });
  }
}

// The block's dynamic shared memory, aligned.
__device__ inline char* aligned_shared() {
  extern __shared__ char unaligned[];
  return unaligned + (kSwizzleAlignment - shared_address(unaligned) % kSwizzleAlignment) % kSwizzleAlignment;
}

// A block of the kernel, for this tile of keys.
template <typename T, typename Tile, typename Sequences>
__device__ void backward_block(
    const typename Sequences::Backward& p,
    const typename Sequences::Tensors& tensors,
    const KeyTile<typename Sequences::Sequence>& key_tile) {
  __shared__ Barriers<Tile> barriers;
  char* shared = aligned_shared();
  if (threadIdx.x == 0) {
    barriers.init();
    fence_mbarrier_init();
  }
  using Work = BlockWork<Sequences>;
  Work work{key_tile};
  work.template find_iterations<Tile>(p);
  // Registers are short where wide heads add in a fixed order, too.
  if constexpr (Sequences::kRagged || (Tile::kOrdered && Tile::kGradients != Gradients::kAll)) {
    __shared__ Work kept;
    if (threadIdx.x == 0) kept = work;
    __syncthreads();
    OneWork<Tile, Sequences> works{kept, kConsumersRead<Tile> ? kept : work, barriers};
    run_warps<T, Tile, Sequences>(p, tensors, shared, works);
  } else {
    __syncthreads();
    OneWork<Tile, Sequences> works{work, work, barriers};
    run_warps<T, Tile, Sequences>(p, tensors, shared, works);
  }
}

// A block for all tiles of keys that it draws: see DrawnWork.
template <typename T, typename Tile, typename Sequences, typename NextKeyTile>
__device__ void backward_block_of_drawn_tiles(
    const typename Sequences::Backward& p,
    const typename Sequences::Tensors& tensors,
    const NextKeyTile& next_key_tile) {
  __shared__ DrawnWork<Tile, Sequences> works;
  if (threadIdx.x == 0) works.init();
  __syncthreads();
  run_warps<T, Tile, Sequences>(p, tensors, aligned_shared(), works, next_key_tile);
}

// One of the blocks for this tile of keys.
template <typename T, typename Tile, typename Sequences>
__device__ void backward_block_of_tile(
    const typename Sequences::Backward& p,
    const typename Sequences::Tensors& tensors,
    const KeyTile<typename Sequences::Sequence>& key_tile) {
  visit_block<Tile>(
      key_tile.block, [&](auto tile) { backward_block<T, decltype(tile), Sequences>(p, tensors, key_tile); });
}

// The index of the block's tile in the scheduler's order. What comes after may read what prepare_rows has written.
template <typename Tile, typename Backward>
__device__ int tile_of_block(const Backward& p) {
  wait_for_kernel_before();
  let_next_kernel_start();
  if constexpr (Tile::kOrdered) {
    return blocks_before(p.progress);
  } else {
    return blockIdx.x;
  }
}

constexpr int kPrepareThreads = 128, kPrepareSteps = 2;
template <typename Tile>
constexpr int kDeltaLanes = Tile::kValueDims > 64 ? 16 : 8;  // Threads of a row: 16 bytes each, up to 128 dimensions.
template <typename Tile>
constexpr int kPrepareRows = kPrepareSteps * kPrepareThreads / kDeltaLanes<Tile>;  // Rows of a block.

// Zeros the block's part of a tile's grad_q, for blocks to add to.
template <typename Tile>
__device__ void clear_grad_q(float* accum, int64_t tile, int part) {
  constexpr int kElements = kPrepareRows<Tile> * Tile::kDims;
  float4* target = reinterpret_cast<float4*>(accum + tile * Tile::kRows * Tile::kDims + part * kElements);
#pragma unroll
  for (int i = 0; i < kElements / 4 / kPrepareThreads; ++i) target[i * kPrepareThreads + threadIdx.x] = {0, 0, 0, 0};
}

// Writes the row statistics: for each step's queries the LSEs, then the deltas of its rows. Rows past the last get an
// LSE of infinity, so that their weights are 0. Also zeros what the accumulator of grad_q needs: its values or, of an
// ordered backward, the progress.
template <typename T, typename Tile, typename Sequences>
__device__ void prepare_rows(const typename Sequences::Backward& p, int block) {
  let_next_kernel_start();
  constexpr int kLength = kVectorLength<T>, kLanes = kDeltaLanes<Tile>, kBlockRows = kPrepareRows<Tile>;
  constexpr int kRows = KernelTraits<Tile>::kRows, kBlocks = kRows / kBlockRows;
  static_assert(kRows % kBlockRows == 0, "a block's rows are of one tile");
  const int64_t tile = block / kBlocks;
  const int part = block % kBlocks;
  const auto rows = Sequences::template padded_tile<kRows>(p, tile);
  if (Tile::kOrdered && block == 0 && threadIdx.x == 0) p.progress[0] = 0;
  // Also where no rows are expected: sequences whose ends do not ascend may have a tile there all the same.
  if constexpr (Tile::kOrdered) {
    if (part == 0 && threadIdx.x == 0) *Turn::of(p.progress, tile, 0).added = 0;
  }
  if (rows.count <= 0) return;
  if constexpr (!Tile::kOrdered && !Tile::kSingle) {
    if (rows.keys > 0 && !is_single<Tile>(rows.keys)) clear_grad_q<Tile>(p.grad_q_accum, tile, part);
  }
  const int lane = threadIdx.x % kLanes;
  const auto row_of = [&](int step) { return part * kBlockRows + (step * kPrepareThreads + threadIdx.x) / kLanes; };
  float sums[kPrepareSteps] = {};
#pragma unroll
  for (int step = 0; step < kPrepareSteps; ++step) {
    if (row_of(step) >= rows.count) continue;
    const auto vector_of = [&](const View& view, int access) {
      const int64_t offset = rows.offset(view) + int64_t(row_of(step)) * view.row;
      return load<kLength>(static_cast<const T*>(view.data) + offset, access);
    };
#pragma unroll
    for (int access = lane; access < Tile::kValueDims / kLength; access += kLanes) {
      if (access * kLength >= p.v.dims) break;
      const auto out = vector_of(p.out, access), grad = vector_of(p.grad, access);
#pragma unroll
      for (int i = 0; i < kLength; ++i) sums[step] += static_cast<float>(out[i]) * static_cast<float>(grad[i]);
    }
  }
#pragma unroll
  for (int step = 0; step < kPrepareSteps; ++step) {
#pragma unroll
    for (int distance = kLanes / 2; distance > 0; distance /= 2) {
      sums[step] += __shfl_xor_sync(0xffffffff, sums[step], distance);
    }
    if (lane != 0) continue;
    const int row = row_of(step);
    const bool has_query = row < rows.count;
    constexpr int kStepRows = KernelTraits<Tile>::kStepRows;
    float* stats = p.delta + 2 * (tile * kRows + row / kStepRows * kStepRows) + row % kStepRows;
    stats[0] = has_query ? p.lse[rows.number(p) + row] : INFINITY;
    stats[kStepRows] = sums[step] - (has_query && p.grad_lse ? p.grad_lse[rows.number(p) + row] : 0);
  }
}

// Adds up `count` tiles of kTileRows rows and kDims dimensions in float32, each `step` elements after the one before,
// scales and rounds the sums, and brings them from the order of store_grad_q to that of the tensor.
template <typename T, typename Tile, int kTileRows, int kDims, typename Rows>
__device__ void convert_sums(
    const float* sums, int count, int64_t step, float scale, const View& view, const Rows& rows, int dim, char* tile) {
  constexpr int kConsumers = KernelTraits<Tile>::kConsumers, kThreads = kConsumers * kWarpgroup;
  // A warpgroup converts 64 rows of so many columns at a time.
  constexpr int kColumns = kDims % kPanel == 0 ? kPanel : kDims, kColumnParts = kDims / kColumns;
  constexpr int kParts = kTileRows / kWgmmaRows * kColumnParts, kChunks = kDims * 2 / kSwizzleChunk;
#pragma unroll
  for (int part = threadIdx.x / kWarpgroup; part < kParts; part += kConsumers) {
    float acc[kColumns / 2] = {};
    for (int i = 0; i < count; ++i) {
      const float4* source = reinterpret_cast<const float4*>(sums + i * step + part * kWgmmaRows * kColumns);
#pragma unroll
      for (int n = 0; n < kColumns / 8; ++n) {
        const float4 values = source[n * kWarpgroup + threadIdx.x % kWarpgroup];
        acc[4 * n] += values.x;
        acc[4 * n + 1] += values.y;
        acc[4 * n + 2] += values.z;
        acc[4 * n + 3] += values.w;
      }
    }
#pragma unroll
    for (int i = 0; i < kColumns / 2; ++i) acc[i] *= scale;
    uint32_t rounded[kColumns / 16][4];
    round_to<T>(rounded, acc);
    const int column_part = part % kColumnParts, row = part / kColumnParts * kWgmmaRows;
    store_rows<T, kTileRows>(tile + column_part * kPanelBytes<kTileRows>, row, rounded);
  }
  __syncthreads();
  T* target = static_cast<T*>(view.data) + rows.offset(view);
  const int chunk = threadIdx.x % kChunks;
#pragma unroll
  for (int row = threadIdx.x / kChunks; row < kTileRows; row += kThreads / kChunks) {
    if (threadIdx.x >= kThreads / kChunks * kChunks) break;  // Heads of 192 leave some threads over.
    if (row < rows.count && chunk * 8 < dim) {
      const char* source_chunk = tile + chunk / 8 * kPanelBytes<kTileRows> + swizzled(row, chunk % 8);
      *reinterpret_cast<uint4*>(target + int64_t(row) * view.row + chunk * 8) =
          *reinterpret_cast<const uint4*>(source_chunk);
    }
  }
}

// A tile in shared memory, for convert_sums.
template <typename Tile>
struct ConvertedTile {
  static constexpr int kTileRows = std::max(KernelTraits<Tile>::kRows, KernelTraits<Tile>::kSumRows);
  alignas(kSwizzleAlignment) char data[kTileBytes<kTileRows, Tile::kDims>];
};

// Writes a tile of grad_q: the one with this index in the accumulator.
template <typename T, typename Tile, typename Backward, typename Rows>
__device__ void convert_queries(const Backward& p, int64_t index, const Rows& rows, ConvertedTile<Tile>& converted) {
  constexpr int kRows = KernelTraits<Tile>::kRows, D = KernelTraits<Tile>::D;
  // Nothing was stored for queries that attend to no key.
  const bool has_keys = Tile::kOrdered ? *Turn::of(p.progress, index, 0).added > 0 : rows.keys > 0;
  const float* sums = p.grad_q_accum + index * kRows * D;
  convert_sums<T, Tile, kRows, D>(sums, has_keys, 0, p.score.scale, p.grad_q, rows, p.dim, converted.data);
}

// Writes kSumRows rows of grad_k or grad_v from splits: part `part` of all.
template <typename T, typename Tile, typename Sequences>
__device__ void convert_split(const typename Sequences::Backward& p, int64_t part, ConvertedTile<Tile>& converted) {
  using Traits = KernelTraits<Tile>;
  constexpr int kKeys = Traits::kKeys, D = Traits::D, V = Traits::V;
  constexpr int kSumRows = Traits::kSumRows, kSteps = kKeys / kSumRows, kStep = kKeys * (D + V);
  const int64_t index = part / 2, key_tile = index / kSteps;
  const bool is_v = part % 2;
  const int first = index % kSteps;
  auto rows = Sequences::template padded_key_tile<kKeys>(p, key_tile);
  rows.first += first * kSumRows;
  rows.count -= first * kSumRows;
  if (rows.count <= 0) return;  // Nothing was left there.
  const float* tile_sums = split_sums<Traits>(p, key_tile, 0);
  const int splits = p.group_splits;
  const float scale = p.score.scale;
  if (is_v) {
    const float* sums = tile_sums + kKeys * D + first * kSumRows * V;
    convert_sums<T, Tile, kSumRows, V>(sums, splits, kStep, 1, p.grad_v, rows, p.v.dims, converted.data);
  } else {
    const float* sums = tile_sums + first * kSumRows * D;
    convert_sums<T, Tile, kSumRows, D>(sums, splits, kStep, scale, p.grad_k, rows, p.dim, converted.data);
  }
}

// A block writes a tile of grad_q or, after the blocks for the `query_tiles` of these, a part of grad_k or grad_v from
// splits.
template <typename T, typename Tile, typename Sequences>
__device__ void convert_tile(const typename Sequences::Backward& p, int64_t query_tiles) {
  __shared__ ConvertedTile<Tile> converted;
  wait_for_kernel_before();
  if (blockIdx.x >= query_tiles) {
    convert_split<T, Tile, Sequences>(p, blockIdx.x - query_tiles, converted);
  } else if constexpr (!Tile::kSingle) {
    const auto rows = Sequences::template padded_tile<KernelTraits<Tile>::kRows>(p, blockIdx.x);
    if (rows.count > 0) convert_queries<T, Tile>(p, blockIdx.x, rows, converted);
  }
}

}  // namespace bwd
}  // namespace attention::sm90
