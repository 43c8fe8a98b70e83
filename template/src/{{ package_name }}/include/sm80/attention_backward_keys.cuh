// grad_k, grad_v and grad_q. A block has a tile of keys, 16 a warp. It iterates over the tiles of
// queries that attend to these, for each head of the group:
//
//   load        queries, gradients, LSEs and deltas to a ring in shared memory, kStages - 1 iterations ahead
//   compute_p   P^T, from k q^T and the LSEs
//   accumulate  grad_v += P^T grad, with P^T from registers
//   compute_ds  dS^T, from v grad^T and the deltas
//   add_grad_q  grad_q += dS k: dS^T goes through shared memory, each warp multiplies it for some rows and dimensions,
//               and the sum over blocks is made of float32 atomics. Those of the deterministic backward (kOrdered) add
//               in turns (addition_turns.cuh), of which the first stores
//   accumulate  grad_k += dS^T q, with dS^T from registers
//
// Where registers hold no two gradients (kSplitsGradients), some blocks compute grad_v, and others grad_k and grad_q.
//
// Beside what attention_forward.cuh asks for, a Sequence has first_tile(head, rows): the first tile of a head's queries
// in an array of tiles of so many rows.

#pragma once

#include "addition_turns.cuh"
#include "attention_backward.cuh"
#include "mask.h"
#include "score.h"

namespace attention::sm80 {

template <typename T, int D, int V, typename Tuned, bool kOrdered = false>
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
  // Of which tile of grad_q, and in which turn, is read once the sums are there, when registers are free.
  template <int kPart, typename Sequence, typename TileOf>
  __device__ static void add_grad_q(
      float* accum, const Sequence& sequence, const uint8_t* shared, const TileOf& tile_of, const Turn& turn) {
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
    const RowTile tile = tile_of();
    const int64_t tile_index = sequence.first_tile(tile.head, kRows) + tile.first_row / kRows;
    float* target =
        accum + tile_index * kRows * D + warp * kQueryRows * kQueryDims + thread_index<(D <= 128)>() % kWarpSize;
    target += kPart * kQueryRows * kDims;
    const bool stores = kOrdered && turn.is_first();
#pragma unroll
    for (int i = 0; i < kQueryRows * kDims / kWarpSize; ++i) {
      const float value = acc[i / (kDims / 2)][i % (kDims / 2) / 4][i % 4];
      if (stores) {
        target[i * kWarpSize] = value;
      } else {
        atomicAdd(target + i * kWarpSize, value);
      }
    }
  }
};

// What an ordered block keeps in shared memory, and reads again wherever it needs it: its loop has no registers for it.
template <typename Block>
struct OrderedWork {
  int kv_head, first_key, last_row;               // last_row is the first row of the last tile of queries.
  typename Block::RowTile tiles[Block::kStages];  // Of the iterations that are in the ring.
  Turn turn;                                      // At the tile that the block adds to.
};

// A block's turn at a tile of queries: how many blocks of lower keys add to it. Those before the first whose keys it
// attends to never come.
template <typename Block, typename Problem, typename Sequence>
__device__ Turn
turn_of(const Problem& p, const Sequence& sequence, const typename Block::RowTile& tile, int first_key) {
  const int before = first_key / Block::kKeys - sequence.mask().begin(tile.first_row) / Block::kKeys;
  const int64_t index = sequence.first_tile(tile.head, Block::kRows) + tile.first_row / Block::kRows;
  return Turn::of(p.progress, static_cast<int>(index), before);
}

template <
    typename T,
    int D,
    int V,
    typename Tuned,
    bool kOrdered,
    bool kGradK,
    bool kGradV,
    typename Problem,
    typename Sequence>
