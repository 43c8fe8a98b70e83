// The threads that share a row, where only the launch says how many: one warp, some warps, or the blocks of a cluster.
// One kernel so serves rows of all lengths; thread_group.cuh has groups that are fixed when compiled.
//
// A group has blockDim.x threads, whole warps, of each block of its cluster; a block without a cluster has blockDim.y
// groups.

#pragma once

#include <cstdint>

#include "cluster.cuh"
#include "named_barrier.cuh"
#include "reduce.cuh"

// `kSharesBlock`: whether a block may have several groups of more than a warp. Each then has a named barrier, whose
// number is known at run time only, so the compiler reserves all 16 of a block: that limits how many blocks are
// resident on a multiprocessor.
template <bool kSharesBlock>
class RowGroup {
 public:
  static constexpr int kMaxWarps = 128;  // of a cluster

  // A block may write to another's shared memory only once that one runs: all arrive here, and wait before they write.
  __device__ RowGroup() {
    if (cluster::size() > 1) cluster::arrive();
  }

  // The thread's number in its group, and how many it has.
  __device__ int rank() const { return cluster::rank() * blockDim.x + threadIdx.x; }
  __device__ int size() const { return cluster::size() * blockDim.x; }

  // The group's number in the grid, and how many there are.
  __device__ int64_t first() const { return int64_t(blockIdx.x / cluster::size()) * blockDim.y + threadIdx.y; }
  __device__ int64_t count() const { return int64_t(gridDim.x / cluster::size()) * blockDim.y; }

  // The sum over the group, in every thread of it.
  template <typename T>
  __device__ T sum(T value) {
    value = warp_sum(value);
    return blockDim.x == kWarp && cluster::size() == 1 ? value : sum_of_warps(value);
  }

 private:
  template <typename T>
  __device__ T sum_of_warps(T value) {
    // Double-buffered: a warp that writes to a buffer again has passed a barrier since the others read it.
    __shared__ T sums[2][kMaxWarps];
    const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp, warps = blockDim.x / kWarp;
    T* const warp_sums = sums[buffer_ ^= 1] + threadIdx.y * warps;
    if (cluster::size() == 1) {
      if (lane == 0) {
        warp_sums[warp] = value;
      }
      if constexpr (kSharesBlock) {
        named_barrier_sync(1 + threadIdx.y, blockDim.x);
      } else {
        __syncthreads();
      }
      return warp_sum(lane < warps ? warp_sums[lane] : T());
    }
    if (!started_) {
      cluster::wait();
      started_ = true;
    }
    if (lane < cluster::size()) {
      *cluster::shared_of(lane, &warp_sums[cluster::rank() * warps + warp]) = value;
    }
    cluster::arrive();
    cluster::wait();
    T total = T();
    for (int i = lane; i < cluster::size() * warps; i += kWarp) {
      total += warp_sums[i];
    }
    return warp_sum(total);
  }

  int buffer_ = 0;
  bool started_ = false;
};
