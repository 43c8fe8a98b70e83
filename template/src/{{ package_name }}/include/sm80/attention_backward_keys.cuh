// grad_k, grad_v and, with atomics, grad_q. A block has a tile of keys. It iterates over the tiles of queries that
// attend to these, for each head of the group. Half of its warps compute grad_v, the other half grad_k, of the same
// keys:
//
//   both                  load        queries, gradients, LSEs and deltas to a ring in shared memory, kStages - 1
//                                     iterations ahead
//   the values' warps     compute_p   P^T, from k q^T and the LSEs, which they store for the other warps as well
//                         accumulate  grad_v += P^T grad, with P^T from registers
//                         add_grad_q  their part of the last iteration's
//   the keys' warps       add_grad_q  theirs
//                         compute_ds  v grad^T; then, with P^T and the deltas, dS^T in its place
//                         accumulate  grad_k += dS^T q, with dS^T from registers
//
// grad_q += dS k is divided among all warps, by rows and dimensions, and the sum over blocks is made of float32
// atomics. It comes an iteration late, since dS^T of all keys is complete by then: so an iteration has one barrier for
// all. The deterministic backward leaves it out. Since a warp has one gradient to accumulate, it has registers for
// twice as many keys as with two, and needs half as many fragments of queries and gradients.
//
// Beside what attention_forward.cuh asks for, a Sequence has first_tile(head, rows), the first tile of a head's queries
// in an array of tiles of so many rows; and kRagged, whether sequences differ in length, so that more registers say
// where a tile is.

#pragma once

#include "attention_backward.cuh"
#include "mask.h"
#include "named_barrier.cuh"
#include "score.h"

namespace attention::sm80 {

template <typename T, int D, int V, typename Tuned>
struct KeysBlock {
  static constexpr int kWarps = Tuned::keys_warps, kThreads = kWarps * kWarpSize;
  // Pairs of warps: one for the values, and one for the keys, of the same kWarpKeys keys.
  static constexpr int kPairs = kWarps / 2, kWarpKeys = Tuned::keys_of_warp, kHalves = kWarpKeys / 16;
  static constexpr int kKeys = kPairs * kWarpKeys;
  static constexpr int kRows = Tuned::keys_rows, kStages = Tuned::keys_stages, kWarpsByRow = Tuned::keys_warps_by_row;
  static constexpr int kKeysBytes = kTileBytes<kKeys, D>, kRowsBytes = kTileBytes<kRows, D>;
  static constexpr int kStageBytes = kRowsBytes + kTileBytes<kRows, V>;
  static constexpr int kDsBytes = kTileBytes<kKeys, kDsColumns<Tuned>>;
  static constexpr int kStatBytes = kRows * sizeof(float);
  // Offsets in shared memory: keys, values, the ring of queries and gradients, two tiles of P^T and then dS^T, the ring
  // of LSEs and deltas.
  static constexpr int kRing = kKeysBytes + kTileBytes<kKeys, V>, kDs = kRing + kStages * kStageBytes;
  static constexpr int kStats = kDs + 2 * kDsBytes;
  static constexpr int kSharedBytes = kStats + kStages * 2 * kStatBytes;
  // The part of an iteration's grad_q that a warp computes.
  static constexpr int kQueryRows = kRows / kWarpsByRow, kQueryDims = D * kWarpsByRow / kWarps;
  static_assert(kRows % 16 == 0 && kStages >= 1 && kQueryRows % 16 == 0 && kQueryDims % 16 == 0);
  static_assert(kWarps % 2 == 0 && kWarpKeys % 16 == 0);
  static_assert(2 * kRows <= kThreads && kSharedBytes == kKeysSharedBytes<Tuned, D, V>);
  using Scores = Accumulator<kRows>[kHalves];
  using Rounded = Fragment[kHalves][kRows / 16];

  // The queries of an iteration.
  struct RowTile {
    int head, first_row;
  };

  __device__ static int warp() { return thread_index<(D <= 128)>() / kWarpSize; }
  // The first of the warp's keys in the tile.
  __device__ static int warp_row() { return warp() % kPairs * kWarpKeys; }

  // What an iteration reads.
  __device__ static const uint8_t* queries(const uint8_t* shared, int step) {
    return shared + kRing + step % kStages * kStageBytes;
  }
  __device__ static const float* lses(const uint8_t* shared, int step) {
    return reinterpret_cast<const float*>(shared + kStats + step % kStages * 2 * kStatBytes);
  }

