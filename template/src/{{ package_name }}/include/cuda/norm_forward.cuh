// The launch of a normalisation's forward: which threads take a row, in which kernel. The kernels, and so the mathematics, are
// the op's. `Tuned` is the op's Defaults (tuning.h), or what tuned.json has in their place.

#pragma once

#include <cuda_runtime_api.h>

#include <algorithm>
#include <type_traits>

#include "norm_rows.cuh"
#include "row_norm.cuh"
#include "tile.cuh"

namespace row_norm {

// What a forward kernel is compiled for: N elements an access, the accesses that a thread holds (0: the row is too long
// for registers), the form of the rows, whether a thread may have several; and its launch bounds: the most threads of a
// block, and the blocks that a multiprocessor has registers for.
template <typename Tuned, int N_, int kAccesses_, RowForm kForm_, bool kShort_ = false>
struct ForwardConfig {
  static constexpr int kN = N_, kAccesses = kAccesses_;
  static constexpr RowForm kForm = kForm_;
  static constexpr bool kShort = kShort_;
  static constexpr int kThreads = kShort ? kLaneGroupThreads : Tuned::forward_threads;
  static constexpr int kBlocks = std::max(1, Tuned::forward_resident_threads / kThreads);
};

// Whether there is a kernel for full rows, without bounds checks: with more accesses a thread, the loads that are then in
// flight at once would take too many registers.
template <int kAccesses>
constexpr bool kHasFullForm = kAccesses <= 4;

// Calls visit(config, grid, layout) for short rows of so many accesses: a few lanes of a warp take a row, and a thread
// takes several rows where there are enough for all multiprocessors.
template <typename Tuned, int N, int kAccesses, typename Visit>
cudaError_t visit_short(RowLayout layout, int64_t accesses, const Visit& visit) {
  constexpr int kBusyThreads = 1024;  // of a multiprocessor
  const int lanes = std::min(kWarp, power_of_two_above(accesses));
  const int of_row = power_of_two_above((accesses + lanes - 1) / lanes);
  while (1 << layout.accesses_log2 < of_row) ++layout.accesses_log2;
  layout.rows_per_thread = kAccesses / of_row;
  const int64_t busy = int64_t(attribute(cudaDevAttrMultiProcessorCount)) * kBusyThreads;
  while (layout.rows_per_thread > 1 && layout.rows * lanes < busy * layout.rows_per_thread) {
    layout.rows_per_thread /= 2;
  }
  const int groups = kLaneGroupThreads / lanes, rows = groups * layout.rows_per_thread;
  const Grid grid{dim3(lanes, groups), (layout.rows + rows - 1) / rows};
  if constexpr (N > 1 && kHasFullForm<kAccesses>) {
    const bool full = layout.rows_per_thread * of_row == kAccesses && accesses == lanes * of_row;
    if (full && layout.rows % rows == 0) {
      return visit(ForwardConfig<Tuned, N, kAccesses, RowForm::kFull, true>(), grid, layout);
    }
  }
  return visit(ForwardConfig<Tuned, N, kAccesses, RowForm::kAligned, true>(), grid, layout);
}

// Calls visit(config, grid, layout) for rows that a block of `most` threads or a cluster holds, or that are read again.
template <typename Config, typename Long, typename Visit>
cudaError_t visit_many(const RowLayout& layout, int64_t vectors, int most, const Visit& visit) {
  if (vectors <= int64_t(most) * Config::kAccesses) return visit(Config(), Grid{dim3(most), layout.rows}, layout);
  int blocks = 2;
  while (blocks < kMaxCluster && int64_t(blocks) * most * Config::kAccesses < vectors) blocks *= 2;
  const int threads = threads_for(vectors, int64_t(blocks) * Config::kAccesses);
  const bool fits = threads <= most && blocks * threads <= RowGroup<false>::kMaxWarps * kWarp;
  if (fits && attribute(cudaDevAttrComputeCapabilityMajor) >= 9) {
    return visit(Config(), Grid{dim3(threads), layout.rows * blocks, blocks}, layout);
  }
  return visit(Long(), Grid{dim3(most), layout.rows}, layout);
}

// Calls visit(config, grid, layout) for the forward of rows of n elements: a group a row.
template <typename Tuned, typename T, typename Visit>
cudaError_t visit_forward(const NormTensors<T>& tensors, int64_t rows, int64_t n, const Visit& visit) {
  constexpr int N = kVectorLength<T>, kAccesses = Tuned::forward_accesses, kMost = Tuned::forward_threads;
  constexpr int kElements = 4;  // Of a short row that is not aligned, a thread holds so many elements.
  using Peeled = ForwardConfig<Tuned, N, kAccesses, RowForm::kPeeled>;
  using Long = ForwardConfig<Tuned, N, 0, RowForm::kPeeled>;
  const RowLayout layout{rows, n, 0, 1};
  const bool aligned = n % N == 0 && rows_aligned<N>(tensors.input) && rows_aligned<N>(tensors.residual) &&
                       rows_aligned<N>(tensors.weight) && rows_aligned<N>(tensors.bias) &&
                       rows_aligned<N>(tensors.output) && rows_aligned<N>(tensors.sum);
  const int64_t vectors = n / N;
  if (aligned && vectors <= kWarp * kAccesses) return visit_short<Tuned, N, kAccesses>(layout, vectors, visit);
  if (!aligned && n <= kWarp * kElements) return visit_short<Tuned, 1, kElements>(layout, n, visit);
  if (vectors <= kWarp * kAccesses) {
    constexpr int kGroups = kLaneGroupThreads / kWarp;
    return visit(Peeled(), Grid{dim3(kWarp, kGroups), (rows + kGroups - 1) / kGroups}, layout);
  }
  if (vectors <= int64_t(kMost) * kAccesses) {
    const Grid grid{dim3(threads_for(vectors, kAccesses)), rows};
    if constexpr (kHasFullForm<kAccesses>) {
      const bool full = aligned && vectors == int64_t(grid.block.x) * kAccesses;
      if (full) return visit(ForwardConfig<Tuned, N, kAccesses, RowForm::kFull>(), grid, layout);
    }
    return visit(Peeled(), grid, layout);
  }
  // A thread holds twice as many accesses of a row that a block could not hold otherwise: that is faster than a cluster,
  // whose blocks have to wait for each other. Then there are no registers left for shifting.
  using More = ForwardConfig<Tuned, N, 2 * kAccesses, RowForm::kAligned>;
  return aligned ? visit_many<More, Long>(layout, vectors, kMost, visit)
                 : visit_many<Peeled, Long>(layout, vectors, kMost, visit);
}

// Calls normalise(rows) with the rows of the group. `kBias`: whether there may be one.
template <typename Config, bool kBias, typename T, typename F>
__device__ void visit_rows(const RowLayout& layout, const NormTensors<T>& tensors, const F& normalise) {
  RowGroup<false> group;
  if constexpr (Config::kAccesses == 0) {
    LongNormRow<T, Config::kN> rows(group, layout, tensors);
    normalise(rows);
  } else {
    NormRows<T, Config::kN, Config::kAccesses, Config::kForm, Config::kShort, kBias> rows(group, layout, tensors);
    normalise(rows);
  }
}

}  // namespace row_norm
