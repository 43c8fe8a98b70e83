// What both kernels of attention's backward share. With P = exp(S - lse), the backward is
//
//   delta = rowsum(grad * out)
//   grad_v = P^T grad
//   dP = grad v^T,  dS = P * (dP - delta)
//   grad_k = scale dS^T q        attention_backward_keys.cuh: a block iterates over queries for a tile of keys
//   grad_q = scale dS k          by atomics there; or, deterministic, attention_backward_queries.cuh: a block iterates
//                                over keys for a tile of queries
//
// Problem, Sequence, D and V are as in attention_forward.cuh.

#pragma once

#include <cmath>

#include "attention_rows.cuh"
#include "attention_tiles.h"
#include "exponential.cuh"
#include "pack.cuh"
#include "registers.cuh"

namespace attention::sm80 {

// acc += a b^T, for some rows of the tile a, 16 to each half, and kColumns rows of the tile b, over D.
template <typename T, int D, int kRows, int kColumns, int kHalves>
__device__ void multiply_transposed(
    Accumulator<kColumns> (&acc)[kHalves], const uint8_t* a_tile, int row, const uint8_t* b_tile) {
  const LdmatrixLane rows = LdmatrixLane::by_columns(), columns = LdmatrixLane::by_rows();
#pragma unroll
  for (int step = 0; step < D / 16; ++step) {
    Fragment a[kHalves], b;
#pragma unroll
    for (int half = 0; half < kHalves; ++half) load_rows<kRows>(a[half], a_tile, rows, row + half * 16, step * 16);
#pragma unroll
    for (int n = 0; n < kColumns / 16; ++n) {
      load_rows<kColumns>(b, b_tile, columns, n * 16, step * 16);
#pragma unroll
      for (int half = 0; half < kHalves; ++half) multiply<T>(acc[half][2 * n], acc[half][2 * n + 1], a[half], b);
    }
  }
}

// acc += a b, for rows of a in registers, 16 to each half, and the tile b of kRows rows and D columns, which may be
// fewer than acc has.
template <typename T, int D, int kRows, int kHalves, int kBlocks>
__device__ void accumulate(
    float (&acc)[kHalves][kBlocks][4], const Fragment (&a)[kHalves][kRows / 16], const uint8_t* tile) {
  const LdmatrixLane lane = LdmatrixLane::by_columns();
#pragma unroll
  for (int step = 0; step < kRows / 16; ++step) {
    Fragment b;
#pragma unroll
    for (int n = 0; n < D / 16; ++n) {
      load_transposed<kRows>(b, tile, lane, step * 16, n * 16);
#pragma unroll
      for (int half = 0; half < kHalves; ++half) multiply<T>(acc[half][2 * n], acc[half][2 * n + 1], a[half][step], b);
    }
  }
}

// An accumulator, rounded to T, as the left operand of the next GEMM.
template <typename T, int kHalves, int kSteps>
__device__ void round_to(Fragment (&a)[kHalves][kSteps], const Accumulator<kSteps * 16> (&acc)[kHalves]) {
#pragma unroll
  for (int half = 0; half < kHalves; ++half) {
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      const auto &left = acc[half][2 * step], &right = acc[half][2 * step + 1];
      a[half][step][0] = pack<T>(left[0], left[1]);
      a[half][step][1] = pack<T>(left[2], left[3]);
      a[half][step][2] = pack<T>(right[0], right[1]);
      a[half][step][3] = pack<T>(right[2], right[3]);
    }
  }
}

// The softmax weight exp(scale * transformed - lse). The difference is taken before log2(e) is multiplied in, so that
// the weight of a row's only key is exactly 1.
__device__ inline float weight(float transformed, float lse, float scale) {
  return exp2_fast((__fmul_rn(transformed, scale) - lse) * kLog2E);
}

// Writes the 16 rows of a warp's gradient, by way of rows of a tile in shared memory that no other warp uses.
template <int D, int kRows, int kBlocks, typename T>
__device__ void store_gradient(
    const float (&acc)[kBlocks][4],
    float scale,
    uint8_t* tile,
    int row,
    const Rows<T>& gradient,
    int first,
    int rows,
    int dim) {
  const int lane = thread_index<(D <= 128)>() % kWarpSize;
#pragma unroll
  for (int n = 0; n < D / 8; ++n) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      uint8_t* address = tile + tile_offset<kRows>(row + half * 8 + lane / 4, n) + lane % 4 * 4;
      *reinterpret_cast<uint32_t*>(address) = pack<T>(acc[n][2 * half] * scale, acc[n][2 * half + 1] * scale);
    }
  }
  __syncwarp();
  store_head<kRows, D>(tile, row, gradient, first, first + rows, dim / kChunk);
}

}  // namespace attention::sm80
