// grad_k, grad_v and, with atomics, grad_q. A block has a tile of keys, 16 a warp. It iterates over the tiles of
// queries that attend to these, for each head of the group:
//
//   load        queries, gradients, LSEs and deltas to a ring in shared memory, kStages - 1 iterations ahead
//   compute_p   P^T, from k q^T and the LSEs
//   accumulate  grad_v += P^T grad, with P^T from registers
//   compute_ds  dS^T, from v grad^T and the deltas
//   add_grad_q  grad_q += dS k: dS^T goes through shared memory, each warp multiplies it for some rows and dimensions,
//               and the sum over blocks is made of float32 atomics. The deterministic backward leaves this out
//   accumulate  grad_k += dS^T q, with dS^T from registers
//
// Where registers hold no two gradients (kSplitsGradients), some blocks compute grad_v, and others grad_k and grad_q.
//
// Beside what attention_forward.cuh asks for, a Sequence has first_tile(head, rows): the first tile of a head's queries
// in an array of tiles of so many rows.

#pragma once

#include "attention_backward.cuh"
#include "mask.h"
#include "score.h"

namespace attention::sm80 {

template <typename T, int D, int V, typename Tuned>
struct KeysBlock {
  static constexpr int kWarps = Tuned::keys_warps, kThreads = kWarps * kWarpSize, kKeys = kWarps * 16;
  static constexpr int kRows = Tuned::keys_rows, kStages = Tuned::keys_stages, kWarpsByRow = Tuned::keys_warps_by_row;
  static constexpr int kKeysBytes = kTileBytes<kKeys, D>, kRowsBytes = kTileBytes<kRows, D>;
  static constexpr int kStageBytes = kRowsBytes + kTileBytes<kRows, V>;
  static constexpr int kDsBytes = kTileBytes<kKeys, kDsColumns<Tuned>>;
  static constexpr int kStatBytes = kRows * sizeof(float);
  // Offsets in shared memory: keys, values, the ring of queries and gradients, dS^T, the ring of LSEs and deltas.
  static constexpr int kRing = kKeysBytes + kTileBytes<kKeys, V>, kDs = kRing + kStages * kStageBytes;
  static constexpr int kStats = kDs + kDsBytes;
  static constexpr int kSharedBytes = kStats + kStages * 2 * kStatBytes;
  // The part of an iteration's grad_q that a warp computes.
  static constexpr int kQueryRows = kRows / kWarpsByRow, kQueryDims = D * kWarpsByRow / kWarps;
  // In how many parts, for each of which a thread has registers beside its accumulators.
  static constexpr int kQueryParts = kIsTuring<Tuned> && kQueryRows == 16 && D > 128 ? 2 : 1;
  static_assert(kRows % 16 == 0 && kStages >= 1 && kQueryRows % 16 == 0 && kQueryDims % 16 == 0);
  static_assert(2 * kRows <= kThreads && kSharedBytes == kKeysSharedBytes<Tuned, D, V>);
  using Scores = Accumulator<kRows>;

  // The queries of an iteration.
  struct RowTile {
    int head, first_row;
  };

  // load
  template <typename Problem, typename Sequence>
  __device__ static void load(
      const Problem& p, const Sequence& sequence, uint8_t* shared, const RowTile& tile, int step) {
    const int stage = step % kStages, rows = sequence.mask().queries - tile.first_row, chunks = p.dim / kChunk;
    uint8_t* target = shared + kRing + stage * kStageBytes;
    const auto q = sequence.template query_rows<const T>(p.q, tile.head);
    const auto grad = sequence.template query_rows<const T>(p.grad, tile.head);
    const unsigned thread = thread_index<(D <= 128)>();
    load_tile<kRows, D, kThreads>(target, q[tile.first_row], q.stride, rows, chunks, thread);
    const int grad_chunks = value_dims<D>(p) / kChunk;
    load_tile<kRows, V, kThreads>(target + kRowsBytes, grad[tile.first_row], grad.stride, rows, grad_chunks, thread);
    if (thread < 2 * kRows) {
      const int row = thread % kRows;
      const bool is_lse = thread < kRows;
      const int64_t index = sequence.stats_row(tile.head, tile.first_row + row);
      // Rows past the last get an LSE of infinity, so that their weights are 0.
      const float padding = is_lse ? INFINITY : 0;
      reinterpret_cast<float*>(shared + kStats + stage * 2 * kStatBytes)[thread] =
          row < rows ? (is_lse ? p.lse : p.delta)[index] : padding;
    }
  }

