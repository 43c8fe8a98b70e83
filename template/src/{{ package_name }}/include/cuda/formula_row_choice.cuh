// Which group takes a row: some lanes of a warp, a block or a cluster; and how many accesses a thread holds.

#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "formula_row_kernel.cuh"
#include "row_tensors.h"
#include "thread_group.cuh"
#include "tile.cuh"

// Whether the rows can be read by vectors.
template <typename Tensors>
bool reads_vectors(const Tensors& tensors) {
  constexpr int N = kOperandVector<typename Tensors::Element>;
  const Rows& rows = tensors.rows;
  bool vectors = rows.n % N == 0 && tensors.layout.flat;
  for (int i = 0; i < Tensors::kInputs; ++i) {
    vectors = vectors && tensors.inputs[i].vectors && tensors.inputs[i].step == 1;
  }
  return vectors;
}

// Whether the elements of each input's rows lie one after the other.
template <typename Tensors>
bool are_even(const Tensors& tensors) {
  return std::all_of(
      tensors.inputs, tensors.inputs + Tensors::kInputs, [](const auto& input) { return input.step == 1; });
}

// Whether neighbouring rows lie side by side, as those of a dimension that is not the last.
template <typename Tensors>
bool are_columns(const Tensors& tensors) {
  return tensors.layout.step != 1 && tensors.rows.dimensions > 0 && tensors.layout.strides[0] == 1;
}

// The elements that a thread holds of each input where neighbouring threads have neighbouring ones; and the most inputs
// for which it has registers then. On an H100 a rotary embedding after a norm, whose halves begin at no multiples of 16
// bytes, takes 0.40 of its time in bfloat16, 0.71 in float32; its gradient, of six inputs, would take 1.1.
constexpr int kElementsApart = 16, kMostApart = 2;

// As many rows as multiprocessors have blocks of them at once.
constexpr int64_t kFewRows = 2048;

// The lanes that share a row of few accesses.
constexpr int kFewLanes = 8;

// So many short rows that a warp of several is better than several warps.
constexpr int64_t kManyRows = 2048;

// The threads of a block for long rows: all that there can be; and the blocks that share a longer one.
constexpr int kLongThreads = 1024;
constexpr int kMostBlocks = 8;

// Whether the GPU has clusters; and how many blocks share a row, of so many accesses each if that suffices.
inline bool has_clusters() {
  return attribute(cudaDevAttrComputeCapabilityMajor) >= 9;
}

inline int blocks_of_cluster(int64_t accesses, int64_t of_block) {
  int blocks = 2;
  while (blocks < kMostBlocks && blocks * of_block < accesses) blocks *= 2;
  return blocks;
}

// Whether rows are so few that blocks which take one each would leave multiprocessors with less than they can run. Of
// more rows, blocks that write no elements read them again from a cache faster than clusters wait for each other: on an
// H100 0.85 to 0.95 of the time.
constexpr int64_t kBlocksOfLongRows = 4;  // of a multiprocessor

inline bool are_few_for_blocks(int64_t rows) {
  return 2 * rows <= kBlocksOfLongRows * attribute(cudaDevAttrMultiProcessorCount);
}

// The most inputs that are held and results that are summed for which such a block has registers.
constexpr int kLightSums = 4;

// The registers for inputs of a thread that has 64, as where 1,024 run at once; the others are for what it computes.
constexpr int kRegistersOfInputs = 32;

// Whether they suffice for so many accesses of each input.
template <typename Tensors, int kAccesses, int N>
constexpr bool kHaveRegisters =
    kAccesses * std::max(1, Tensors::kHeldInputs) * sizeof(Vector<typename Tensors::Element, N>) <=
    kRegistersOfInputs * sizeof(int);

// A bit for each input that all rows have in common.
template <typename Tensors>
int common_inputs(const Tensors& tensors) {
  int common = 0;
  for (int i = 0; i < Tensors::kInputs; ++i) {
    const auto& strides = tensors.inputs[i].strides;
    const int dimensions = std::max(1, tensors.rows.dimensions);
    common |= std::all_of(strides, strides + dimensions, [](int64_t stride) { return stride == 0; }) << i;
  }
  return common;
}