__device__ void compute_backward_keys_tile(
    const Problem& p, const Sequence& sequence, uint8_t* shared, int kv_head, int first_key) {
  using Block = KeysBlock<T, D, V, Tuned, kOrdered>;
  constexpr bool kTakesTurns = kOrdered && kGradK;
  const int warp = threadIdx.x / kWarpSize, group = p.heads / p.kv_heads;

  // Iterations: the tiles of queries that attend to these keys, head by head or, ordered, from the last to the first,
  // each for all heads.
  const auto first_row = [&] { return sequence.mask().first_query(first_key) / Block::kRows * Block::kRows; };
  const int end_row = sequence.mask().end_query(min(first_key + Block::kKeys, sequence.mask().keys) - 1);
  const int last_row = (end_row - 1) / Block::kRows * Block::kRows;
  const int steps = max((end_row - first_row() + Block::kRows - 1) / Block::kRows, 0) * group;
  using RowTile = typename Block::RowTile;
  RowTile loaded{kv_head * group, first_row()}, current = loaded;
  const auto advance = [&](RowTile& rows) {
    rows.first_row += Block::kRows;
    if (rows.first_row >= end_row) rows = {rows.head + 1, first_row()};
  };
  __shared__ OrderedWork<Block> work;
  const volatile OrderedWork<Block>& kept = work;
  if constexpr (kOrdered) {
    if (threadIdx.x == 0) work.kv_head = kv_head, work.first_key = first_key, work.last_row = last_row;
    __syncthreads();
  }
  const auto head = [&] { return kOrdered ? kept.kv_head : kv_head; };
  const auto key = [&] { return kOrdered ? kept.first_key : first_key; };
  const auto load = [&](int step) {
    if constexpr (kOrdered) {
      loaded = {head() * group + step % group, kept.last_row - step / group * Block::kRows};
      if (threadIdx.x == 0) work.tiles[step % Block::kStages] = loaded;
    }
    Block::load(p, sequence, shared, loaded, step);
    if constexpr (!kOrdered) advance(loaded);
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
    if (step < steps) load(step);
    cp_async_commit();
  }

  Accumulator<D> grad_k = {};
  Accumulator<V> grad_v = {};
#pragma unroll 1
  for (int step = 0; step < steps; ++step) {
    cp_async_wait<(Block::kStages > 1 ? Block::kStages - 2 : 0)>();
    __syncthreads();  // This iteration's tiles have arrived, and no warp reads the last one's any more.
    if (kTakesTurns && threadIdx.x == 0 && step > 0) work.turn.pass();  // All warps have added to its grad_q.
    if (step + Block::kStages - 1 < steps) load(step + Block::kStages - 1);
    cp_async_commit();
    if constexpr (Block::kStages == 1) wait_for_copies();
    const int stage = step % Block::kStages;
    const auto tile = [&]() -> RowTile {
      if constexpr (!kOrdered) return current;
      return {kept.tiles[stage].head, kept.tiles[stage].first_row};
    };
    const uint8_t *q = shared + Block::kRing + stage * Block::kStageBytes, *grad = q + Block::kRowsBytes;
    const float* lse = reinterpret_cast<const float*>(shared + Block::kStats + stage * 2 * Block::kStatBytes);
    const float* delta = lse + Block::kRows;

    const int warp_row = kComputesAgain ? thread_index<(D <= 128)>() / kWarpSize * 16 : warp * 16;
    typename Block::Scores weights = {}, ds = {};
    Fragment rounded[Block::kRows / 16];
    multiply_transposed<T, D, Block::kKeys, Block::kRows>(weights, shared, warp_row, q);
    Block::compute_p(weights, p.score, sequence.mask(), lse, key() + warp_row, tile().first_row);
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
      Block::store_ds(shared, rounded);
      if (kTakesTurns && threadIdx.x == 0) {
        work.turn = turn_of<Block>(p, sequence, tile(), key());
        work.turn.wait();
      }
      __syncthreads();  // All of dS^T has been written, and it is the block's turn.
      Block::template add_grad_q<0>(p.grad_q_accum, sequence, shared, tile, work.turn);
      if constexpr (Block::kQueryParts == 2) {
        Block::template add_grad_q<1>(p.grad_q_accum, sequence, shared, tile, work.turn);
      }
      accumulate<T, D, Block::kRows>(grad_k, rounded, q);
    }
    if constexpr (!kOrdered) advance(current);
  }
  wait_for_copies();
  if constexpr (kTakesTurns) {
    __syncthreads();
    if (threadIdx.x == 0 && steps > 0) work.turn.pass();
  }
  const int rows = sequence.mask().keys - key();
  const int warp_row = kComputesAgain ? thread_index<(D <= 128)>() / kWarpSize * 16 : warp * 16;
  const auto target_k = sequence.template key_rows<T>(p.grad_k, head());
  const auto target_v = sequence.template key_rows<T>(p.grad_v, head());
  if constexpr (kGradK) {
    store_gradient<D, Block::kKeys>(grad_k, p.score.scale, shared, warp_row, target_k, key(), rows, p.dim);
  }
  if constexpr (kGradV) {
    uint8_t* const tile = shared + Block::kKeysBytes;
    store_gradient<V, Block::kKeys>(grad_v, 1, tile, warp_row, target_v, key(), rows, value_dims<D>(p));
  }
}

