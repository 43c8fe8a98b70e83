// What a kernel over rows of a formula is compiled for, and what its threads and blocks can be.

#pragma once

#include <cstdint>
#include <type_traits>

#include "formula_row_accesses.cuh"
#include "operand.h"
#include "thread_group.cuh"

// A warp that takes part number blockIdx.y of each of its rows: for formulas that reduce nothing, whose threads need
// not know of each other.
struct PartGroup : LaneGroup<kWarp> {
  static constexpr int kThreads = 256;  // of a block, which leaves a row of partial sums

  template <int kAccesses>
  __device__ int first_access() const {
    return blockIdx.y * kWarp * kAccesses + threadIdx.x % kWarp;
  }

  __device__ int rank() const { return blockIdx.y * kWarp + threadIdx.x % kWarp; }
  __device__ int size() const { return gridDim.y * kWarp; }
};

// What a kernel over rows is compiled for: the group that takes a row, the N elements of an access, the accesses that a
// thread holds (0: every pass reads the row again), whether rows start at multiples of 16 bytes, the results of which
// sums over the rows are written, a bit each, whether rows lie evenly, in one dimension at most, whether a block has as
// many threads as there can be, and whether groups stay for several rows.
template <
    typename Group_,
    int kN_,
    int kHeld_,
    bool kAligned_,
    int kSummed_,
    bool kEven_ = false,
    bool kLong_ = false,
    bool kStays_ = false>
struct RowKernel {
  using Group = Group_;
  static constexpr int kN = kN_;
  static constexpr int kHeld = kHeld_;
  static constexpr bool kAligned = kAligned_;
  static constexpr bool kPeeled = !kAligned && kHeld > 0;
  // Whether neighbouring threads have neighbouring elements: however tensors lie, a warp reads whole sectors.
  static constexpr bool kApart = kPeeled && kN == 1;
  static constexpr int kSummed = kSummed_;
  static constexpr bool kEven = kEven_;
  static constexpr bool kLong = kLong_;
  static constexpr bool kStays = kStays_;
  using Index = std::conditional_t<(kHeld > 0 || kLong), int, int64_t>;
  using Start = std::conditional_t<kPeeled, PeeledStart<kN>, RowStart<kN, kAligned, Index>>;

  dim3 block() const { return dim3(threads); }

  int threads;  // of a block
  int64_t groups_per_block;
  int blocks_per_group = 1;  // more than 1 for clusters
  int parts = 1;             // of a row, which blocks take apart
};

// The place of a row. Where rows lie evenly for sure, a kernel has no code for others: what few rows cost most is their
// latency, and a part of it is that of instructions which no cache has.
template <typename Kernel>
__device__ RowIndex row_index(const Rows& rows, int64_t row) {
  if constexpr (Kernel::kEven) return RowIndex(row);
  return RowIndex(rows, row);
}
