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
//   kRagged           whether sequences differ in length: then a warp searches for a tile's sequence and two others
//                     load, and a block may find no tile at all
//   Scheduler         the order of tiles, a kernel's parameter
//   Walk              of kRagged alone: what the warp that searches keeps from tile to tile
//   next_work         the work item with this index
//   mask, row_number  the mask of a sequence, and the number of a row in lse
//   without_split     the sequence of a work item that may be a split of its keys
//   output_row        of tiles with kStoresRegisters alone: where a row of the output is
//   KeyPlace          what has to be read to know where a tile of keys is: place_of, of kRagged alone, reads it, one
//                     tile ahead
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
  // Of a warp that schedules: the next one, and when the warps that load want one more.
  Work ahead;
  MBarrier full_ahead, wanted_ahead;

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
    full_ahead.init(1);
    wanted_ahead.init(2);
    fence_mbarrier_init();
  }
};

// Named barriers, after those of Rows: one that lets each consumer issue its GEMMs (ping-pong).
constexpr int kIssueBarrier = kOutBarrier + 3;

// Of the threads that load a tile, one or a warp, the first leads. Only it waits for a stage: another one that came
// late would miss a phase.
template <typename Sequences>
__device__ bool leads() {
  return !Sequences::kRagged || threadIdx.x % 32 == 0;
}

// A tile of keys.
template <typename Sequences>
struct KeyTile {
  typename Sequences::Sequence sequence;
  int head, first;
  typename Sequences::KeyPlace place;
};

// The ring of keys, or of values, of kDims dimensions, for the threads that fill it.
template <typename Tile, typename Sequences, int kDims>
struct KeyRing {
  const typename Sequences::KeyTensor& tensor;
  char* tiles;
  MBarrier *full, *empty;
  RingPosition<Tile::kStages> position = {};

  __device__ void load(const KeyTile<Sequences>& keys) {
    constexpr int kKeys = Tile::kKeys, kBytes = Panels<kDims>::template kTile<kKeys>;
    const int stage = position.stage();
    if (leads<Sequences>()) {
      empty[stage].wait(position.parity() ^ 1);
      full[stage].arrive_expecting(kBytes);
    }
    char* tile = tiles + stage * kBytes;
    Sequences::template load_keys<kKeys, kDims>(
        tile, tensor, keys.sequence, keys.head, keys.first, keys.place, full[stage]);
    position.advance();
  }
};

// A block's producer warpgroup.
template <typename Tile, typename Sequences>
struct Producer {
  using Traits = KernelTraits<Tile>;
  using Work = WorkTile<typename Sequences::Sequence>;
  static constexpr int kKeys = Traits::kKeys, D = Traits::D, V = Traits::V;
  const typename Sequences::Forward& p;
  const typename Sequences::Tensors& tensors;
  char* shared;
  Barriers<Tile, Sequences>& barriers;
  const typename Sequences::Scheduler& scheduler;
  const Packing& packing;

  using Keys = KeyRing<Tile, Sequences, D>;
  using Values = KeyRing<Tile, Sequences, V>;
  __device__ Keys keys() const {
    return {tensors.k, shared + Traits::kKeysOffset, barriers.full_keys, barriers.empty_keys};
  }
  __device__ Values values() const {
    return {tensors.v, shared + Traits::kValuesOffset, barriers.full_values, barriers.empty_values};
  }

  // The last tile of a work item's keys, which comes first.
  __device__ KeyTile<Sequences> last_tile(const Work& work) const {
    // What WorkTile::head counts, for each head of keys.
    const int group = Traits::kPacked ? p.heads / p.kv_heads / packing.heads.value() : p.heads / p.kv_heads;
    return {Sequences::template without_split<Traits>(p, work.sequence), work.head / group, work.last_key};
  }

  // Loads the queries of a work item, which it leaves beside them.
  __device__ void load_queries(const Work& work, const RingPosition<Traits::kQueryStages>& queries) const {
    if (!leads<Sequences>()) return;
    MBarrier& full = barriers.full_queries[queries.stage()];
    barriers.empty_queries[queries.stage()].wait(queries.parity() ^ 1);
    barriers.work[queries.stage()] = work;
    if (!work.is_valid()) return full.arrive();
    const auto sequence = Sequences::template without_split<Traits>(p, work.sequence);
    char* tile = shared + queries.stage() * Traits::kQueriesBytes;
    if constexpr (Traits::kPacked) {
      full.arrive_expecting(packing.tile_rows() * D * int(sizeof(uint16_t)));
      const int query = packing.heads.divide(work.first_row);
      load_packed_panels<Traits::kRows, D>(tile, tensors.q, sequence.queries(), work.head, query, full);
    } else {
      full.arrive_expecting(Traits::kQueriesBytes);
      load_panels<Traits::kRows, D>(tile, tensors.q, sequence.queries(), work.head, work.first_row, full);
    }
  }

