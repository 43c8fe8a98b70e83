// The threads that share a row, where only the launch says how many: some lanes of a warp, some warps, or the blocks of
// a cluster. One kernel serves rows of all lengths so; thread_group.cuh has groups that are fixed when compiled.
//
// A group has blockDim.x threads (a power of two below a warp's 32, else whole warps) of each of its blocks, and a block
// has blockDim.y groups.

#pragma once

#include <cstdint>

#include "cluster.cuh"
#include "named_barrier.cuh"
#include "reduce.cuh"

// `kSharesBlock`: whether a block may have several groups of more than a warp. Each then has a named barrier, whose
// number is known at run time only, so the compiler reserves all 16 of a block: that limits how many blocks are resident
// on a multiprocessor.
template <bool kSharesBlock>
class RowGroup {
 public:
  static constexpr int kMaxWarps = 128;  // of a cluster

  // `of_cluster`: whether the blocks of a cluster are one group; else each has groups of its own.
  __device__ explicit RowGroup(bool of_cluster = true) : of_cluster_(of_cluster) {
    // A block may write to another's shared memory only once that one runs: all arrive here, and wait before they write.
    if (blocks() > 1) cluster::arrive();
  }

  // The group's blocks, and which of them this one is.
  __device__ int blocks() const { return of_cluster_ ? cluster::size() : 1; }
  __device__ int block() const { return of_cluster_ ? cluster::rank() : 0; }

  // The thread's number in its group.
  __device__ int rank() const { return block() * blockDim.x + threadIdx.x; }

  // The group's number in the grid, and how many there are.
  __device__ int64_t first() const { return int64_t(blockIdx.x / blocks()) * blockDim.y + threadIdx.y; }
  __device__ int64_t count() const { return int64_t(gridDim.x / blocks()) * blockDim.y; }

  // The threads of a warp that share a row; the first group of the thread's warp, counted from this one.
  __device__ int lanes() const { return blockDim.x < kWarp ? blockDim.x : kWarp; }
  __device__ int warp_lane() const { return (threadIdx.y * blockDim.x + threadIdx.x) % kWarp; }
  __device__ int groups_before_in_warp() const { return blockDim.x < kWarp ? warp_lane() / blockDim.x : 0; }

  // The sum over the lanes of a warp that share a row, in every one of them. The whole warp takes part.
  template <typename T>
  __device__ T sum_of_lanes(T value) const {
#pragma unroll
    for (int distance = 1; distance < kWarp; distance *= 2) {
      if (distance < blockDim.x) value = add_across(value, distance);
    }
    return value;
  }

  // The sum over the group, in every thread of it. All threads of the group take part, and of its warps.
  template <typename T>
  __device__ T sum(T value) {
    value = sum_of_lanes(value);
    return blockDim.x <= kWarp && blocks() == 1 ? value : sum_of_warps(value);
  }

 private:
  template <typename T>
  __device__ static T add_across(T value, int distance) {
    value += __shfl_xor_sync(0xffffffff, value, distance);
    return value;
  }

  template <typename T, int N>
  __device__ static Vector<T, N> add_across(Vector<T, N> values, int distance) {
#pragma unroll
    for (int i = 0; i < N; ++i) {
      values[i] = add_across(values[i], distance);
    }
    return values;
  }

  template <typename T>
  __device__ T sum_of_warps(T value) {
    // Double-buffered: a warp that writes to a buffer again has passed a barrier since the others read it.
    __shared__ T sums[2][kMaxWarps];
    const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp, warps = blockDim.x / kWarp;
    T* const warp_sums = sums[buffer_ ^= 1] + threadIdx.y * warps;
    if (blocks() == 1) {
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
    if (lane < blocks()) {
      *cluster::shared_of(lane, &warp_sums[block() * warps + warp]) = value;
    }
    cluster::arrive();
    cluster::wait();
    T total = T();
    for (int i = lane; i < blocks() * warps; i += kWarp) {
      total += warp_sums[i];
    }
    return warp_sum(total);
  }

  bool of_cluster_;
  int buffer_ = 0;
  bool started_ = false;
};
