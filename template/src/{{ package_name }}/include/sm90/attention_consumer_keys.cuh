// A consumer warpgroup of the backward for Hopper: its 64 keys, their gradients, and the products of a step.

#pragma once

#include <cstdint>

#include "attention_backward_work.cuh"
#include "attention_operands.cuh"
#include "exponential.cuh"
#include "mask.h"
#include "pack.cuh"
#include "score.h"

namespace attention::sm90 {
namespace bwd {

// Transposes a matrix of which each of four neighbouring threads has a row.
__device__ inline void transpose_in_quad(uint32_t (&row)[4]) {
#pragma unroll
  for (int distance = 1; distance < 4; distance *= 2) {
    const bool is_upper = threadIdx.x & distance;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if (i & distance) continue;
      uint32_t &lower = row[i], &upper = row[i | distance];
      const uint32_t other = __shfl_xor_sync(0xffffffff, is_upper ? lower : upper, distance);
      (is_upper ? lower : upper) = other;
    }
  }
}

// A consumer's 64 keys. A thread has keys thread / 32 * 16 + lane / 4 and that + 8; of an iteration's P^T and dS^T,
// those keys with the queries 8 n + lane % 4 * 2 and the next.
template <typename T, typename Tile>
struct Keys {
  using Traits = KernelTraits<Tile>;
  static constexpr int kRows = Traits::kStepRows, kKeys = Traits::kKeys, D = Traits::D, V = Traits::V;
  float grad_k[D / 2], grad_v[V / 2];  // Of wide heads, the block uses one of them.
  float weights[kRows / 2], ds[kRows / 2];

  // The consumer's index.
  const int consumer = same_in_warp(threadIdx.x / kWarpgroup - 1);

  __device__ __forceinline__ void clear() {
#pragma unroll
    for (int i = 0; i < D / 2; ++i) grad_k[i] = 0;
#pragma unroll
    for (int i = 0; i < V / 2; ++i) grad_v[i] = 0;
  }

  // acc = keys rows^T, for this consumer's rows of the tile of keys (or values), which have kDims dimensions. Like all
  // that follow, it only issues the GEMM.
  template <int kDims>
  __device__ __forceinline__ void multiply_transposed(
      float (&acc)[kRows / 2], const char* keys, const char* rows) const {
    const uint64_t a = wgmma_operand(keys + consumer * kWgmmaRows * kSwizzleRow), b = wgmma_operand(rows);
    wgmma_pin(acc);
    wgmma_fence();
#pragma unroll
    for (int step = 0; step < kDims; step += kWgmmaDepth) {
      wgmma<T>(acc, a + skip_columns<kKeys>(step), b + skip_columns<kRows>(step), step > 0);
    }
    wgmma_commit();
  }

  // acc += a rows, with `a` from registers.
  template <int kSize>
  __device__ __forceinline__ static void accumulate(
      float (&acc)[kSize], uint32_t (&a)[kRows / 16][4], const char* rows) {
    const uint64_t b = wgmma_operand(rows, kPanelBytes<kRows>);
    wgmma_pin(acc);
    wgmma_pin(a);
    wgmma_fence();
#pragma unroll
    for (int step = 0; step < kRows; step += kWgmmaDepth) {
      wgmma<T, Transposed::kB>(acc, a[step / kWgmmaDepth], b + skip_rows(step));
    }
    wgmma_commit();
  }

  // compute_p: in place of k q^T.
  __device__ __forceinline__ void compute_p(
      const Score& score, const Mask& mask, const float* lse, int first_key, int first_row) {
    const int thread = threadIdx.x % kWarpgroup, lane = thread % 32;
    const int key = first_key + thread / 32 * 16 + lane / 4, row = first_row + lane % 4 * 2;
    if (score.transforms()) {
#pragma unroll
      for (int i = 0; i < kRows / 2; ++i) weights[i] = score.transform(weights[i]);
    }
#pragma unroll
    for (int n = 0; n < kRows / 8; ++n) {
      const float2 pair = reinterpret_cast<const float2*>(lse)[n * 4 + lane % 4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        // The difference is taken before log2(e) is multiplied in, so that the weight of a row's only key is exactly 1.
        const float scaled = __fmul_rn(weights[n * 4 + i], score.scale);
        weights[n * 4 + i] = exp2_fast((scaled - (i % 2 ? pair.y : pair.x)) * kLog2E);
      }
    }
    if (mask.allows_all(first_row, first_row + kRows, first_key, first_key + kWgmmaRows)) return;
#pragma unroll
    for (int n = 0; n < kRows / 8; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        if (!mask.allows(row + n * 8 + i % 2, key + i / 2 * 8)) weights[n * 4 + i] = 0;
      }
    }
  }