  // compute_p: in place of k q^T.
  __device__ static void compute_p(
      Scores& weights, const Score& score, const Mask& mask, const float* lse, int first_key, int first_row) {
    const int lane = thread_index<(D <= 128)>() % kWarpSize;
    if (score.transforms()) {
#pragma unroll
      for (auto& block : weights) {
#pragma unroll
        for (float& value : block) value = score.transform(value);
      }
    }
#pragma unroll
    for (int n = 0; n < kRows / 8; ++n) {
      const float2 pair = reinterpret_cast<const float2*>(lse)[n * 4 + lane % 4];
#pragma unroll
      for (int i = 0; i < 4; ++i) weights[n][i] = weight(weights[n][i], i % 2 ? pair.y : pair.x, score.scale);
    }
    if (mask.allows_all(first_row, first_row + kRows, first_key, first_key + 16)) return;
    const int key = first_key + lane / 4, row = first_row + lane % 4 * 2;
#pragma unroll
    for (int n = 0; n < kRows / 8; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        if (!mask.allows(row + n * 8 + i % 2, key + i / 2 * 8)) weights[n][i] = 0;
      }
    }
  }

  // compute_ds: in place of v grad^T.
  __device__ static void compute_ds(
      Scores& ds, const Scores& weights, const Score& score, const float* lse, const float* delta) {
    const int lane = thread_index<(D <= 128)>() % kWarpSize;
#pragma unroll
    for (int n = 0; n < kRows / 8; ++n) {
      const float2 pair = reinterpret_cast<const float2*>(delta)[n * 4 + lane % 4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        ds[n][i] = weights[n][i] * (ds[n][i] - (i % 2 ? pair.y : pair.x));
      }
    }
    if (!score.transforms()) return;
#pragma unroll
    for (int n = 0; n < kRows / 8; ++n) {
      const float2 pair = reinterpret_cast<const float2*>(lse)[n * 4 + lane % 4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        ds[n][i] *= score.derivative_at(weights[n][i], i % 2 ? pair.y : pair.x);
      }
    }
  }

  // add_grad_q
  __device__ static void store_ds(uint8_t* shared, const Fragment (&rounded)[kRows / 16]) {
    const unsigned thread = thread_index<(D <= 128)>();
    const int lane = thread % kWarpSize;
#pragma unroll
    for (int i = 0; i < kRows / 4; ++i) {
      const int n = i / 4 * 2 + i / 2 % 2, row = thread / kWarpSize * 16 + i % 2 * 8 + lane / 4;
      uint8_t* address = shared + kDs + tile_offset<kKeys>(row, n) + lane % 4 * 4;
      *reinterpret_cast<uint32_t*>(address) = rounded[i / 4][i % 4];
    }
  }
  template <int kPart, typename Sequence>
  __device__ static void add_grad_q(
      float* accum, const Sequence& sequence, const uint8_t* shared, const RowTile& tile) {
    constexpr int kDims = kQueryDims / kQueryParts;
    const int warp = threadIdx.x / kWarpSize;
    const int row = warp % kWarpsByRow * kQueryRows, dim = warp / kWarpsByRow * kQueryDims + kPart * kDims;
    const LdmatrixLane rows = LdmatrixLane::by_rows(), columns = LdmatrixLane::by_columns();
    Accumulator<kDims> acc[kQueryRows / 16] = {};
#pragma unroll
    for (int step = 0; step < kKeys / 16; ++step) {
      Fragment a[kQueryRows / 16], b;
#pragma unroll
      for (int m = 0; m < kQueryRows / 16; ++m) {
        load_transposed<kKeys>(a[m], shared + kDs, rows, step * 16, row + m * 16);
      }
#pragma unroll
      for (int n = 0; n < kDims / 16; ++n) {
        load_transposed<kKeys>(b, shared, columns, step * 16, dim + n * 16);
#pragma unroll
        for (int m = 0; m < kQueryRows / 16; ++m) multiply<T>(acc[m][2 * n], acc[m][2 * n + 1], a[m], b);
      }
    }
    // The accumulator is in the order of registers and threads, so that a warp adds to 128 contiguous bytes.
    const int64_t tile_index = sequence.first_tile(tile.head, kRows) + tile.first_row / kRows;
    float* target =
        accum + tile_index * kRows * D + warp * kQueryRows * kQueryDims + thread_index<(D <= 128)>() % kWarpSize;
    target += kPart * kQueryRows * kDims;
#pragma unroll
    for (int i = 0; i < kQueryRows * kDims / kWarpSize; ++i) {
      atomicAdd(target + i * kWarpSize, acc[i / (kDims / 2)][i % (kDims / 2) / 4][i % 4]);
    }
  }
};

