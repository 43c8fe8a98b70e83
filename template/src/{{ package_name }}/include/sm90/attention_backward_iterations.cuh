// A consumer's iterations in the backward for Hopper: the order of products, exponentials and stores.

#pragma once

#include <cstdint>

#include "attention_backward_work.cuh"
#include "attention_consumer_keys.cuh"
#include "attention_grad_q_adder.cuh"
#include "mask.h"
#include "score.h"

namespace attention::sm90 {
namespace bwd {

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

}  // namespace bwd
}  // namespace attention::sm90
