// grad_q of the deterministic backward: a block has a tile of queries, iterates over the keys that these attend to, and
// keeps grad_q in registers. Without atomics the same inputs give the same bits. The price is a second computation of S
// and dP, which attention_backward_keys.cuh computes as well: 7 GEMMs instead of 5.

#pragma once

#include "attention_backward.cuh"
#include "mask.h"
#include "score.h"

namespace attention::sm80 {

template <typename T, int D, int V, typename Tuned>
struct QueriesBlock {
  static constexpr int kThreads = Tuned::queries_warps * kWarpSize, kRows = Tuned::queries_warps * 16;
  static constexpr int kKeys = Tuned::queries_keys, kStages = Tuned::queries_stages;
  static constexpr int kRowsBytes = kTileBytes<kRows, D>, kKeysBytes = kTileBytes<kKeys, D>;
  // Offsets in shared memory: queries, gradients, the ring of keys and values.
  static constexpr int kRing = kRowsBytes + kTileBytes<kRows, V>, kStageBytes = kKeysBytes + kTileBytes<kKeys, V>;
  static constexpr int kSharedBytes = kRing + kStages * kStageBytes;
  using Scores = Accumulator<kKeys>[1];

  template <typename Problem, typename Sequence>
  __device__ static void load(
      const Problem& p, const Sequence& sequence, uint8_t* shared, int head, int first, int step) {
    uint8_t* tile = shared + kRing + step % kStages * kStageBytes;
    const int keys = sequence.mask().keys - first, chunks = p.dim / kChunk;
    const auto k = sequence.template key_rows<const T>(p.k, head), v = sequence.template key_rows<const T>(p.v, head);
    unsigned thread = threadIdx.x;
    if constexpr (kIsTuring<Tuned> && Sequence::kRagged) compute_again_from(thread);
    load_tile<kKeys, D, kThreads>(tile, k[first], k.stride, keys, chunks, thread);
    load_tile<kKeys, V, kThreads>(tile + kKeysBytes, v[first], v.stride, keys, value_dims<D>(p) / kChunk, thread);
  }

  // dS in place of grad v^T, by way of P in place of q k^T.
  __device__ static void compute_ds(
      Scores& ds,
      Scores& weights,
      const Score& score,
      const Mask& mask,
      const float (&lse)[2],
      const float (&delta)[2],
      int first_row,
      int first_key) {
    if (score.transforms()) {
#pragma unroll
      for (auto& block : weights[0]) {
#pragma unroll
        for (float& value : block) value = score.transform(value);
      }
    }
#pragma unroll
    for (int n = 0; n < kKeys / 8; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        ds[0][n][i] = weight(weights[0][n][i], lse[i / 2], score.scale) * (ds[0][n][i] - delta[i / 2]);
      }
    }
    if (score.transforms()) {
#pragma unroll
      for (int n = 0; n < kKeys / 8; ++n) {
#pragma unroll
        for (int i = 0; i < 4; ++i) ds[0][n][i] *= score.derivative(weights[0][n][i]);
      }
    }
    if (mask.allows_all(first_row, first_row + 16, first_key, first_key + kKeys)) return;
    const int lane = threadIdx.x % kWarpSize, row = first_row + lane / 4, key = first_key + lane % 4 * 2;
#pragma unroll
    for (int n = 0; n < kKeys / 8; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        if (!mask.allows(row + i / 2 * 8, key + n * 8 + i % 2)) ds[0][n][i] = 0;
      }
    }
  }
};

template <typename T, int D, int V, typename Tuned, typename Problem, typename Sequence>
__device__ void compute_backward_queries_tile(
    const Problem& p, const Sequence& sequence, uint8_t* shared, int head, int first_row) {
  using Block = QueriesBlock<T, D, V, Tuned>;
  const Mask& mask = sequence.mask();
  const int kv_head = head / (p.heads / p.kv_heads);
  const int rows = mask.queries - first_row, end_row = first_row + min(rows, Block::kRows);
  const int first_tile = mask.begin(first_row) / Block::kKeys;
  const int steps = max((mask.end(end_row - 1) + Block::kKeys - 1) / Block::kKeys - first_tile, 0);

  const auto q = sequence.template query_rows<const T>(p.q, head);
  const auto grad = sequence.template query_rows<const T>(p.grad, head);
  load_tile<Block::kRows, D, Block::kThreads>(shared, q[first_row], q.stride, rows, p.dim / kChunk);
  load_tile<Block::kRows, V, Block::kThreads>(
      shared + Block::kRowsBytes, grad[first_row], grad.stride, rows, value_dims<D>(p) / kChunk);
  for (int step = 0; step < Block::kStages - 1; ++step) {
    if (step < steps) Block::load(p, sequence, shared, kv_head, (first_tile + step) * Block::kKeys, step);
    cp_async_commit();
  }

  const int warp_row = threadIdx.x / kWarpSize * 16;
  float lse[2], delta[2];
  for (int half = 0; half < 2; ++half) {
    const int row = warp_row + half * 8 + threadIdx.x % kWarpSize / 4;
    const int64_t index = sequence.stats_row(head, first_row + row);
    lse[half] = row < rows ? p.lse[index] : INFINITY;  // So that the weights of rows past the last are 0.
    delta[half] = row < rows ? p.delta[index] : 0;
  }

  Accumulator<D> grad_q[1] = {};
#pragma unroll 1
  for (int step = 0; step < steps; ++step) {
    cp_async_wait<(Block::kStages > 1 ? Block::kStages - 2 : 0)>();
    __syncthreads();
    const int ahead = step + Block::kStages - 1;
    if (ahead < steps) Block::load(p, sequence, shared, kv_head, (first_tile + ahead) * Block::kKeys, ahead);
    cp_async_commit();
    if constexpr (Block::kStages == 1) wait_for_copies();
    const uint8_t* k = shared + Block::kRing + step % Block::kStages * Block::kStageBytes;
    typename Block::Scores weights = {}, ds = {};
    Fragment rounded[1][Block::kKeys / 16];
    multiply_transposed<T, D, Block::kRows, Block::kKeys>(weights, shared, warp_row, k);
    multiply_transposed<T, V, Block::kRows, Block::kKeys>(
        ds, shared + Block::kRowsBytes, warp_row, k + Block::kKeysBytes);
    Block::compute_ds(ds, weights, p.score, mask, lse, delta, first_row + warp_row, (first_tile + step) * Block::kKeys);
    round_to<T>(rounded, ds);
    accumulate<T, D, Block::kKeys>(grad_q, rounded, k);
  }
  wait_for_copies();
  const auto target = sequence.template query_rows<T>(p.grad_q, head);
  store_gradient<D, Block::kRows>(grad_q[0], p.score.scale, shared, warp_row, target, first_row, rows, p.dim);
}

// Computes the gradient of a tile of queries of one head, from first_row on.
template <typename T, int D, int V, typename Tuned, typename Problem, typename Sequence>
__device__ void backward_queries_tile(
    const Problem& p, const Sequence& sequence, uint8_t* shared, int head, int first_row) {
  if constexpr (kRunsHere<Tuned>) {
    compute_backward_queries_tile<T, D, V, Tuned>(p, sequence, shared, head, first_row);
  } else {
    __trap();
  }
}

}  // namespace attention::sm80