template <typename T, int D, int V, typename Tuned, bool kGradK, bool kGradV, typename Problem, typename Sequence>
__device__ void compute_backward_keys_tile(
    const Problem& p, const Sequence& sequence, uint8_t* shared, int kv_head, int first_key) {
  using Block = KeysBlock<T, D, V, Tuned>;
  const int warp = threadIdx.x / kWarpSize, group = p.heads / p.kv_heads;

  // Iterations: the tiles of queries that attend to these keys, head by head.
  const auto first_row = [&] { return sequence.mask().first_query(first_key) / Block::kRows * Block::kRows; };
  const int end_row = sequence.mask().end_query(min(first_key + Block::kKeys, sequence.mask().keys) - 1);
  const int steps = max((end_row - first_row() + Block::kRows - 1) / Block::kRows, 0) * group;
  typename Block::RowTile loaded{kv_head * group, first_row()}, tile = loaded;
  const auto advance = [&](typename Block::RowTile& rows) {
    rows.first_row += Block::kRows;
    if (rows.first_row >= end_row) rows = {rows.head + 1, first_row()};
  };

  for (int i = 0; i < 2; ++i) {
    const auto rows = sequence.template key_rows<const T>(i ? p.v : p.k, kv_head);
    const int keys = sequence.mask().keys - first_key;
    uint8_t* const tile = shared + i * Block::kKeysBytes;
    if (V < D && i == 1) {
      load_tile<Block::kKeys, V, Block::kThreads>(tile, rows[first_key], rows.stride, keys, value_dims<D>(p) / kChunk);
    } else {
      const int dims = i ? value_dims<D>(p) : p.dim;
      load_tile<Block::kKeys, D, Block::kThreads>(tile, rows[first_key], rows.stride, keys, dims / kChunk);
    }
  }
  for (int step = 0; step < Block::kStages - 1; ++step) {
    if (step < steps) {
      Block::load(p, sequence, shared, loaded, step);
      advance(loaded);
    }
    cp_async_commit();
  }

  Accumulator<D> grad_k = {};
  Accumulator<V> grad_v = {};
#pragma unroll 1
  for (int step = 0; step < steps; ++step) {
    cp_async_wait<(Block::kStages > 1 ? Block::kStages - 2 : 0)>();
    __syncthreads();  // This iteration's tiles have arrived, and no warp reads the last one's any more.
    if (step + Block::kStages - 1 < steps) {
      Block::load(p, sequence, shared, loaded, step + Block::kStages - 1);
      advance(loaded);
    }
    cp_async_commit();
    if constexpr (Block::kStages == 1) wait_for_copies();
    const int stage = step % Block::kStages;
    const uint8_t *q = shared + Block::kRing + stage * Block::kStageBytes, *grad = q + Block::kRowsBytes;
    const float* lse = reinterpret_cast<const float*>(shared + Block::kStats + stage * 2 * Block::kStatBytes);
    const float* delta = lse + Block::kRows;

    const int warp_row = kComputesAgain ? thread_index<(D <= 128)>() / kWarpSize * 16 : warp * 16;
    typename Block::Scores weights = {}, ds = {};
    Fragment rounded[Block::kRows / 16];
    multiply_transposed<T, D, Block::kKeys, Block::kRows>(weights, shared, warp_row, q);
    Block::compute_p(weights, p.score, sequence.mask(), lse, first_key + warp_row, tile.first_row);
    if constexpr (kGradK) {
      multiply_transposed<T, V, Block::kKeys, Block::kRows>(ds, shared + Block::kKeysBytes, warp_row, grad);
    }
    if constexpr (kGradV) {
      round_to<T, Block::kRows>(rounded, weights);
      accumulate<T, V, Block::kRows>(grad_v, rounded, grad);
    }
    if constexpr (kGradK) {
      Block::compute_ds(ds, weights, p.score, lse, delta);
      round_to<T, Block::kRows>(rounded, ds);
      if (p.grad_q_accum) {
        Block::store_ds(shared, rounded);
        __syncthreads();  // All of dS^T has been written.
        Block::template add_grad_q<0>(p.grad_q_accum, sequence, shared, tile);
        if constexpr (Block::kQueryParts == 2) {
          Block::template add_grad_q<1>(p.grad_q_accum, sequence, shared, tile);
        }
      }
      accumulate<T, D, Block::kRows>(grad_k, rounded, q);
    }
    advance(tile);
  }
  wait_for_copies();
  const int rows = sequence.mask().keys - first_key;
  const int warp_row = kComputesAgain ? thread_index<(D <= 128)>() / kWarpSize * 16 : warp * 16;
  const auto target_k = sequence.template key_rows<T>(p.grad_k, kv_head);
  const auto target_v = sequence.template key_rows<T>(p.grad_v, kv_head);
  if constexpr (kGradK) {
    store_gradient<D, Block::kKeys>(grad_k, p.score.scale, shared, warp_row, target_k, first_key, rows, p.dim);
  }
  if constexpr (kGradV) {
    uint8_t* const tile = shared + Block::kKeysBytes;
    store_gradient<V, Block::kKeys>(grad_v, 1, tile, warp_row, target_v, first_key, rows, value_dims<D>(p));
  }
}

