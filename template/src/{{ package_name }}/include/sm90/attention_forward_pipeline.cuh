// The forward with TMA and wgmma, after Shah et al., FlashAttention-3 (2024).
//
// Blocks are persistent. For each tile of queries, a block iterates over the tiles of keys that these attend to, from
// the last to the first. Its producer warpgroup issues the TMA loads of queries, keys and values, and runs ahead into
// the next tile. Each consumer warpgroup has 64 queries:
//
//   score           S = q k^T (wgmma), issued one iteration ahead of the accumulate that uses it, also across tiles
//   mask            in the iterations that the mask cuts, after the transformation of score.h
//   online_softmax  S to P; the row max, or all of it, while the tensor cores accumulate for the iteration before
//   accumulate      accumulator += P v, with P from registers
//   epilogue        the accumulator over the row sum, and the LSE; here the sink joins (sink.cuh)
//
// With ping-pong, consumers issue their GEMMs one after the other: one's softmax runs during the other's GEMMs.
//
// A packed tile (Tile::kPacked) has rows of several heads that share keys, query by query, and the keys that these
// attend to may be split: each split is a work item of its own, and writes its output and softmax for a kernel that
// combines them.
//
// An op says by the class Sequences what its tiles are of:
//
//   Forward           the problem, a kernel's parameter
//   Tensors           q, k, v and out, as TMA copies them: coordinates(rows, head, row, column) is where a box is
//   Sequence          which sequence a work item is of; queries() and keys() are what `coordinates` takes for its rows
//   kRagged           whether sequences differ in length: then a warp produces, which searches for a tile's sequence,
//                     a block may find no tile at all, and a consumer has no registers for two work items
//   next_work         the work item with this index or, if that has no rows, a later one
//   mask, row_number  the mask of a sequence, and the number of a row in lse
//   without_split     the sequence of a work item that may be a split of its keys
//   output_row        of tiles with kStoresRegisters alone: where a row of the output is
//   KeyPlace          what has to be read to know where a tile of keys is: place_of reads it, one tile ahead
//   load_keys         loads a tile of keys or of values

#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "attention_forward_rows.cuh"
#include "attention_forward_work.cuh"
#include "dependent_launch.cuh"

namespace attention::sm90 {
namespace fwd {

template <typename Tile, typename Sequences>
struct Barriers {
  using Work = WorkTile<typename Sequences::Sequence>;
  static constexpr int kStages = Tile::kStages, kQueryStages = KernelTraits<Tile>::kQueryStages;
  MBarrier full_queries[kQueryStages], empty_queries[kQueryStages];
  MBarrier full_keys[kStages], empty_keys[kStages], full_values[kStages], empty_values[kStages];
  Work work[kQueryStages];  // Valid as long as the stage of queries is full.
  Work ahead;               // Of a warp that produces: its next one.

