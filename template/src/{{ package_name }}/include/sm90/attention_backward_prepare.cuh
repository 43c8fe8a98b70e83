// The kernel before the backward for Hopper: row statistics, and zeros for what blocks add to.

#pragma once

#include <cmath>
#include <cstdint>

#include "attention_backward_work.cuh"
#include "attention_turns.cuh"
#include "dependent_launch.cuh"
#include "vector.cuh"

namespace attention::sm90 {
namespace bwd {

constexpr int kPrepareThreads = 128, kPrepareSteps = 2;
template <typename Tile>
constexpr int kDeltaLanes = Tile::kValueDims > 64 ? 16 : 8;  // Threads of a row: 16 bytes each, up to 128 dimensions.
template <typename Tile>
constexpr int kPrepareRows = kPrepareSteps * kPrepareThreads / kDeltaLanes<Tile>;  // Rows of a block.

// Zeros the block's part of a tile's grad_q, for blocks to add to.
template <typename Tile>
__device__ void clear_grad_q(float* accum, int64_t tile, int part) {
  constexpr int kElements = kPrepareRows<Tile> * Tile::kDims;
  float4* target = reinterpret_cast<float4*>(accum + tile * Tile::kRows * Tile::kDims + part * kElements);
#pragma unroll
  for (int i = 0; i < kElements / 4 / kPrepareThreads; ++i) target[i * kPrepareThreads + threadIdx.x] = {0, 0, 0, 0};
}

// Writes the row statistics: for each step's queries the LSEs, then the deltas of its rows. Rows past the last get an
// LSE of infinity, so that their weights are 0. Also zeros what the accumulator of grad_q needs: its values or, of an
// ordered backward, the progress.
template <typename T, typename Tile, typename Sequences>
__device__ void prepare_rows(const typename Sequences::Backward& p, int block) {
  let_next_kernel_start();
  constexpr int kLength = kVectorLength<T>, kLanes = kDeltaLanes<Tile>, kBlockRows = kPrepareRows<Tile>;
  constexpr int kRows = KernelTraits<Tile>::kRows, kBlocks = kRows / kBlockRows;
  static_assert(kRows % kBlockRows == 0, "a block's rows are of one tile");
  const int64_t tile = block / kBlocks;
  const int part = block % kBlocks;
  const auto rows = Sequences::template padded_tile<kRows>(p, tile);
  if (Tile::kOrdered && block == 0 && threadIdx.x == 0) p.progress[0] = 0;
  // Also where no rows are expected: sequences whose ends do not ascend may have a tile there all the same.
  if constexpr (Tile::kOrdered) {
    if (part == 0 && threadIdx.x == 0) *Turn::of(p.progress, tile, 0).added = 0;
  }
  if (rows.count <= 0) return;
  if constexpr (!Tile::kOrdered && !Tile::kSingle) {
    if (rows.keys > 0 && !is_single<Tile>(rows.keys)) clear_grad_q<Tile>(p.grad_q_accum, tile, part);
  }
  const int lane = threadIdx.x % kLanes;
  const auto row_of = [&](int step) { return part * kBlockRows + (step * kPrepareThreads + threadIdx.x) / kLanes; };
  float sums[kPrepareSteps] = {};
#pragma unroll
  for (int step = 0; step < kPrepareSteps; ++step) {
    if (row_of(step) >= rows.count) continue;
    const auto vector_of = [&](const View& view, int access) {
      const int64_t offset = rows.offset(view) + int64_t(row_of(step)) * view.row;
      return load<kLength>(static_cast<const T*>(view.data) + offset, access);
    };
#pragma unroll
    for (int access = lane; access < Tile::kValueDims / kLength; access += kLanes) {
      if (access * kLength >= p.v.dims) break;
      const auto out = vector_of(p.out, access), grad = vector_of(p.grad, access);
#pragma unroll
      for (int i = 0; i < kLength; ++i) sums[step] += static_cast<float>(out[i]) * static_cast<float>(grad[i]);
    }
  }
#pragma unroll
  for (int step = 0; step < kPrepareSteps; ++step) {
#pragma unroll
    for (int distance = kLanes / 2; distance > 0; distance /= 2) {
      sums[step] += __shfl_xor_sync(0xffffffff, sums[step], distance);
    }
    if (lane != 0) continue;
    const int row = row_of(step);
    const bool has_query = row < rows.count;
    constexpr int kStepRows = KernelTraits<Tile>::kStepRows;
    float* stats = p.delta + 2 * (tile * kRows + row / kStepRows * kStepRows) + row % kStepRows;
    stats[0] = has_query ? p.lse[rows.number(p) + row] : INFINITY;
    stats[kStepRows] = sums[step] - (has_query && p.grad_lse ? p.grad_lse[rows.number(p) + row] : 0);
  }
}

}  // namespace bwd
}  // namespace attention::sm90