  // load
  template <typename Problem, typename Sequence>
  __device__ static void load(
      const Problem& p, const Sequence& sequence, uint8_t* shared, const RowTile& tile, int step) {
    const int stage = step % kStages, rows = sequence.mask().queries - tile.first_row, chunks = p.dim / kChunk;
    uint8_t* target = shared + kRing + stage * kStageBytes;
    const auto q = sequence.template query_rows<const T>(p.q, tile.head);
    const auto grad = sequence.template query_rows<const T>(p.grad, tile.head);
    unsigned thread = thread_index<(D <= 128)>();
    if constexpr (Sequence::kRagged) compute_again_from(thread);
    load_tile<kRows, D, kThreads>(target, q[tile.first_row], q.stride, rows, chunks, thread);
    const int grad_chunks = value_dims<D>(p) / kChunk;
    load_tile<kRows, V, kThreads>(target + kRowsBytes, grad[tile.first_row], grad.stride, rows, grad_chunks, thread);
    if (thread < 2 * kRows) {
      const int row = thread % kRows;
      const bool is_lse = thread < kRows;
      const int64_t index = sequence.stats_row(tile.head, tile.first_row + row);
      float* const stat = reinterpret_cast<float*>(shared + kStats + stage * 2 * kStatBytes) + thread;
      // Rows past the last get an LSE of infinity, so that their weights are 0.
      if (row < rows) {
        cp_async_4(stat, (is_lse ? p.lse : p.delta) + index);
      } else {
        *stat = is_lse ? INFINITY : 0;
      }
    }
  }