  __device__ void init(int consumers) {
    for (int stage = 0; stage < kQueryStages; ++stage) {
      full_queries[stage].init(1);
      empty_queries[stage].init(consumers);
    }
    for (int stage = 0; stage < kStages; ++stage) {
      full_keys[stage].init(1);
      full_values[stage].init(1);
      empty_keys[stage].init(consumers);
      empty_values[stage].init(consumers);
    }
    fence_mbarrier_init();
  }
};

// Named barriers, after those of Rows: one that lets each consumer issue its GEMMs (ping-pong).
constexpr int kIssueBarrier = kOutBarrier + 3;

// The threads that produce. The first leads.
template <typename Sequences>
constexpr int kProducers = Sequences::kRagged ? 32 : 1;

// For these threads of the producer warpgroup. Only the first waits for barriers: another one that came late would miss
// a phase.
template <typename Tile, typename Sequences>
__device__ void produce(
    const typename Sequences::Forward& p,
    const typename Sequences::Tensors& tensors,
    char* shared,
    Barriers<Tile, Sequences>& barriers,
    const TileScheduler& scheduler,
    const Packing& packing) {
  using Traits = KernelTraits<Tile>;
  using Work = WorkTile<typename Sequences::Sequence>;
  constexpr int kKeys = Traits::kKeys, D = Traits::D;
  const bool leads = kProducers<Sequences> == 1 || threadIdx.x == 0;
  // What WorkTile::head counts, for each head of keys.
  const int group = Traits::kPacked ? p.heads / p.kv_heads / packing.heads.value() : p.heads / p.kv_heads;
  struct Ring {
    const typename Sequences::KeyTensor& tensor;
    char* tiles;
    MBarrier *full, *empty;
    RingPosition<Traits::kStages> position = {};
  };
  Ring keys = {tensors.k, shared + Traits::kKeysOffset, barriers.full_keys, barriers.empty_keys};
  Ring values = {tensors.v, shared + Traits::kValuesOffset, barriers.full_values, barriers.empty_values};
  RingPosition<Traits::kQueryStages> queries;
  struct KeyTile {
    typename Sequences::Sequence sequence;
    int head, first;
    typename Sequences::KeyPlace place;
  };
  const auto load = [&](Ring& ring, const KeyTile& keys, auto dims) {
    constexpr int kDims = decltype(dims)::value, kBytes = kTileBytes<kKeys, kDims>;
    const int stage = ring.position.stage();
    if (leads) {
      ring.empty[stage].wait(ring.position.parity() ^ 1);
      ring.full[stage].arrive_expecting(kBytes);
    }
    char* tile = ring.tiles + stage * kBytes;
    Sequences::template load_keys<kKeys, kDims>(
        tile, ring.tensor, keys.sequence, keys.head, keys.first, keys.place, ring.full[stage]);
    ring.position.advance();
  };
  const auto load_keys = [&](const KeyTile& tile) { load(keys, tile, std::integral_constant<int, D>()); };
  const auto load_values = [&](const KeyTile& tile) { load(values, tile, std::integral_constant<int, Traits::V>()); };
  KeyTile before;
  int index = blockIdx.x;
  const auto find_work = [&] { return Sequences::template next_work<Traits>(p, scheduler, packing, index); };
  const auto advance = [&] { index = next_index<kProducers<Sequences>>(scheduler, index); };
  // A search takes a while: it begins where a tile has three iterations left, while consumers have work.
  constexpr bool kLooksAhead = kProducers<Sequences> > 1;
  const auto look_ahead = [&] {
    advance();
    const Work work = find_work();
    __syncwarp();  // Every lane has read the last one.
    if (leads) barriers.ahead = work;
    __syncwarp();
  };
  bool first = true;
  for (;; queries.advance()) {
    MBarrier& full_queries = barriers.full_queries[queries.stage()];
    const Work work = kLooksAhead && !first ? barriers.ahead.broadcast() : find_work();
    if (leads) barriers.empty_queries[queries.stage()].wait(queries.parity() ^ 1);
    if (leads) barriers.work[queries.stage()] = work;
    if (!work.is_valid()) {
      if (leads) full_queries.arrive();
      break;
    }
    const auto sequence = Sequences::template without_split<Traits>(p, work.sequence);
    char* query_tile = shared + queries.stage() * Traits::kQueriesBytes;
    if constexpr (Traits::kPacked) {
      full_queries.arrive_expecting(packing.tile_rows() * D * int(sizeof(uint16_t)));
      const int query = packing.heads.divide(work.first_row);
      load_packed_panels<Traits::kRows, D>(query_tile, tensors.q, sequence.queries(), work.head, query, full_queries);
    } else if (leads) {
      full_queries.arrive_expecting(Traits::kQueriesBytes);
      load_panels<Traits::kRows, D>(query_tile, tensors.q, sequence.queries(), work.head, work.first_row, full_queries);
    }
    KeyTile tile = {sequence, work.head / group, work.last_key};
    auto next_place = Sequences::place_of(p, sequence, tile.first, tensors.k);
    for (; tile.first >= work.first_key; tile.first -= kKeys, first = false) {
      tile.place = next_place;
      next_place = Sequences::place_of(p, sequence, tile.first - kKeys, tensors.k);
      load_keys(tile);
      // Values are loaded one iteration after their keys, in the order of use.
      if (!first) load_values(before);
      before = tile;
      if (kLooksAhead && tile.first == min(work.last_key, work.first_key + 2 * kKeys)) look_ahead();
    }
    if (!kLooksAhead) advance();
  }
  if (!Sequences::kRagged || !first) load_values(before);
}

template <typename T, typename Tile, bool kOptions, typename Sequences>
__device__ void consume(
    const typename Sequences::Forward& p,
    const typename Sequences::Tensors& tensors,
    char* shared,
    Barriers<Tile, Sequences>& barriers,
    const Packing& packing) {
  using Traits = KernelTraits<Tile>;
  using Work = WorkTile<typename Sequences::Sequence>;
  constexpr int kConsumers = Traits::kConsumers;
  constexpr bool kPingPong = Tile::kPingPong && kConsumers > 1;
  Rows<T, Tile, kOptions, Sequences> rows(packing);
  const int consumer = rows.consumer, next_consumer = consumer + 1 < kConsumers ? consumer + 1 : 0;
  const char *all_keys = shared + Traits::kKeysOffset, *all_values = shared + Traits::kValuesOffset;
  char* const out = shared + Traits::kOutOffset + consumer * Traits::kOutBytes;
  RingPosition<Traits::kStages> keys, values;
  RingPosition<Traits::kQueryStages> queries;

  // The parts of an iteration.
  const auto wait_to_issue = [&] {
    if (kPingPong) named_barrier_sync(kIssueBarrier + consumer, 2 * kWarpgroup);
  };
  const auto let_next_issue = [&] {
    if (kPingPong) named_barrier_arrive(kIssueBarrier + next_consumer, 2 * kWarpgroup);
  };
  const auto read_work = [&] { return barriers.work[queries.stage()].broadcast(); };
  const auto wait_for_work = [&] {
    barriers.full_queries[queries.stage()].wait(queries.parity());
    return read_work();
  };
  const auto wait_for_keys = [&] { barriers.full_keys[keys.stage()].wait(keys.parity()); };
  const auto score = [&] {
    const int query_stage = same_in_warp(queries.stage()), stage = same_in_warp(keys.stage());
    rows.score(shared + query_stage * Traits::kQueriesBytes, all_keys + stage * Traits::kKeyStageBytes);
  };
  const auto accumulate = [&] {
    barriers.full_values[values.stage()].wait(values.parity());
    rows.accumulate(all_values + same_in_warp(values.stage()) * Traits::kValueStageBytes);
  };
  const auto wait_for_scores = [&](auto pending) {
    wgmma_wait<decltype(pending)::value>();
    wgmma_pin(rows.scores);
    release(barriers.empty_keys[keys.stage()]);
    keys.advance();
  };
  const auto wait_for_accumulator = [&] {
    wgmma_wait<0>();
    wgmma_pin(rows.out);
    release(barriers.empty_values[values.stage()]);
    values.advance();
  };
  const auto write = [&](const auto& factors, const Work& work) {
    if constexpr (Tile::kStoresRegisters) {
      rows.register_epilogue(p, factors, work);
    } else {
      rows.accumulator_epilogue(factors, tensors.out, out, work);
    }
  };
  // GEMMs that may still be in flight when wait_for_scores returns.
  constexpr std::integral_constant<int, 0> kNone;
  constexpr std::integral_constant<int, 1> kAccumulate;

  const auto begin_ping_pong = [&] {
    if (kPingPong && next_consumer == 0) let_next_issue();  // The first consumer begins.
  };
  if (!Sequences::kRagged) begin_ping_pong();
  Work work = wait_for_work();
  if (Sequences::kRagged) {
    if (!work.is_valid()) return;
    begin_ping_pong();
  }
  wait_for_keys();
  score();
  wait_for_scores(kNone);
  rows.begin_softmax(p, work);
  rows.softmax(p, work, work.last_key);
  while (true) {
    rows.clear_accumulator();
    round_to<T>(rows.weights, rows.scores);
    if (work.last_key > work.first_key) wait_for_keys();
#pragma unroll 1
    for (int key = work.last_key - Traits::kKeys; key >= work.first_key; key -= Traits::kKeys) {
      wait_to_issue();
      score();
      accumulate();
      let_next_issue();
      wait_for_scores(kAccumulate);
      const auto wait_for_next = [&] {
        if (key > work.first_key) wait_for_keys();
        wait_for_accumulator();
      };
      if constexpr (Rows<T, Tile, kOptions, Sequences>::kWaitsFirst) {
        rows.softmax(p, work, key, wait_for_next);
      } else {
        rows.softmax(p, work, key);
        wait_for_next();
      }
      round_to<T>(rows.weights, rows.scores);
      rows.rescale();
    }
    release(barriers.empty_queries[queries.stage()]);
    queries.advance();
    const Work next = wait_for_work();
    if (!next.is_valid()) break;
    // This tile's last accumulate, together with the next tile's first score.
    wait_for_keys();
    wait_to_issue();
    score();
    accumulate();
    let_next_issue();
    const auto factors = rows.softmax_epilogue(p, work);
    wait_for_scores(kAccumulate);
    rows.begin_softmax(p, next);
    rows.softmax(p, next, next.last_key);
    wait_for_accumulator();
    write(factors, work);
    work = Sequences::kRagged ? read_work() : next;
    // All warps must have read it before one releases its stage.
    if (Sequences::kRagged) named_barrier_sync(kOutBarrier + consumer, kWarpgroup);
  }
  wait_to_issue();
  accumulate();
  let_next_issue();
  const auto factors = rows.softmax_epilogue(p, work);
  wait_for_accumulator();
  write(factors, work);
  // Shared memory must outlive the store.
  if (!Tile::kStoresRegisters && threadIdx.x % kWarpgroup == 0) tma_store_wait_read<0>();
}

// A block of the kernel.
template <typename T, typename Tile, bool kOptions, typename Sequences>
__device__ void forward_block(
    const typename Sequences::Forward& p,
    const typename Sequences::Tensors& tensors,
    const TileScheduler& scheduler,
    const Packing& packing) {
  using Traits = KernelTraits<Tile>;
  extern __shared__ char unaligned[];
  __shared__ Barriers<Tile, Sequences> barriers;
  char* shared = unaligned + (kSwizzleAlignment - shared_address(unaligned) % kSwizzleAlignment) % kSwizzleAlignment;
  if (threadIdx.x == 0) {
    for (const CUtensorMap* map : {&tensors.q.map, &tensors.k.map, &tensors.v.map}) tma_prefetch_descriptor(*map);
    if (!Tile::kStoresRegisters) tma_prefetch_descriptor(tensors.out.map);
    barriers.init(Tile::kConsumers);
  }
  if (Traits::kPacked && p.splits > 1) let_next_kernel_start();  // Which waits for this one's end.
  __syncthreads();
  if (threadIdx.x < kWarpgroup) {
    if constexpr (Tile::Registers::kMoves) give_registers<Tile::Registers::kProducer>();
    if (threadIdx.x < kProducers<Sequences>) {
      produce<Tile, Sequences>(p, tensors, shared, barriers, scheduler, packing);
    }
  } else {
    if constexpr (Tile::Registers::kMoves) take_registers<Tile::Registers::kConsumer>();
    consume<T, Tile, kOptions, Sequences>(p, tensors, shared, barriers, packing);
  }
}

}  // namespace fwd
}  // namespace attention::sm90