  __device__ __forceinline__ void accumulate_grad_v(const char* grad) {
    uint32_t rounded[kRows / 16][4];
    round_to<T>(rounded, weights);
    accumulate(grad_v, rounded, grad);
  }

  // Also writes dS^T to this consumer's rows of a tile. If there is one tile, every consumer has to have waited for the
  // last iteration's GEMM that read it.
  __device__ __forceinline__ void accumulate_grad_k(const char* q, char* tile) {
    uint32_t rounded[kRows / 16][4];
    round_to<T>(rounded, ds);
    accumulate(grad_k, rounded, q);
    if constexpr (Tile::kDsTiles == 1) named_barrier_sync(kConsumersBarrier, Traits::kConsumers * kWarpgroup);
    store_ds(rounded, tile);
    fence_async_shared();
  }

  __device__ __forceinline__ void store_ds(const uint32_t (&rounded)[kRows / 16][4], char* tile) const {
    store_rows<T, kKeys>(tile, consumer * kWgmmaRows, rounded);
  }

  // compute_ds: in place of v grad^T.
  __device__ __forceinline__ void compute_ds(const Score& score, const float* lse, const float* delta) {
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int n = 0; n < kRows / 8; ++n) {
      const float2 pair = reinterpret_cast<const float2*>(delta)[n * 4 + lane % 4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        float& value = ds[n * 4 + i];
        value = weights[n * 4 + i] * (value - (i % 2 ? pair.y : pair.x));
      }
    }
    if (!score.transforms()) return;
#pragma unroll
    for (int n = 0; n < kRows / 8; ++n) {
      const float2 pair = reinterpret_cast<const float2*>(lse)[n * 4 + lane % 4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        ds[n * 4 + i] *= score.derivative_at(weights[n * 4 + i], i % 2 ? pair.y : pair.x);
      }
    }
  }

  // A consumer's share of grad_q of wide heads: kWhole panels and, where their number is odd, half of the columns of
  // the panel in the middle.
  static constexpr int kWhole = D / kPanel / Traits::kConsumers;
  static constexpr bool kHasHalf = D / kPanel % Traits::kConsumers != 0;

  __device__ __forceinline__ int whole_column() const { return consumer * (kWhole + kHasHalf) * kPanel; }
  __device__ __forceinline__ int half_column() const { return kWhole * kPanel + consumer * kPanel / 2; }

  // sums = dS keys, for columns from `column` on.
  template <int kSize>
  __device__ __forceinline__ static void multiply_columns(
      float (&sums)[kSize], const char* ds_tile, const char* keys, int column) {
    const uint64_t a = wgmma_operand(ds_tile);
    const uint64_t b = wgmma_operand(keys, kPanelBytes<kKeys>) + skip_columns<kKeys>(column);
    wgmma_pin(sums);
    wgmma_fence();
#pragma unroll
    for (int step = 0; step < kKeys; step += kWgmmaDepth) {
      wgmma<T, Transposed::kBoth>(sums, a + skip_rows(step), b + skip_rows(step), step > 0);
    }
    wgmma_commit();
  }

  // Adds such columns to the accumulator of grad_q, or stores them there or in shared memory: in the order of registers
  // and threads.
  template <int kSize>
  __device__ __forceinline__ static void add_columns(float* tile, const float (&sums)[kSize], int column, bool stores) {
    float4* target = reinterpret_cast<float4*>(tile + column * kWgmmaRows) + threadIdx.x % kWarpgroup;
#pragma unroll
    for (int n = 0; n < kSize / 4; ++n) {
      const float4 values = {sums[4 * n], sums[4 * n + 1], sums[4 * n + 2], sums[4 * n + 3]};
      if (stores) {
        target[n * kWarpgroup] = values;
      } else {
        atomicAdd(target + n * kWarpgroup, values);
      }
    }
  }

  // Stores such columns of a single tile: what grad_q has of them, scaled. The four threads of a row exchange what they
  // have, so that each stores 16 bytes.
  template <int kSize, typename Rows>
  __device__ __forceinline__ static void store_columns(
      const View& view, const Rows& rows, int dim, const float (&sums)[kSize], float scale, int column) {
    const int thread = threadIdx.x % kWarpgroup, lane = thread % 4;
    const int row = thread / 32 * 16 + thread % 32 / 4;
    T* target = static_cast<T*>(view.data) + rows.offset(view);
#pragma unroll
    for (int n = 0; n < kSize / 4; n += 4) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        uint32_t chunk[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const float* pair = sums + 4 * (n + i) + 2 * half;
          chunk[i] = pack<T>(pair[0] * scale, pair[1] * scale);
        }
        transpose_in_quad(chunk);
        const int of_half = row + half * 8, first = column + 8 * (n + lane);
        if (of_half < rows.count && first < dim) {
          const uint4 bits = {chunk[0], chunk[1], chunk[2], chunk[3]};
          *reinterpret_cast<uint4*>(target + int64_t(of_half) * view.row + first) = bits;
        }
      }
    }
  }

  // In the order of registers and threads, which convert_tile undoes; of a single tile as grad_q has it.
  template <int kSize>
  __device__ __forceinline__ void store_grad_q(char* shared, float (&sums)[kSize], float scale, bool single) const {
    char* share = shared + Traits::kSharesOffset + consumer * Traits::kShareBytes;
    named_barrier_sync(kShareEmpty + consumer, kWarpgroup + kWarp);
    if (single) {
#pragma unroll
      for (int i = 0; i < kSize; ++i) sums[i] *= scale;
      uint32_t rounded[kSize / 8][4];
      round_to<T>(rounded, sums);
      store_rows<T, kWgmmaRows>(share, 0, rounded);
    } else {
      float4* target = reinterpret_cast<float4*>(share);
#pragma unroll
      for (int n = 0; n < kSize / 4; ++n) {
        target[n * kWarpgroup + threadIdx.x % kWarpgroup] = {
            sums[4 * n], sums[4 * n + 1], sums[4 * n + 2], sums[4 * n + 3]};
      }
    }
    fence_async_shared();
    named_barrier_arrive(kShareFull + consumer, kWarpgroup + kWarp);
  }

  // The epilogue: writes a gradient by way of this consumer's rows of a tile that is no longer read.
  template <int kSize, typename Tensor, typename Sequence>
  __device__ __forceinline__ void store(
      char* tile, float (&acc)[kSize], float scale, const Tensor& tensor, const KeyTile<Sequence>& key_tile) const {
    const int row = consumer * kWgmmaRows;
#pragma unroll
    for (int i = 0; i < kSize; ++i) acc[i] *= scale;
    uint32_t rounded[kSize / 8][4];
    round_to<T>(rounded, acc);
    store_rows<T, kKeys>(tile, row, rounded);
    fence_async_shared();
    named_barrier_sync(kWarpgroupBarrier + consumer, kWarpgroup);
    if (threadIdx.x % kWarpgroup == 0) {
#pragma unroll
      for (int panel = 0; panel * kPanel < 2 * kSize; ++panel) {
        const int first_row = key_tile.tile * kKeys + row;
        const auto target = tensor.coordinates(key_tile.sequence.keys(), key_tile.head, first_row, panel * kPanel);
        tma_store(tensor.map, tile + panel * kPanelBytes<kKeys> + row * kSwizzleRow, target);
      }
      tma_store_commit();
    }
  }

  // The epilogue of a split: leaves a gradient for convert_tile to add up.
  template <int kSize>
  __device__ __forceinline__ void store_sums(float* tile, const float (&acc)[kSize]) const {
    float4* target = reinterpret_cast<float4*>(tile + consumer * kWgmmaRows * 2 * kSize);
#pragma unroll
    for (int n = 0; n < kSize / 4; ++n) {
      target[n * kWarpgroup + threadIdx.x % kWarpgroup] = {acc[4 * n], acc[4 * n + 1], acc[4 * n + 2], acc[4 * n + 3]};
    }
  }
};

// Where a split leaves its sums for a tile of keys: grad_k, then grad_v, each for one consumer's keys after the
// other's, in the order of registers and threads.
template <typename Traits, typename Backward>
__device__ float* split_sums(const Backward& p, int64_t tile, int split) {
  return p.split_sums + (tile * p.group_splits + split) * Traits::kKeys * (Traits::D + Traits::V);
}

}  // namespace bwd
}  // namespace attention::sm90