  // compute_p: in place of k q^T.
  __device__ static void compute_p(
      Scores& weights, const Score& score, const Mask& mask, const float* lse, int first_key, int first_row) {
    const int lane = thread_index<(D <= 128)>() % kWarpSize;
    if (score.transforms()) {
#pragma unroll
      for (auto& half : weights) {
#pragma unroll
        for (auto& block : half) {
#pragma unroll
          for (float& value : block) value = score.transform(value);
        }
      }
    }
#pragma unroll
    for (int n = 0; n < kRows / 8; ++n) {
      const float2 pair = reinterpret_cast<const float2*>(lse)[n * 4 + lane % 4];
#pragma unroll
      for (auto& half : weights) {
#pragma unroll
        for (int i = 0; i < 4; ++i) half[n][i] = weight(half[n][i], i % 2 ? pair.y : pair.x, score.scale);
      }
    }
    if (mask.allows_all(first_row, first_row + kRows, first_key, first_key + kWarpKeys)) return;
    const int key = first_key + lane / 4, row = first_row + lane % 4 * 2;
#pragma unroll
    for (int half = 0; half < kHalves; ++half) {
#pragma unroll
      for (int n = 0; n < kRows / 8; ++n) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          if (!mask.allows(row + n * 8 + i % 2, key + half * 16 + i / 2 * 8)) weights[half][n][i] = 0;
        }
      }
    }
  }

  // P^T or dS^T, by one warp of a pair.
  __device__ static uint8_t* ds_tile(uint8_t* shared, int step) { return shared + kDs + step % 2 * kDsBytes; }
  __device__ static void store_ds(uint8_t* tile, const Rounded& rounded) {
    store_pairs(tile, [&](int half, int n, int j) { return rounded[half][n / 2][n % 2 * 2 + j]; });
  }
  // The same, of P^T times the derivative of the score's transformation.
  __device__ static void store_derived(uint8_t* tile, const Scores& weights, const Score& score, const float* lse) {
    const int lane = thread_index<(D <= 128)>() % kWarpSize;
    store_pairs(tile, [&](int half, int n, int j) {
      const float2 pair = reinterpret_cast<const float2*>(lse)[n * 4 + lane % 4];
      const float first = weights[half][n][2 * j], second = weights[half][n][2 * j + 1];
      return pack<T>(first * score.derivative_at(first, pair.x), second * score.derivative_at(second, pair.y));
    });
  }
  // Stores pair(half, n, j), two elements of block n of an accumulator, of the lane's first key in it or its second.
  template <typename Pair>
  __device__ static void store_pairs(uint8_t* tile, const Pair& pair) {
    const int lane = thread_index<(D <= 128)>() % kWarpSize, row = warp_row() + lane / 4;
#pragma unroll
    for (int n = 0; n < kRows / 8; ++n) {
      uint8_t* const address = tile + tile_offset<kKeys>(row, n) + lane % 4 * 4;
#pragma unroll
      for (int i = 0; i < 2 * kHalves; ++i) {
        *reinterpret_cast<uint32_t*>(address + i * 8 * kSwizzleRow) = pair(i / 2, n, i % 2);
      }
    }
  }

  // compute_ds: in place of v grad^T, with P^T from the tile where the other warp of the pair left it.
  __device__ static void compute_ds(Scores& ds, const uint8_t* tile, const float* delta) {
    const int lane = thread_index<(D <= 128)>() % kWarpSize, first_row = warp_row();
    const LdmatrixLane rows = LdmatrixLane::by_columns();
#pragma unroll
    for (int step = 0; step < kRows / 16; ++step) {
      const float2* pairs = reinterpret_cast<const float2*>(delta) + step * 8 + lane % 4;
      const float2 deltas[2] = {pairs[0], pairs[4]};
#pragma unroll
      for (int half = 0; half < kHalves; ++half) {
        Fragment weights;
        load_rows<kKeys>(weights, tile, rows, first_row + half * 16, step * 16);
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const float2 p = unpack<T>(weights[i]);
          float* const pair = &ds[half][2 * step + i / 2][i % 2 * 2];
          pair[0] = p.x * (pair[0] - deltas[i / 2].x);
          pair[1] = p.y * (pair[1] - deltas[i / 2].y);
        }
      }
    }
  }

  // add_grad_q: dS k, for some rows and dimensions.
  template <typename Sequence>
  __device__ static void add_grad_q(
      float* accum, const Sequence& sequence, const uint8_t* shared, const uint8_t* ds, const RowTile& tile) {
    const int warp = threadIdx.x / kWarpSize;
    const int row = warp % kWarpsByRow * kQueryRows, dim = warp / kWarpsByRow * kQueryDims;
    const LdmatrixLane rows = LdmatrixLane::by_rows(), columns = LdmatrixLane::by_columns();
    Accumulator<kQueryDims> acc[kQueryRows / 16] = {};
#pragma unroll
    for (int step = 0; step < kKeys / 16; ++step) {
      Fragment a[kQueryRows / 16], b;
#pragma unroll
      for (int m = 0; m < kQueryRows / 16; ++m) load_transposed<kKeys>(a[m], ds, rows, step * 16, row + m * 16);
#pragma unroll
      for (int n = 0; n < kQueryDims / 16; ++n) {
        load_transposed<kKeys>(b, shared, columns, step * 16, dim + n * 16);
#pragma unroll
        for (int m = 0; m < kQueryRows / 16; ++m) multiply<T>(acc[m][2 * n], acc[m][2 * n + 1], a[m], b);
      }
    }
    // The accumulator is in the order of registers and threads, so that a warp adds to 128 contiguous bytes.
    const int64_t tile_index = sequence.first_tile(tile.head, kRows) + tile.first_row / kRows;
    float* target =
        accum + tile_index * kRows * D + warp * kQueryRows * kQueryDims + thread_index<(D <= 128)>() % kWarpSize;
#pragma unroll
    for (int i = 0; i < kQueryRows * kQueryDims / kWarpSize; ++i) {
      atomicAdd(target + i * kWarpSize, acc[i / (kQueryDims / 2)][i % (kQueryDims / 2) / 4][i % 4]);
    }
  }

  // The first half of an iteration of the values' warps: P^T in `scores` and, for the other warp of the pair, its tile.
  template <typename Problem>
  __device__ static void compute_weights(
      Scores& scores,
      const Problem& p,
      const Mask& mask,
      uint8_t* shared,
      int first_key,
      const RowTile& tile,
      int step) {
    const float* lse = lses(shared, step);
    multiply_transposed<T, D, kKeys, kRows>(scores, shared, warp_row(), queries(shared, step));
    compute_p(scores, p.score, mask, lse, first_key + warp_row(), tile.first_row);
    if (p.score.transforms()) {
      store_derived(ds_tile(shared, step), scores, p.score, lse);
    } else {
      Rounded rounded;
      round_to<T>(rounded, scores);
      store_ds(ds_tile(shared, step), rounded);
    }
  }

  // The second half of an iteration of the keys' warps, with v grad^T in `scores`.
  template <typename Problem>
  __device__ static void accumulate_keys(
      Accumulator<D> (&grad_k)[kHalves], Scores& scores, const Problem& p, uint8_t* shared, int step) {
    Rounded rounded;
    compute_ds(scores, ds_tile(shared, step), lses(shared, step) + kRows);
    round_to<T>(rounded, scores);
    if (p.grad_q_accum) {
      __syncwarp();  // All lanes have read P^T.
      store_ds(ds_tile(shared, step), rounded);
    }
    accumulate<T, D, kRows>(grad_k, rounded, queries(shared, step));
  }
};

