// The threads that share a row of a matrix, and reduce over it together: some lanes of a warp for short rows; a block,
// or some of its warps, for longer ones; a thread block cluster for rows that one block cannot hold.
//
// A kernel is a template over its thread group, and goes over the rows like this:
//
//     Group group;
//     for (int64_t row = group.first(); group.in_turn(row, rows); row += group.count()) {
//       for (int64_t i = group.rank(); row < rows && i < n; i += group.size()) ...
//       const float total = group.sum(partial);
//     }
//
// All threads of a warp run the loop equally often, because `sum` synchronises them: in its last iteration a group may
// have no row (row >= rows).

#pragma once

#include <cstdint>
#include <type_traits>

#include "cluster.cuh"
#include "named_barrier.cuh"
#include "reduce.cuh"

// kLanes neighbouring threads of a warp: 1, 2, 4, ... or 32.
template <int kLanes>
struct LaneGroup {
  static constexpr bool kOfOneWarp = true;
  // Whether several groups share a block. Column sums then leave one row a block, not one a group.
  static constexpr bool kSharesBlock = true;
  // A thread holds accesses of a row from first_access() on, kStep apart. A constant, so that it is part of the
  // instructions' immediate offsets.
  static constexpr int kStep = kLanes;

  template <int kAccesses>
  __device__ int first_access() const {
    return rank();
  }

  __device__ int rank() const { return threadIdx.x % kLanes; }
  __device__ int size() const { return kLanes; }
  __device__ int64_t first() const { return int64_t(blockIdx.x) * groups() + threadIdx.x / kLanes; }
  __device__ int64_t count() const { return int64_t(gridDim.x) * groups(); }
  __device__ bool in_turn(int64_t row, int64_t rows) const { return row - threadIdx.x / kLanes < rows; }

  template <typename T>
  __device__ T sum(T value) {
    return warp_sum<kLanes>(value);
  }

  template <typename T>
  __device__ T max(T value) {
    return warp_max<kLanes>(value);
  }

  template <typename T>
  __device__ T product(T value) {
    return warp_product<kLanes>(value);
  }

  template <typename T>
  __device__ Ranked<T> argmax(Ranked<T> best) {
    return warp_argmax<kLanes>(best);
  }

 private:
  __device__ int groups() const { return blockDim.x / kLanes; }
};

// A block of whole warps, 32 of them at most.
struct BlockGroup {
  static constexpr bool kOfOneWarp = false;
  static constexpr bool kSharesBlock = false;
  static constexpr int kStep = kWarp;

  // Each warp's accesses are consecutive.
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

  template <typename T>
  __device__ T max(T value) {
    return max_by(value, 0, [] { __syncthreads(); });
  }

  // A sum and a maximum by one barrier.
  __device__ void sum_and_max(float& value, uint32_t& largest) {
    __shared__ float sums[2][kWarp];
    __shared__ uint32_t maxima[2][kWarp];
    const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp, warps = blockDim.x / kWarp;
    buffer_ ^= 1;  // As in sum_by.
    value = warp_sum(value);
    largest = warp_max(largest);
    if (lane == 0) {
      sums[buffer_][warp] = value;
      maxima[buffer_][warp] = largest;
    }
    const int place = lane_of(warps);
    __syncthreads();
    value = warp_sum(place < warps ? sums[buffer_][place] : 0.f, warps);
    largest = warp_max(maxima[buffer_][place < warps ? place : 0]);
  }

  template <typename T>
  __device__ T product(T value) {
    return product_by(value, 0, [] { __syncthreads(); });
  }

  // Of what goes before all others, see Ranked.
  template <typename T>
  __device__ Ranked<T> argmax(Ranked<T> best) {
    return argmax_by(best, 0, [] { __syncthreads(); });
  }

 protected:
  // The block's warps from `begin` on leave a sum each; synchronise() is the barrier of the group's threads.
  template <typename T, typename Synchronise>
  __device__ T sum_by(T value, int begin, const Synchronise& synchronise) {
    // Double-buffered: a warp that writes to a buffer again has passed a barrier since the others read it.
    __shared__ T sums[2][kWarp];
    const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp, warps = blockDim.x / kWarp;
    T* const warp_sums = &sums[buffer_ ^= 1][begin];
    value = warp_sum(value);
    if (lane == 0) {
      warp_sums[warp] = value;
    }
    const int place = lane_of(warps);
    synchronise();
    return warp_sum(place < warps ? warp_sums[place] : T(), warps);
  }

