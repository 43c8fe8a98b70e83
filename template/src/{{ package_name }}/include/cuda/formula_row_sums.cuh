// Sums over the rows that a block has computed, for gradients of what all rows have in common.

#pragma once

#include <cstdint>
#include <type_traits>

#include "cluster.cuh"
#include "row_tensors.h"
#include "thread_group.cuh"
#include "vector.cuh"
#include "widen.cuh"

// The sums over the rows of each result of which Kernel::kSummed has a bit, in shared memory: a thread has those of its
// own accesses, and no other thread touches them before the end. Registers would hold twice as few accesses.
template <typename Kernel, typename Tensors>
class RowSums {
 public:
  using Sum = accumulate_t<typename Tensors::Element>;
  static constexpr int N = Kernel::kN, kHeld = Kernel::kHeld;
  static constexpr int kCount = count_bits(Kernel::kSummed);
  using Terms = Vector<Sum, N>[kCount + 1];

  // The number of a result among those that may be summed.
  __host__ __device__ static constexpr int number_of(int result) {
    return count_bits(Kernel::kSummed & ((1 << result) - 1));
  }

  // The dynamic shared memory of a block with so many sums, in bytes.
  __host__ __device__ static constexpr int64_t bytes(int threads, int sums) {
    return int64_t(sizeof(Sum)) * N * kHeld * sums * threads;
  }

  __device__ RowSums(void* shared, int sums) : own_(static_cast<Part*>(shared) + threadIdx.x) {
    if constexpr (kCount > 0) {
      for (int i = 0; i < sums * kHeld * kParts; ++i) own_[i * blockDim.x] = Part();
    }
  }

  // Adds the terms of an access of the results that are summed.
  __device__ void add(const Tensors& tensors, int access, const Terms& terms) {
#pragma unroll
    for (int i = 0; i < Tensors::kResults; ++i) {
      if (!is_summed(tensors, i)) continue;
#pragma unroll
      for (int part = 0; part < kParts; ++part) {
        Part& sum = own_[place(tensors, i, access, part)];
        Part total = sum;
#pragma unroll
        for (int k = 0; k < kLength; ++k) total[k] += terms[number_of(i)][part * kLength + k];
        sum = total;
      }
    }
  }

  // Adds a term of an element at a peeled row's ends.
  __device__ void add_edge(int i, Sum term) { edges_[i] += term; }

  // Writes the block's row of partial sums.
  template <typename Group>
  __device__ void write(const Group& group, const Tensors& tensors) {
    if (Group::kSharesBlock) __syncthreads();
#pragma unroll
    for (int i = 0; i < Tensors::kResults; ++i) {
      if (!is_summed(tensors, i)) continue;
      const auto& gradient = tensors.results[i];
      const int block = blockIdx.x / (std::is_same_v<Group, ClusterGroup> ? cluster::size() : 1);
      Sum* const row = gradient.partial + block * gradient.partial_stride;
      write_row(group, tensors, i, row);
    }
  }

 private:
  static constexpr int kLength = kVectorLength<Sum>, kParts = N / kLength;
  using Part = Vector<Sum, kLength>;

  __device__ static bool is_summed(const Tensors& tensors, int i) {
    return (Kernel::kSummed >> i & 1) && tensors.results[i].is_summed_by_kernel();
  }

  // Where a part of an access of a result's sums lies.
  __device__ static int place(const Tensors& tensors, int result, int access, int part) {
    int slot = 0;
#pragma unroll
    for (int i = 0; i < result; ++i) slot += is_summed(tensors, i);
    return ((slot * kHeld + access) * kParts + part) * blockDim.x;
  }

  template <typename Group>
  __device__ void write_row(const Group& group, const Tensors& tensors, int i, Sum* row) const {
    if constexpr (Group::kSharesBlock) return write_sums_of_groups(group, tensors, i, row);
    // All rows of a peeled block begin alike: there are a multiple of N blocks.
    const typename Kernel::Start start(group.first(), static_cast<int>(tensors.rows.n));
#pragma unroll
    for (int access = 0; access < kHeld; ++access) {
      const int number = group.template first_access<kHeld>() + access * Group::kStep;
      if (number >= start.accesses) continue;
#pragma unroll
      for (int part = 0; part < kParts; ++part) {
        const Part sum = own_[place(tensors, i, access, part)];
        Sum* const out = row + start.first(number) + part * kLength;
        if constexpr (Kernel::kPeeled) {
#pragma unroll
          for (int k = 0; k < kLength; ++k) out[k] = sum[k];
        } else {
          store(out, 0, sum);
        }
      }
    }
    if constexpr (Kernel::kPeeled) {
      if (group.rank() < start.edges) row[start.edge(group.rank())] = edges_[i];
    }
  }

  // Of groups that share a block: the sums of all of them, in their order.
  template <typename Group>
  __device__ void write_sums_of_groups(const Group& group, const Tensors& tensors, int i, Sum* row) const {
    constexpr int kLanes = Group::kStep, kAll = kHeld * kParts * kLanes;
    const Part* const first = own_ - threadIdx.x;
    const int first_access = group.template first_access<kHeld>() - threadIdx.x % kLanes;
    for (int number = threadIdx.x; number < kAll; number += blockDim.x) {
      const int lane = number % kLanes, part = number / kLanes % kParts, access = number / kLanes / kParts;
      const int column = (first_access + access * kLanes + lane) * N + part * kLength;
      if (column >= tensors.rows.n) continue;
      const Part* const sums = first + place(tensors, i, access, part) + lane;
      Part total = sums[0];
      for (unsigned other = kLanes; other < blockDim.x; other += kLanes) total += sums[other];
      store(row + column, 0, total);
    }
  }

  Part* own_;
  Sum edges_[Tensors::kResults + 1] = {};  // of a row that is peeled
};