template <typename T, int D, int V, typename Tuned, typename Problem, typename Sequence>
__device__ void iterate_over_queries(
    const Problem& p, const Sequence& sequence, uint8_t* shared, int kv_head, int first_key) {
  using Block = KeysBlock<T, D, V, Tuned>;
  const int group = p.heads / p.kv_heads;
  const bool is_of_keys = Block::warp() >= Block::kPairs;

  // Iterations: the tiles of queries that attend to these keys, head by head.
  const auto first_row = [&] { return sequence.mask().first_query(first_key) / Block::kRows * Block::kRows; };
  const int end_row = sequence.mask().end_query(min(first_key + Block::kKeys, sequence.mask().keys) - 1);
  const int steps = max((end_row - first_row() + Block::kRows - 1) / Block::kRows, 0) * group;
  typename Block::RowTile loaded{kv_head * group, first_row()}, tile = loaded, last = loaded;
  const auto advance = [&](typename Block::RowTile& rows) {
    rows.first_row += Block::kRows;
    if (rows.first_row >= end_row) rows = {rows.head + 1, first_row()};
  };
  for (int step = 0; step < Block::kStages - 1; ++step) {
    if (step < steps) {
      Block::load(p, sequence, shared, loaded, step);
      advance(loaded);
    }
    cp_async_commit();
  }

  Accumulator<D> gradient[Block::kHalves] = {};  // Of the keys or, in the first V columns, of the values.
  const auto add_grad_q = [&](int step) {
    if (p.grad_q_accum && step >= 0) {
      Block::add_grad_q(p.grad_q_accum, sequence, shared, Block::ds_tile(shared, step), last);
    }
  };
#pragma unroll 1
  for (int step = 0; step < steps; ++step) {
    // This iteration's tiles have arrived, no warp reads the last one's any more, and its dS^T is complete.
    cp_async_wait<(Block::kStages > 1 ? Block::kStages - 2 : 0)>();
    __syncthreads();
    // A ring of one stage loads this iteration's tile: beside what says where that is, no register is left for a copy.
    if constexpr (kHoldsLess && Sequence::kRagged && Block::kStages == 1) loaded = tile;
    if (step + Block::kStages - 1 < steps) {
      Block::load(p, sequence, shared, loaded, step + Block::kStages - 1);
      advance(loaded);
    }
    cp_async_commit();
    if constexpr (Block::kStages == 1) {
      cp_async_wait<0>();
      __syncthreads();
    }
    typename Block::Scores scores = {};
    const uint8_t* const gradients = Block::queries(shared, step) + Block::kRowsBytes;
    if (is_of_keys) {
      add_grad_q(step - 1);
      multiply_transposed<T, V, Block::kKeys, Block::kRows>(
          scores, shared + Block::kKeysBytes, Block::warp_row(), gradients);
    } else {
      Block::compute_weights(scores, p, sequence.mask(), shared, first_key, tile, step);
    }
    named_barrier_sync(1 + Block::warp() % Block::kPairs, 2 * kWarpSize);  // The pair's P^T is there.
    if (is_of_keys) {
      Block::accumulate_keys(gradient, scores, p, shared, step);
    } else {
      typename Block::Rounded weights;
      round_to<T>(weights, scores);
      accumulate<T, V, Block::kRows>(gradient, weights, gradients);
      add_grad_q(step - 1);
    }
    last = tile;
    advance(tile);
  }
  cp_async_commit();  // Without iterations, a ring of one stage has not committed the copies of keys and values.
  cp_async_wait<0>();
  __syncthreads();
  add_grad_q(steps - 1);
  __syncthreads();  // No warp reads the keys any more: their tile is grad_k's way out.

  const auto store = [&](auto columns, const auto& out, int row_dims, float scale, uint8_t* way_out) {
    const auto target = sequence.template key_rows<T>(out, kv_head);
    const int rows = sequence.mask().keys - first_key;
#pragma unroll
    for (int half = 0; half < Block::kHalves; ++half) {
      store_gradient<decltype(columns)::value, Block::kKeys>(
          gradient[half], scale, way_out, Block::warp_row() + half * 16, target, first_key, rows, row_dims);
    }
  };
  if (is_of_keys) {
    store(std::integral_constant<int, D>(), p.grad_k, p.dim, p.score.scale, shared);
  } else {
    store(std::integral_constant<int, V>(), p.grad_v, value_dims<D>(p), 1, shared + Block::kKeysBytes);
  }
}