  template <typename T, typename Synchronise>
  __device__ T max_by(T value, int begin, const Synchronise& synchronise) {
    __shared__ T largest[2][kWarp];
    const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp, warps = blockDim.x / kWarp;
    T* const warp_largest = &largest[max_buffer_ ^= 1][begin];
    value = warp_max(value);
    if (lane == 0) {
      warp_largest[warp] = value;
    }
    const int place = lane_of(warps);
    synchronise();
    // All lanes have some warp's, so that more of them than needed may take part: as is one instruction.
    const T of_warp = warp_largest[place < warps ? place : 0];
    return std::is_same_v<T, uint32_t> ? warp_max(of_warp) : warp_max(of_warp, warps);
  }

  template <typename T, typename Synchronise>
  __device__ T product_by(T value, int begin, const Synchronise& synchronise) {
    __shared__ T products[kWarp];
    const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp, warps = blockDim.x / kWarp;
    value = warp_product(value);
    synchronise();  // The last call's values have been read.
    if (lane == 0) {
      products[begin + warp] = value;
    }
    synchronise();
    return warp_product(lane < warps ? products[begin + lane] : T(1));
  }

  template <typename T, typename Synchronise>
  __device__ Ranked<T> argmax_by(Ranked<T> best, int begin, const Synchronise& synchronise) {
    __shared__ T largest[kWarp];
    __shared__ int64_t places[kWarp];
    const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp, warps = blockDim.x / kWarp;
    best = warp_argmax(best);
    synchronise();  // The last call's values have been read.
    if (lane == 0) {
      largest[begin + warp] = best.value;
      places[begin + warp] = best.place;
    }
    synchronise();
    const int chosen = begin + (lane < warps ? lane : 0);
    return warp_argmax(Ranked<T>{largest[chosen], places[chosen]});
  }

 private:
  int buffer_ = 0;
  int max_buffer_ = 0;
};

// Some warps of a block: blockDim.x threads, in blocks of blockDim.y groups. Each group has a named barrier. Its number
// is known at run time only, so the compiler reserves all 16 of a block: that limits how many blocks are resident on a
// multiprocessor.
struct SubBlockGroup : BlockGroup {
  static constexpr bool kSharesBlock = true;

  __device__ int64_t first() const { return int64_t(blockIdx.x) * blockDim.y + threadIdx.y; }
  __device__ int64_t count() const { return int64_t(gridDim.x) * blockDim.y; }

  template <typename T>
  __device__ T sum(T value) {
    return sum_by(value, first_warp(), synchronise);
  }

  template <typename T>
  __device__ T max(T value) {
    return max_by(value, first_warp(), synchronise);
  }

  template <typename T>
  __device__ T product(T value) {
    return product_by(value, first_warp(), synchronise);
  }

  template <typename T>
  __device__ Ranked<T> argmax(Ranked<T> best) {
    return argmax_by(best, first_warp(), synchronise);
  }

 private:
  __device__ int first_warp() const { return threadIdx.y * (blockDim.x / kWarp); }

  static __device__ void synchronise() { named_barrier_sync(1 + threadIdx.y, blockDim.x); }
};

// The lanes of a warp take neighbouring rows, and the warps of a block share the elements of each: for rows that lie
// side by side, such as those of a dimension that is not the last.
struct ColumnGroup {
  static constexpr bool kOfOneWarp = false;
  static constexpr bool kSharesBlock = true;
  static constexpr int kWarps = 8, kThreads = kWarps * kWarp;
  static constexpr int kRows = kWarp;  // of a block
  static constexpr int kStep = kWarps;

  template <int kAccesses>
  __device__ int first_access() const {
    return rank();
  }

  __device__ int rank() const { return threadIdx.x / kWarp; }
  __device__ int size() const { return kWarps; }
  __device__ int64_t first() const { return int64_t(blockIdx.x) * kRows + threadIdx.x % kWarp; }
  __device__ int64_t count() const { return int64_t(gridDim.x) * kRows; }
  __device__ bool in_turn(int64_t row, int64_t rows) const { return row - threadIdx.x % kWarp < rows; }

  template <typename T>
  __device__ T sum(T value) {
    return joined(value, [](T& total, T other) { total += other; });
  }

