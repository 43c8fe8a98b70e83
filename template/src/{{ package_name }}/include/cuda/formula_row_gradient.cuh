// The launch of gradients that are sums over the rows: a kernel that leaves partial sums, and one that adds them up.

#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "formula_row_launch.cuh"
#include "gradient_sums.cuh"

// Calls visit(kernel) for gradients that nothing is reduced over a row for: blocks have parts of long rows. One that
// has a whole row leaves a partial sum of each column: of long rows, half as many bytes as it reads.
template <int kSummed, int kThreads, int kHeld, typename Tensors, typename Result, typename Visit>
Result visit_parts(const Tensors& tensors, Result otherwise, const Visit& visit) {
  constexpr int N = kOperandVector<typename Tensors::Element>, kPartHeld = N <= 4 ? 2 * kHeld : kHeld;
  const Rows& rows = tensors.rows;
  if (rows.dimensions > 1 || !tensors.layout.flat) return otherwise;
  const int64_t accesses = std::max<int64_t>(1, rows.n / N);
  if (!reads_vectors(tensors)) {
    if (accesses > int64_t(kThreads) * kHeld) return otherwise;
    return visit(RowKernel<BlockGroup, N, kHeld, false, kSummed, true>{threads_for(accesses, kHeld), 1});
  }
  if (accesses <= kFewLanes * kPartHeld && rows.count >= kManyRows) {
    using Kernel = RowKernel<LaneGroup<kFewLanes>, N, kPartHeld, true, kSummed, true, false, true>;
    return visit(Kernel{kLaneGroupThreads, kLaneGroupThreads / kFewLanes});
  }
  constexpr int64_t kOfPart = kWarp * kPartHeld, kMostParts = 65535;
  const int64_t parts = (accesses + kOfPart - 1) / kOfPart;
  if (parts > kMostParts) return otherwise;
  using Kernel = RowKernel<PartGroup, N, kPartHeld, true, kSummed, true, false, true>;
  return visit(Kernel{PartGroup::kThreads, PartGroup::kThreads / kWarp, 1, static_cast<int>(parts)});
}

template <int kSummed, int kThreads, int kHeld, bool kPeels, bool kReduces, typename... Arguments>
auto visit_sums(const Arguments&... arguments) {
  if constexpr (kReduces) {
    return visit_rows<kSummed, kThreads, kHeld, false, kPeels>(arguments...);
  } else {
    return visit_parts<kSummed, kThreads, kHeld>(arguments...);
  }
}

// The rows of partial sums of such gradients, one a block: as many blocks as the multiprocessors hold at once, so that
// each adds up several rows. 0 for rows that a block cannot hold, and for few rows: blocks that add up several of them
// would leave most multiprocessors idle.
template <
    int kSummed,
    int kThreads,
    int kHeld,
    int kResidentThreads,
    bool kPeels = true,
    bool kReduces = true,
    typename Tensors>
int64_t rows_of_partial_sums(const Tensors& tensors) {
  return visit_sums<kSummed, kThreads, kHeld, kPeels, kReduces>(tensors, int64_t(0), [&](const auto& kernel) {
    const int64_t multiprocessors = attribute(cudaDevAttrMultiProcessorCount);
    const int64_t memory = attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin) - kReservedShared;
    if (shared_bytes(kernel, tensors) > memory) return int64_t(0);
    using Group = typename std::decay_t<decltype(kernel)>::Group;
    const bool is_long = !Group::kOfOneWarp || std::is_same_v<Group, PartGroup>;
    if (is_long && tensors.rows.count <= multiprocessors) return int64_t(0);
    const int64_t useful = tensors.rows.count / (kRowsPerGroup * kernel.groups_per_block);
    const int64_t most = std::max<int64_t>(1, staying_blocks<kResidentThreads>(kernel, tensors) / kernel.parts);
    const int64_t blocks = std::clamp<int64_t>(useful, 1, most);
    // Rows that are peeled begin alike where they are a multiple of N apart.
    constexpr int kMultiple = std::decay_t<decltype(kernel)>::kPeeled ? std::decay_t<decltype(kernel)>::kN : 1;
    return (blocks + kMultiple - 1) / kMultiple * kMultiple;
  });
}

// Adds up all such gradients after a kernel that has ended with `error`.
template <typename Tensors>
cudaError_t add_all_sums(const Tensors& tensors, cudaError_t error, cudaStream_t stream) {
  for (const auto& gradient : tensors.results) {
    if (error == cudaSuccess) error = add_partial_sums(gradient, tensors.rows.count, tensors.rows.n, stream);
  }
  return error;
}

// Calls launch(kernel, blocks), then adds up the partial sums.
template <
    int kSummed,
    int kThreads,
    int kHeld,
    int kResidentThreads,
    bool kPeels = true,
    bool kReduces = true,
    typename Tensors,
    typename Launch>
cudaError_t launch_sums(const Tensors& tensors, cudaStream_t stream, const Launch& launch) {
  const int64_t blocks = rows_of_partial_sums<kSummed, kThreads, kHeld, kResidentThreads, kPeels, kReduces>(tensors);
  const auto visit = [&](const auto& kernel) {
    Tensors kept = tensors;
    keep_inputs<kResidentThreads>(kernel, kept);
    launch(kernel, kept, dim3(static_cast<unsigned>(blocks * kernel.blocks_per_group), kernel.parts));
    return cudaGetLastError();
  };
  const cudaError_t error =
      visit_sums<kSummed, kThreads, kHeld, kPeels, kReduces>(tensors, cudaErrorInvalidValue, visit);
  return add_all_sums(tensors, error, stream);
}