// Computes the gradients of a tile of keys, from first_key on, of one head.
template <typename T, int D, int V, typename Tuned, typename Problem, typename Sequence>
__device__ void backward_keys_tile(
    const Problem& p, const Sequence& sequence, uint8_t* shared, int kv_head, int first_key) {
  if constexpr (!kRunsHere<Tuned> || (kComputesAgain && !kKeysFitNewer<D, Tuned>)) {
    __trap();
  } else {
    using Block = KeysBlock<T, D, V, Tuned>;
    for (int i = 0; i < 2; ++i) {
      const auto rows = sequence.template key_rows<const T>(i ? p.v : p.k, kv_head);
      const int keys = sequence.mask().keys - first_key;
      uint8_t* const tile = shared + i * Block::kKeysBytes;
      if (V < D && i == 1) {
        load_tile<Block::kKeys, V, Block::kThreads>(
            tile, rows[first_key], rows.stride, keys, value_dims<D>(p) / kChunk);
      } else {
        const int dims = i ? value_dims<D>(p) : p.dim;
        load_tile<Block::kKeys, D, Block::kThreads>(tile, rows[first_key], rows.stride, keys, dims / kChunk);
      }
    }
    iterate_over_queries<T, D, V, Tuned>(p, sequence, shared, kv_head, first_key);
  }
}

// Scales and rounds a tile of the accumulator, 8 dimensions of a row at a time. In the order in which add_grad_q leaves
// these, the even ones are neighbours, and so are the odd ones, kWarpSize floats further on.
template <typename T, int D, int V, typename Tuned, typename Problem, typename Sequence>
__device__ void convert_tile(const Problem& p, const Sequence& sequence, int head, int tile) {
  using Block = KeysBlock<T, D, V, Tuned>;
  if (tile * Block::kRows >= sequence.mask().queries) return;
  constexpr int kChunks = Block::kQueryDims / 8, kPieces = Block::kQueryRows / 8 * kChunks;  // Of a warp.
  const float* source = p.grad_q_accum + (sequence.first_tile(head, Block::kRows) + tile) * Block::kRows * D;
  const auto target = sequence.template query_rows<T>(p.grad_q, head);
  const float scale = p.score.scale;
#pragma unroll
  for (int i = threadIdx.x; i < Block::kRows * D / 8; i += Block::kThreads) {
    // A piece is 8 rows of 8 dimensions: half of a block of an accumulator.
    const int piece = i / 8, warp = piece / kPieces, half = piece % 2;
    const int chunk = piece % kPieces / 2 % kChunks, fragment = piece % kPieces / 2 / kChunks;
    const float4* const pairs = reinterpret_cast<const float4*>(source + piece * 2 * kWarpSize) + i % 8;
    const float4 even = pairs[0], odd = pairs[kWarpSize / 4];
    const int row_in_tile = warp % Block::kWarpsByRow * Block::kQueryRows + fragment * 16 + half * 8 + i % 8;
    const int row = tile * Block::kRows + row_in_tile;
    const int dim = warp / Block::kWarpsByRow * Block::kQueryDims + chunk * 8;
    if (row < sequence.mask().queries && dim < p.dim) {
      *reinterpret_cast<uint4*>(target[row] + dim) = {
          pack<T>(even.x * scale, odd.x * scale),
          pack<T>(even.y * scale, odd.y * scale),
          pack<T>(even.z * scale, odd.z * scale),
          pack<T>(even.w * scale, odd.w * scale)};
    }
  }
}

}  // namespace attention::sm80