// A block's work: which tile of keys of all sequences, which head of keys, and which part.
struct KeysPlace {
  int tile, head, part;
};

// The place of a block in a grid (tiles, heads, parts). Ordered blocks take places as they begin: for each tile those
// of a few heads before the next tile, so that a block does not begin beside the ones that it waits for.
template <bool kOrdered, typename Problem>
__device__ KeysPlace keys_place(const Problem& p) {
  if constexpr (!kOrdered) return {int(blockIdx.x), int(blockIdx.y), int(blockIdx.z)};
  constexpr int kSideBySide = 8;
  const int before = blocks_before(p.progress), parts = gridDim.z, tiles = gridDim.x, index = before / parts;
  const int first_head = index / (tiles * kSideBySide) * kSideBySide, in_section = index - first_head * tiles;
  const int heads = min(int(gridDim.y) - first_head, kSideBySide);
  return {in_section / heads, first_head + in_section % heads, before % parts};
}

// Computes the gradients of a tile of keys, from first_key on, of one head. With kSplitsGradients there are two blocks
// for each, and `part` says which gradients are theirs.
template <typename T, int D, int V, typename Tuned, bool kOrdered, typename Problem, typename Sequence>
__device__ void backward_keys_tile(
    const Problem& p, const Sequence& sequence, uint8_t* shared, int kv_head, int first_key, int part) {
  if constexpr (!kRunsHere<Tuned>) {
    __trap();
  } else if constexpr (!kSplitsGradients<D, V, Tuned>) {
    compute_backward_keys_tile<T, D, V, Tuned, kOrdered, true, true>(p, sequence, shared, kv_head, first_key);
  } else if (part == 0) {
    compute_backward_keys_tile<T, D, V, Tuned, kOrdered, true, false>(p, sequence, shared, kv_head, first_key);
  } else {
    compute_backward_keys_tile<T, D, V, Tuned, kOrdered, false, true>(p, sequence, shared, kv_head, first_key);
  }
}

// Scales and rounds a tile of the accumulator, which it reads in the order in which add_grad_q leaves it: neighbours in
// a row are kWarpSize floats apart.
template <typename T, int D, int V, typename Tuned, bool kOrdered, typename Problem, typename Sequence>
__device__ void convert_tile(const Problem& p, const Sequence& sequence, int head, int tile) {
  using Block = KeysBlock<T, D, V, Tuned, kOrdered>;
  const int lane = threadIdx.x % kWarpSize, warp = threadIdx.x / kWarpSize;
  const int64_t index = sequence.first_tile(head, Block::kRows) + tile;
  const float* source = p.grad_q_accum + index * Block::kRows * D + warp * Block::kQueryRows * Block::kQueryDims + lane;
  // Nothing was stored for queries that attend to no key.
  const bool has_keys = !kOrdered || *Turn::of(p.progress, static_cast<int>(index), 0).added > 0;
  const auto scaled = [&](int i) { return has_keys ? source[i * kWarpSize] * p.score.scale : 0; };
  const auto target = sequence.template query_rows<T>(p.grad_q, head);
  const int first_row = tile * Block::kRows + warp % Block::kWarpsByRow * Block::kQueryRows + lane / 4;
  const int first_dim = warp / Block::kWarpsByRow * Block::kQueryDims + lane % 4 * 2;
#pragma unroll
  for (int i = 0; i < Block::kQueryRows * Block::kQueryDims / kWarpSize; i += 2) {
    const int row = first_row + i / (Block::kQueryDims / 2) * 16 + i / 2 % 2 * 8;
    const int dim = first_dim + i % (Block::kQueryDims / 2) / 4 * 8;
    if (row < sequence.mask().queries && dim < p.dim) {
      *reinterpret_cast<uint32_t*>(target[row] + dim) = pack<T>(scaled(i), scaled(i + 1));
    }
  }
}

}  // namespace attention::sm80