// Computes the gradients of a tile of keys, from first_key on, of one head. With kSplitsGradients, a grid has two
// blocks for each, whose blockIdx.z says which gradients are theirs.
template <typename T, int D, int V, typename Tuned, typename Problem, typename Sequence>
__device__ void backward_keys_tile(
    const Problem& p, const Sequence& sequence, uint8_t* shared, int kv_head, int first_key) {
  if constexpr (!kRunsHere<Tuned>) {
    __trap();
  } else if constexpr (!kSplitsGradients<D, V, Tuned>) {
    compute_backward_keys_tile<T, D, V, Tuned, true, true>(p, sequence, shared, kv_head, first_key);
  } else if (blockIdx.z == 0) {
    compute_backward_keys_tile<T, D, V, Tuned, true, false>(p, sequence, shared, kv_head, first_key);
  } else {
    compute_backward_keys_tile<T, D, V, Tuned, false, true>(p, sequence, shared, kv_head, first_key);
  }
}

// Scales and rounds a tile of the accumulator, which it reads in the order in which add_grad_q leaves it: neighbours in
// a row are kWarpSize floats apart.
template <typename T, int D, int V, typename Tuned, typename Problem, typename Sequence>
__device__ void convert_tile(const Problem& p, const Sequence& sequence, int head, int tile) {
  using Block = KeysBlock<T, D, V, Tuned>;
  const int lane = threadIdx.x % kWarpSize, warp = threadIdx.x / kWarpSize;
  const float* source = p.grad_q_accum + (sequence.first_tile(head, Block::kRows) + tile) * Block::kRows * D +
                        warp * Block::kQueryRows * Block::kQueryDims + lane;
  const auto target = sequence.template query_rows<T>(p.grad_q, head);
  const int first_row = tile * Block::kRows + warp % Block::kWarpsByRow * Block::kQueryRows + lane / 4;
  const int first_dim = warp / Block::kWarpsByRow * Block::kQueryDims + lane % 4 * 2;
#pragma unroll
  for (int i = 0; i < Block::kQueryRows * Block::kQueryDims / kWarpSize; i += 2) {
    const int row = first_row + i / (Block::kQueryDims / 2) * 16 + i / 2 % 2 * 8;
    const int dim = first_dim + i % (Block::kQueryDims / 2) / 4 * 8;
    if (row < sequence.mask().queries && dim < p.dim) {
      *reinterpret_cast<uint32_t*>(target[row] + dim) =
          pack<T>(source[i * kWarpSize] * p.score.scale, source[(i + 1) * kWarpSize] * p.score.scale);
    }
  }
}

}  // namespace attention::sm80