  // For one thread, where sequences are of equal length: everything.
  __device__ void produce() const {
    RingPosition<Traits::kQueryStages> queries;
    Keys keys = this->keys();
    Values values = this->values();
    KeyTile<Sequences> before;
    int index = blockIdx.x;
    for (bool first = true;; queries.advance()) {
      const Work work = Sequences::template next_work<Traits>(p, scheduler, packing, index);
      load_queries(work, queries);
      if (!work.is_valid()) break;
      for (KeyTile<Sequences> tile = last_tile(work); tile.first >= work.first_key; tile.first -= kKeys) {
        keys.load(tile);
        // Values are loaded one iteration after their keys, in the order of use.
        if (!first) values.load(before);
        before = tile;
        first = false;
      }
      index = next_index<1>(scheduler, index);
    }
    values.load(before);
  }

  // For a warp, where sequences differ in length: finds the work items, each when the other warps want it. A search
  // takes a while.
  __device__ void schedule() const {
    typename Sequences::template Walk<Traits> walk(p.queries);
    int index = blockIdx.x;
    for (int parity = 0;; parity ^= 1) {
      const Work work = Sequences::template next_work<Traits>(p, scheduler, packing, walk, index);
      if (leads<Sequences>()) {
        barriers.ahead = work;
        barriers.full_ahead.arrive();
      }
      if (!work.is_valid()) return;
      barriers.wanted_ahead.wait(parity);
      index = next_index<32>(scheduler, index);
    }
  }

  // For another: queries and keys.
  __device__ void produce_keys() const {
    RingPosition<Traits::kQueryStages> queries;
    fill(keys(), [&](const Work& work) {
      load_queries(work, queries);
      queries.advance();
    });
  }
  // And one more: values, so that they and keys do not wait for each other.
  __device__ void produce_values() const {
    fill(values(), [](const Work&) {});
  }

 private:
  template <typename Ring, typename Begin>
  __device__ void fill(Ring ring, const Begin& begin) const {
    // Where a tile has so many iterations left, the next one is wanted: blocks draw tiles as late as they can. A tile
    // of a single iteration does not wait for room for its queries first.
    constexpr int kLooksAhead = 3;
    const auto want_next = [&] {
      __syncwarp();  // Every lane has read the work item.
      if (leads<Sequences>()) barriers.wanted_ahead.arrive();
    };
    for (int parity = 0;; parity ^= 1) {
      barriers.full_ahead.wait(parity);
      const Work work = barriers.ahead.broadcast();
      const bool is_single = work.is_valid() && work.first_key == work.last_key;
      if (is_single) want_next();
      begin(work);
      if (!work.is_valid()) return;
      const int wants_next = min(work.last_key, work.first_key + (kLooksAhead - 1) * kKeys);
      KeyTile<Sequences> tile = last_tile(work);
      auto next_place = Sequences::place_of(p, tile.sequence, tile.first, ring.tensor);
      for (; tile.first >= work.first_key; tile.first -= kKeys) {
        tile.place = next_place;
        next_place = Sequences::place_of(p, tile.sequence, tile.first - kKeys, ring.tensor);
        ring.load(tile);
        if (tile.first == wants_next && !is_single) want_next();
      }
    }
  }
};

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
    work = Rows<T, Tile, kOptions, Sequences>::kRereadsWork ? read_work() : next;
    // All warps must have read it before one releases its stage.
    if (Rows<T, Tile, kOptions, Sequences>::kRereadsWork) named_barrier_sync(kOutBarrier + consumer, kWarpgroup);
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
    const typename Sequences::Scheduler& scheduler,
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
    const Producer<Tile, Sequences> producer{p, tensors, shared, barriers, scheduler, packing};
    if constexpr (!Sequences::kRagged) {
      if (threadIdx.x == 0) producer.produce();
    } else {
      const int warp = same_in_warp(threadIdx.x / kWarpSize);
      if (warp == 0) producer.produce_keys();
      if (warp == 1) producer.produce_values();
      if (warp == 2) producer.schedule();
    }
  } else {
    if constexpr (Tile::Registers::kMoves) take_registers<Tile::Registers::kConsumer>();
    consume<T, Tile, kOptions, Sequences>(p, tensors, shared, barriers, packing);
  }
}

}  // namespace fwd
}  // namespace attention::sm90
