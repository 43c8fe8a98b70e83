// The launch of kernels over rows of a formula: their bounds, shared memory and grids.

#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "cluster.cuh"
#include "dependent_launch.cuh"
#include "formula_row_choice.cuh"
#include "formula_row_held.cuh"
#include "formula_row_sums.cuh"

// The threads that a multiprocessor has registers for.
template <typename Kernel, int kResidentThreads>
constexpr int resident_threads_of() {
  if (Kernel::kLong) return kLongThreads;
  // A warp that holds several rows has all of their numbers too.
  const bool is_wide = Kernel::kSummed != 0 && Kernel::kN <= 4 && Kernel::Group::kOfOneWarp;
  return is_wide ? kResidentThreads / 4 * 3 : kResidentThreads;
}

// The launch bounds of a kernel for rows.
template <typename Kernel, int kMostThreads, int kResidentThreads>
struct RowBounds {
  static constexpr bool kColumns = std::is_same_v<typename Kernel::Group, ColumnGroup>;
  static constexpr bool kParts = std::is_same_v<typename Kernel::Group, PartGroup>;
  static constexpr int kThreads = kColumns                             ? ColumnGroup::kThreads
                                  : kParts                             ? PartGroup::kThreads
                                  : Kernel::kLong && Kernel::kHeld > 0 ? kLongThreads
                                  : Kernel::Group::kOfOneWarp          ? kLaneGroupThreads
                                                                       : kMostThreads;
  // Of rows that no block can hold, some blocks load while others wait for each other.
  static constexpr int kResident = resident_threads_of<Kernel, kResidentThreads>();
  static constexpr int kBlocks = kColumns || Kernel::kLong ? kLongThreads / kThreads
                                 : Kernel::kHeld == 0      ? 1
                                                           : kResident / kThreads;
};

// What a thread copies of each input that waits, in bytes.
template <typename Kernel, typename Tensors>
constexpr size_t kWaitingBytes = HeldRow<Kernel, Tensors>::Waiting::bytes(1, 1);

// The blocks that a multiprocessor has registers for.
template <int kResidentThreads, typename Kernel>
int64_t blocks_by_registers(const Kernel& kernel) {
  return std::max(1, resident_threads_of<Kernel, kResidentThreads>() / kernel.threads);
}

// The dynamic shared memory of a block, in bytes: sums over the rows, and what waits.
template <typename Kernel, typename Tensors>
int64_t shared_bytes(const Kernel& kernel, const Tensors& tensors) {
  size_t bytes = 0;
  if constexpr (Kernel::kSummed != 0) bytes += RowSums<Kernel, Tensors>::bytes(kernel.threads, tensors.summed);
  if constexpr (Kernel::kStays) bytes += kWaitingBytes<Kernel, Tensors> * kernel.threads * count_bits(tensors.waiting);
  return bytes;
}

// Static shared memory of a block, and what CUDA reserves, in bytes.
constexpr int64_t kReservedShared = 4096;

// Chooses what the threads of a kernel keep, and what waits in shared memory, as far as that has room beside other
// blocks.
template <int kResidentThreads, typename Kernel, typename Tensors>
void keep_inputs(const Kernel& kernel, Tensors& tensors) {
  if constexpr (Kernel::kStays) {
    const int64_t memory = attribute(cudaDevAttrMaxSharedMemoryPerMultiprocessor);
    const int64_t most = attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin);
    const int64_t room = std::min(memory / blocks_by_registers<kResidentThreads>(kernel), most) - kReservedShared;
    tensors.common = common_inputs(tensors);
    tensors.waiting = 0;
#ifndef NO_WAITING
    const int64_t bytes = kWaitingBytes<Kernel, Tensors> * kernel.threads;
    for (int i = 0; i < Tensors::kInputs; ++i) {
      const bool may_wait = HeldRow<Kernel, Tensors>::is_held(i) && !(tensors.common >> i & 1);
      if (may_wait && shared_bytes(kernel, tensors) + bytes <= room) tensors.waiting |= 1 << i;
    }
#endif
  }
}

// Launches a kernel over rows; cudaGetLastError() has its error.
template <typename Kernel, typename Tensors, typename... Parameters, typename... Arguments>
void launch_row_kernel(
    void (*kernel)(Parameters...),
    const Kernel& row,
    dim3 grid,
    cudaStream_t stream,
    const Tensors& tensors,
    const Arguments&... arguments) {
  const size_t shared = shared_bytes(row, tensors);
  if constexpr (std::is_same_v<typename Kernel::Group, ClusterGroup>) {
    launch(kernel, row, grid.x, shared, stream, tensors, arguments...);
    return;
  }
  if (allow_shared(kernel, shared) != cudaSuccess) return;
  if (tensors.totals) {
    launch_dependent(kernel, grid, dim3(row.threads), shared, stream, tensors, arguments...);
  } else {
    kernel<<<grid, row.threads, shared, stream>>>(tensors, arguments...);
  }
}

// The groups that stay, or the blocks of several: as many as the multiprocessors hold at once, by registers and shared
// memory. Of clusters some fewer: a cluster's blocks share a part of the GPU, which may have multiprocessors left over.
template <int kResidentThreads, typename Kernel, typename Tensors>
int64_t staying_blocks(const Kernel& kernel, const Tensors& given) {
  Tensors tensors = given;
  keep_inputs<kResidentThreads>(kernel, tensors);
  const int64_t memory = attribute(cudaDevAttrMaxSharedMemoryPerMultiprocessor);
  const int64_t by_memory = memory / (shared_bytes(kernel, tensors) + kReservedShared);
  const int64_t by_registers = blocks_by_registers<kResidentThreads>(kernel);
  const int64_t per_multiprocessor = std::max<int64_t>(1, std::min(by_memory, by_registers));
  const int64_t blocks = per_multiprocessor * attribute(cudaDevAttrMultiProcessorCount);
  return kernel.blocks_per_group == 1 ? blocks : std::max<int64_t>(1, blocks * 15 / 16 / kernel.blocks_per_group);
}

// Calls launch(kernel, tensors, blocks) with a group for each row, or for each part of it: then once for each of the
// formula's reductions, and for its results. Groups that stay are as many as run at once.
template <
    int kThreads,
    int kHeld,
    int kResidentThreads,
    int kReductions,
    bool kSideBySide,
    bool kPeels = true,
    typename Tensors,
    typename Launch>
cudaError_t launch_rows(const Tensors& tensors, const Launch& launch) {
  const auto visit = [&](const auto& kernel) {
    using Kernel = std::decay_t<decltype(kernel)>;
    constexpr int64_t kMost = 1 << 30;
    if (tensors.rows.count == 0) return cudaSuccess;
    int64_t blocks = (tensors.rows.count + kernel.groups_per_block - 1) / kernel.groups_per_block;
    if constexpr (Kernel::kStays) blocks = std::min(blocks, staying_blocks<kResidentThreads>(kernel, tensors));
    const dim3 grid(static_cast<unsigned>(std::min(kMost, blocks * kernel.blocks_per_group)), tensors.parts);
    Tensors of_pass = tensors;
    keep_inputs<kResidentThreads>(kernel, of_pass);
    for (of_pass.pass = 0; of_pass.pass <= (tensors.parts > 1 ? kReductions : 0); ++of_pass.pass) {
      launch(kernel, of_pass, grid);
      if (const cudaError_t error = cudaGetLastError()) return error;
    }
    return cudaSuccess;
  };
  return visit_rows<0, kThreads, kHeld, kSideBySide, kPeels>(tensors, cudaErrorInvalidValue, visit);
}