  template <typename T>
  __device__ T product(T value) {
    return joined(value, [](T& product, T other) { product *= other; });
  }

  template <typename T>
  __device__ T max(T value) {
    return joined(
        value, [](T& largest, T other) { largest = largest > other || largest != largest ? largest : other; });
  }

  template <typename T>
  __device__ Ranked<T> argmax(Ranked<T> best) {
    return joined(best, [](Ranked<T>& first, const Ranked<T>& other) {
      if (other.is_before(first)) first = other;
    });
  }

 private:
  // A row's values of all warps, in their order.
  template <typename T, typename Join>
  __device__ T joined(T value, const Join& join) {
    __shared__ T values[kWarps][kWarp];
    const int lane = threadIdx.x % kWarp;
    __syncthreads();  // The last call's values have been read.
    values[rank()][lane] = value;
    __syncthreads();
    T total = values[0][lane];
#pragma unroll
    for (int warp = 1; warp < kWarps; ++warp) join(total, values[warp][lane]);
    return total;
  }
};

// The blocks of a cluster, at most kMaxWarps warps in all. From compute capability 9.0 on.
struct ClusterGroup {
  static constexpr bool kOfOneWarp = false;
  static constexpr bool kSharesBlock = false;
  static constexpr int kStep = kWarp;
  static constexpr int kMaxWarps = 256;

  // A block may write to another's shared memory only once that one runs: all arrive here, and wait before they write.
  __device__ ClusterGroup() { cluster::arrive(); }

  // Each warp's accesses are consecutive.
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
    const int lane = threadIdx.x % kWarp, warps = blockDim.x / kWarp;
    T* const warp_sums = sums[buffer_ ^= 1];
    share(warp_sum(value), warp_sums);
    T total = T();
    for (int i = lane; i < cluster::size() * warps; i += kWarp) {
      total += warp_sums[i];
    }
    return warp_sum(total);
  }

  template <typename T>
  __device__ T max(T value) {
    __shared__ T largest[2][kMaxWarps];
    T* const warp_largest = largest[max_buffer_ ^= 1];
    share(warp_max(value), warp_largest);
    value = warp_largest[0];
    for (int i = threadIdx.x % kWarp; i < cluster::size() * int(blockDim.x) / kWarp; i += kWarp) {
      value = value > warp_largest[i] || value != value ? value : warp_largest[i];
    }
    return warp_max(value);
  }

  template <typename T>
  __device__ T product(T value) {
    __shared__ T products[2][kMaxWarps];
    T* const warp_products = products[product_buffer_ ^= 1];
    share(warp_product(value), warp_products);
    value = T(1);
    for (int i = threadIdx.x % kWarp; i < cluster::size() * int(blockDim.x) / kWarp; i += kWarp) {
      value *= warp_products[i];
    }
    return warp_product(value);
  }

  template <typename T>
  __device__ Ranked<T> argmax(Ranked<T> best) {
    __shared__ Ranked<T> firsts[2][kMaxWarps];
    Ranked<T>* const warp_firsts = firsts[argmax_buffer_ ^= 1];
    share(warp_argmax(best), warp_firsts);
    best = warp_firsts[0];
    for (int i = threadIdx.x % kWarp; i < cluster::size() * int(blockDim.x) / kWarp; i += kWarp) {
      if (warp_firsts[i].is_before(best)) best = warp_firsts[i];
    }
    return warp_argmax(best);
  }

 private:
  // Leaves a value of each warp in the shared memory of every block.
  template <typename T>
  __device__ void share(const T& value, T* of_warps) {
    const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp, warps = blockDim.x / kWarp;
    if (!started_) {
      cluster::wait();
      started_ = true;
    }
    if (lane < cluster::size()) {
      *cluster::shared_of(lane, &of_warps[cluster::rank() * warps + warp]) = value;
    }
    cluster::arrive();
    cluster::wait();
  }

  int buffer_ = 0;
  int max_buffer_ = 0;
  int product_buffer_ = 0;
  int argmax_buffer_ = 0;
  bool started_ = false;
};

// The names that these had, for ops that were written with them.
template <int kLanes>
using LaneTeam = LaneGroup<kLanes>;
using BlockTeam = BlockGroup;
using PartTeam = SubBlockGroup;
using ClusterTeam = ClusterGroup;
