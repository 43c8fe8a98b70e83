// What a block of the backward for Hopper computes one after the other, and how its warps learn of it.

#pragma once

#include <cstdint>

#include "attention_backward_work.cuh"
#include "mbarrier.cuh"

namespace attention::sm90 {
namespace bwd {

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

}  // namespace bwd
}  // namespace attention::sm90
