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

#include <cstdint>

#include "attention_backward_convert.cuh"
#include "attention_backward_iterations.cuh"
#include "attention_backward_prepare.cuh"
#include "attention_backward_work.cuh"
#include "attention_consumer_keys.cuh"
#include "attention_drawn_work.cuh"
#include "attention_grad_q_adder.cuh"
#include "attention_operands.cuh"
#include "attention_scheduler.cuh"
#include "attention_turns.cuh"
#include "dependent_launch.cuh"

namespace attention::sm90 {
namespace bwd {

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

}  // namespace bwd
}  // namespace attention::sm90
