// The threads that share a row of a matrix, and can add up what each of them found in it: a few lanes of a warp for
// short rows, a block or some of its warps for longer ones, a cluster of blocks for those that one block cannot hold.
//
// A kernel is a template over its team, and goes over the rows like this:
//
//     Team team;
//     for (int64_t row = team.first(); team.in_turn(row, rows); row += team.count()) {
//       for (int64_t i = team.rank(); row < rows && i < n; i += team.size()) ...
//       const float total = team.sum(mine);
//     }
//
// All threads of a warp take equally many turns, since they have to meet in `sum`: in its last turn a team may have no
// row.

#pragma once

#include <cstdint>

#include "cluster.cuh"
#include "reduce.cuh"
#include "named_barrier.cuh"

// kLanes neighbouring threads of a warp: 1, 2, 4, ... or 32.
template <int kLanes>
struct LaneTeam {
  static constexpr bool kOfOneWarp = true;
  // Whether several teams share a block, which then is numbered instead of its teams where they add up.
  static constexpr bool kSharesBlock = true;
  // A thread's accesses of a row that it holds: from the first on, so many apart. A constant, which addresses in
  // machine code include at no cost.
  static constexpr int kStep = kLanes;

  template <int kAccesses>
  __device__ int first_access() const {
    return rank();
  }

  __device__ int rank() const { return threadIdx.x % kLanes; }
  __device__ int size() const { return kLanes; }
  __device__ int64_t first() const { return int64_t(blockIdx.x) * teams() + threadIdx.x / kLanes; }
  __device__ int64_t count() const { return int64_t(gridDim.x) * teams(); }
  __device__ bool in_turn(int64_t row, int64_t rows) const { return row - threadIdx.x / kLanes < rows; }

  template <typename T>
  __device__ T sum(T value) {
    return warp_sum<kLanes>(value);
  }

 private:
  __device__ int teams() const { return blockDim.x / kLanes; }
};

// A block of whole warps, 32 of them at most.
struct BlockTeam {
  static constexpr bool kOfOneWarp = false;
  static constexpr bool kSharesBlock = false;
  static constexpr int kStep = kWarp;

  // Each warp's accesses follow one another.
  template <int kAccesses>
  __device__ int first_access() const {
    return rank() / kWarp * kWarp * kAccesses + threadIdx.x % kWarp;
  }

  __device__ int rank() const { return threadIdx.x; }
  __device__ int size() const { return blockDim.x; }
  __device__ int64_t first() const { return blockIdx.x; }
  __device__ int64_t count() const { return gridDim.x; }
  __device__ bool in_turn(int64_t row, int64_t rows) const { return row < rows; }

  template <typename T>
  __device__ T sum(T value) {
    return sum_by(value, 0, [] { __syncthreads(); });
  }

 protected:
  // Sums of the block's warps from `begin` on; meet() waits for all threads of the team.
  template <typename T, typename Meet>
  __device__ T sum_by(T value, int begin, const Meet& meet) {
    // Two buffers by turns: whoever writes to one again has met all others since they read it.
    __shared__ T sums[2][kWarp];
    const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp, warps = blockDim.x / kWarp;
    T* const now = &sums[turn_ ^= 1][begin];
    value = warp_sum(value);
    if (lane == 0) {
      now[warp] = value;
    }
    meet();
    return warp_sum(lane < warps ? now[lane] : T());
  }

 private:
  int turn_ = 0;
};

// Some warps of a block: blockDim.x threads, in blocks of blockDim.y teams. Each team has a barrier, of which a kernel
// takes all there are for a block: only as many blocks are on a multiprocessor as it has barriers for, which are few.
struct PartTeam : BlockTeam {
  static constexpr bool kSharesBlock = true;

  __device__ int64_t first() const { return int64_t(blockIdx.x) * blockDim.y + threadIdx.y; }
  __device__ int64_t count() const { return int64_t(gridDim.x) * blockDim.y; }

  template <typename T>
  __device__ T sum(T value) {
    return sum_by(value, threadIdx.y * (blockDim.x / kWarp), [] { named_barrier_sync(1 + threadIdx.y, blockDim.x); });
  }
};

// The blocks of a cluster, at most kMaxWarps warps together. From compute capability 9.0 on.
struct ClusterTeam {
  static constexpr bool kOfOneWarp = false;
  static constexpr bool kSharesBlock = false;
  static constexpr int kStep = kWarp;
  static constexpr int kMaxWarps = 128;

  // A block must not write to another's shared memory before that one runs: they meet here, and wait before they write.
  __device__ ClusterTeam() { cluster::arrive(); }

  // Each warp's accesses follow one another.
  template <int kAccesses>
  __device__ int first_access() const {
    return rank() / kWarp * kWarp * kAccesses + threadIdx.x % kWarp;
  }

  __device__ int rank() const { return cluster::rank() * blockDim.x + threadIdx.x; }
  __device__ int size() const { return cluster::size() * blockDim.x; }
  __device__ int64_t first() const { return blockIdx.x / cluster::size(); }
  __device__ int64_t count() const { return gridDim.x / cluster::size(); }
  __device__ bool in_turn(int64_t row, int64_t rows) const { return row < rows; }

  template <typename T>
  __device__ T sum(T value) {
    __shared__ T sums[2][kMaxWarps];
    const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp, warps = blockDim.x / kWarp;
    T* const now = sums[turn_ ^= 1];
    value = warp_sum(value);
    if (!met_) {
      cluster::wait();
      met_ = true;
    }
    if (lane < cluster::size()) {
      *cluster::shared_of(lane, &now[cluster::rank() * warps + warp]) = value;
    }
    cluster::arrive();
    cluster::wait();
    T total = T();
    for (int i = lane; i < cluster::size() * warps; i += kWarp) {
      total += now[i];
    }
    return warp_sum(total);
  }

 private:
  int turn_ = 0;
  bool met_ = false;
};
