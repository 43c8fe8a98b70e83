// The kernel after the backward for Hopper: float32 sums, in the order in which consumers left them, become gradients.

#pragma once

#include <algorithm>
#include <cstdint>

#include "attention_backward_work.cuh"
#include "attention_consumer_keys.cuh"
#include "attention_turns.cuh"
#include "dependent_launch.cuh"
#include "pack.cuh"

namespace attention::sm90 {
namespace bwd {

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
