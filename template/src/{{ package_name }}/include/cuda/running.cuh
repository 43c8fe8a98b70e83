// Running totals over the threads of a group, in the order of their elements or, kBack, against it.

#pragma once

#include "functions.cuh"
#include "thread_group.cuh"

struct Sum {
  template <typename T>
  __device__ static T none() {
    return T(0);
  }

  template <typename T>
  __device__ static T join(T left, T right) {
    return left + right;
  }

  // Of what each thread of a group has.
  template <typename Group, typename T>
  __device__ static T across(Group& group, T value) {
    return group.sum(value);
  }
};

struct Product {
  template <typename T>
  __device__ static T none() {
    return T(1);
  }

  template <typename T>
  __device__ static T join(T left, T right) {
    return left * right;
  }

  template <typename Group, typename T>
  __device__ static T across(Group& group, T value) {
    return group.product(value);
  }
};

struct Max {
  template <typename T>
  __device__ static T none() {
    return -math::kInfinity<T>;
  }

  template <typename T>
  __device__ static T join(T left, T right) {
    return math::maximum(left, right);
  }

  template <typename Group, typename T>
  __device__ static T across(Group& group, T value) {
    return group.max(value);
  }
};

struct Min {
  template <typename T>
  __device__ static T none() {
    return math::kInfinity<T>;
  }

  template <typename T>
  __device__ static T join(T left, T right) {
    return math::minimum(left, right);
  }

  template <typename Group, typename T>
  __device__ static T across(Group& group, T value) {
    return -group.max(-value);
  }
};

// Of numbers that stand for their exponentials.
struct LogSum {
  template <typename T>
  __device__ static T none() {
    return -math::kInfinity<T>;
  }

  template <typename T>
  __device__ static T join(T left, T right) {
    const T larger = math::maximum(left, right);
    return math::is_infinite(larger) ? larger : larger + math::log1p(math::exp(-math::abs(left - right)));
  }

  template <typename Group, typename T>
  __device__ static T across(Group& group, T value) {
    const T largest = group.max(value);
    const T sum = group.sum(math::exp(value - largest));
    return math::is_infinite(largest) ? largest : largest + math::log(sum);
  }
};

// What the lanes before this one have, joined; `all` is what the whole warp has. All of the warp take part.
template <bool kBack, typename Join, typename T>
__device__ T lanes_before(T value, T* all) {
  const int lane = threadIdx.x % kWarp;
#pragma unroll
  for (int distance = 1; distance < kWarp; distance *= 2) {
    const T other = kBack ? __shfl_down_sync(0xffffffff, value, distance) : __shfl_up_sync(0xffffffff, value, distance);
    const bool is_inside = kBack ? lane + distance < kWarp : lane >= distance;
    if (is_inside) value = Join::join(other, value);
  }
  *all = __shfl_sync(0xffffffff, value, kBack ? 0 : kWarp - 1);
  const T before = kBack ? __shfl_down_sync(0xffffffff, value, 1) : __shfl_up_sync(0xffffffff, value, 1);
  return lane == (kBack ? kWarp - 1 : 0) ? Join::template none<T>() : before;
}

// What the warps of a row before this one have, joined, where each warp has one value; `all` is what all have.
template <bool kBack, typename Join, typename T>
__device__ T warps_before(const BlockGroup&, T value, T* all) {
  __shared__ T values[kWarp];
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp, warps = blockDim.x / kWarp;
  __syncthreads();  // The last call's values have been read.
  if (lane == 0) {
    values[warp] = value;
  }
  __syncthreads();
  const T before = lanes_before<kBack, Join>(lane < warps ? values[lane] : Join::template none<T>(), all);
  return __shfl_sync(0xffffffff, before, warp);
}

// A warp has the row alone.
template <bool kBack, typename Join, int kLanes, typename T>
__device__ T warps_before(const LaneGroup<kLanes>&, T value, T* all) {
  static_assert(kLanes == kWarp);
  *all = value;
  return Join::template none<T>();
}

// Each lane has a row of its own, of which each warp has a part.
template <bool kBack, typename Join, typename T>
__device__ T warps_before(const ColumnGroup& group, T value, T* all) {
  constexpr int kWarps = ColumnGroup::kWarps;
  __shared__ T values[kWarps][kWarp];
  const int lane = threadIdx.x % kWarp, warp = group.rank();
  __syncthreads();  // The last call's values have been read.
  values[warp][lane] = value;
  __syncthreads();
  T before = Join::template none<T>(), total = before;
#pragma unroll
  for (int i = 0; i < kWarps; ++i) {
    const int other = kBack ? kWarps - 1 - i : i;
    if (other == warp) before = total;
    total = Join::join(total, values[other][lane]);
  }
  *all = total;
  return before;
}