// Calls visit(kernel) with the RowKernel for rows of this length, in blocks of up to kThreads threads that hold kHeld
// accesses each. kSideBySide: rows may lie side by side. kPeels: whether the elements at a row's ends may be looked at
// last. kSummed: only for rows that a block can hold; `otherwise` is returned for others.
template <
    int kSummed,
    int kThreads,
    int kHeld,
    bool kSideBySide,
    bool kPeels,
    typename Tensors,
    typename Result,
    typename Visit>
Result visit_rows(const Tensors& tensors, Result otherwise, const Visit& visit) {
  constexpr int N = kOperandVector<typename Tensors::Element>;
  constexpr bool kSums = kSummed != 0;
  // Of wide elements an access has fewer, which leaves registers for more accesses beside sums.
  constexpr int kWideHeld = kSums && N <= 4 ? 2 * kHeld : kHeld;
  // Whether a block that has all registers of a multiprocessor has enough of them.
  constexpr bool kIsLight = !kSums || Tensors::kHeldInputs + count_bits(kSummed) <= kLightSums;
  constexpr int kLongHeld = !kIsLight || kHaveRegisters<Tensors, kWideHeld, N> ? kWideHeld : kHeld;
  if (kSums && tensors.rows.dimensions > 1) return otherwise;
  const bool aligned = reads_vectors(tensors);
  const int64_t accesses = std::max<int64_t>(1, tensors.rows.n / N);
  const bool can_hold = tensors.parts == 1 && tensors.layout.flat && (aligned || kPeels);
  // Elements that lie apart are loaded one by one, which takes registers.
  constexpr bool kHasRoom = kSums || Tensors::kHeldInputs < 2;
  constexpr int kPeeled = kHasRoom ? kHeld : std::max(1, kHeld / 2);
  const int held = aligned ? kHeld : kPeeled;
  const bool is_held = can_hold && accesses <= int64_t(kThreads) * held;
  const int threads = is_held ? threads_for(accesses, held) : kThreads;
  if constexpr (kSideBySide) {
    if (are_columns(tensors)) {
      return visit(RowKernel<ColumnGroup, 1, 0, false, 0>{ColumnGroup::kThreads, ColumnGroup::kRows});
    }
  }
  if constexpr (kSummed == 0 && kHeld > 1) {
    // A thread's latency is all of the time of few rows.
    const bool is_small = tensors.rows.count <= kFewRows && accesses > kWarp && accesses <= kThreads;
    if (aligned && is_held && is_small && tensors.rows.dimensions <= 1) {
      return visit(RowKernel<BlockGroup, N, 1, true, 0, true>{threads_for(accesses, 1), 1});
    }
  }
  if constexpr (kPeels && !kSums && kHeld > 1) {
    // As few lanes as two accesses of each suffice for: instructions are most of the time of short rows.
    constexpr int kOfLane = 2;
    const bool is_short = accesses <= kFewLanes * kOfLane && tensors.rows.count >= kManyRows;
    if (aligned && is_held && is_short && tensors.rows.dimensions <= 1) {
      constexpr int kFewest = kFewLanes / 2, kThreadsOfBlock = kLaneGroupThreads;
      if (accesses <= kFewest * kOfLane) {
        using Kernel = RowKernel<LaneGroup<kFewest>, N, kOfLane, true, 0, true>;
        return visit(Kernel{kThreadsOfBlock, kThreadsOfBlock / kFewest});
      }
      using Kernel = RowKernel<LaneGroup<kFewLanes>, N, kOfLane, true, 0, true>;
      return visit(Kernel{kThreadsOfBlock, kThreadsOfBlock / kFewLanes});
    }
  }
  if constexpr (kPeels) {  // Running totals take whole warps.
    if (aligned && is_held && accesses <= kFewLanes * kWideHeld && tensors.rows.count >= kManyRows) {
      using Group = LaneGroup<kFewLanes>;
      return visit(
          RowKernel<Group, N, kWideHeld, true, kSummed, kSums, false, kSums>{
              kLaneGroupThreads, kLaneGroupThreads / kFewLanes});
    }
  }
  if (aligned && is_held && accesses <= kWarp * kWideHeld) {
    return visit(
        RowKernel<LaneGroup<kWarp>, N, kWideHeld, true, kSummed, kSums, false, kSums>{
            kLaneGroupThreads, kLaneGroupThreads / kWarp});
  }
  constexpr bool kMayBeApart = Tensors::kJoined != 0 && Tensors::kCodes == 0 && Tensors::kWide == 0;
  if constexpr (kPeels && !kSums && kMayBeApart && Tensors::kHeldInputs <= kMostApart) {
    // Of parts of results, at most one begins where vectors do.
    if (!aligned && can_hold && are_even(tensors) && tensors.rows.n <= int64_t(kThreads) * kElementsApart) {
      const int of_row = threads_for(tensors.rows.n, kElementsApart);
      return visit(RowKernel<BlockGroup, 1, kElementsApart, false, 0>{of_row, 1});
    }
  }
  if (aligned && is_held) {
    return visit(RowKernel<BlockGroup, N, kHeld, true, kSummed, kSums, false, kSums>{threads, 1});
  }
  if constexpr (kSums && kIsLight && N > 4 && kHaveRegisters<Tensors, 2 * kHeld, N>) {
    // A multiprocessor has two such blocks: one computes while the other reduces. On an H100 0.94 of the time of one
    // that has it alone.
    if (aligned && can_hold && accesses <= int64_t(kThreads) * 2 * kHeld) {
      const int of_row = threads_for(accesses, 2 * kHeld);
      return visit(RowKernel<BlockGroup, N, 2 * kHeld, true, kSummed, true, false, true>{of_row, 1});
    }
  }
  if constexpr (kThreads < kLongThreads && kIsLight) {
    if (aligned && can_hold && accesses <= int64_t(kLongThreads) * kLongHeld) {
      const int most = threads_for(accesses, kLongHeld);
      if constexpr (kSummed == 0) {
        // Such a block has a multiprocessor alone, which would load what rows have in common for each of them.
        const bool shares = (common_inputs(tensors) & ~Tensors::kLate) != 0 && tensors.rows.dimensions <= 1;
        if (shares && tensors.rows.count > attribute(cudaDevAttrMultiProcessorCount)) {
          return visit(RowKernel<BlockGroup, N, kHeld, true, 0, true, true, true>{most, 1});
        }
      }
      return visit(RowKernel<BlockGroup, N, kLongHeld, true, kSummed, kSums, true, kSums>{most, 1});
    }
  }
  if constexpr (kPeels) {
    // Likewise blocks of two clusters. On an H100 the gradient of a layer norm takes 0.95 of the time of larger blocks.
    constexpr int kOfBlock = kIsLight ? kThreads : kThreads / 2;
    const int blocks = blocks_of_cluster(accesses, kOfBlock * kLongHeld);
    const int of_cluster = threads_for(accesses, int64_t(blocks) * kLongHeld);
    const bool fits = of_cluster <= (kIsLight ? kLongThreads : kThreads);
    const bool gains = kSums || Tensors::kResults > 0 || are_few_for_blocks(tensors.rows.count);
    if (gains && aligned && can_hold && fits && tensors.rows.dimensions <= 1 && has_clusters()) {
      return visit(RowKernel<ClusterGroup, N, kLongHeld, true, kSummed, true, kIsLight, kSums>{of_cluster, 1, blocks});
    }
  }
  if constexpr (kPeels) {
    if (is_held) return visit(RowKernel<BlockGroup, N, kPeeled, false, kSummed, kSums>{threads, 1});
  }
  if constexpr (kSummed == 0 && kPeels) {
    const bool is_int = tensors.rows.n < 1 << 30;
    if (aligned && is_int) return visit(RowKernel<BlockGroup, N, 0, true, 0, false, true>{kThreads, 1});
  }
  if constexpr (kSummed == 0) return visit(RowKernel<BlockGroup, N, 0, false, 0>{threads, 1});
  return otherwise;
}
