// Sums over the threads of a warp and of a block. They add in a fixed order, so the same input gives the same bits.

#pragma once

constexpr int kWarp = 32;

// The sum over a warp, in every one of its threads. All 32 take part.
template <typename T>
__device__ T warp_sum(T value) {
#pragma unroll
  for (int distance = kWarp / 2; distance > 0; distance /= 2) {
    value += __shfl_xor_sync(0xffffffff, value, distance);
  }
  return value;
}

// The sum over a one-dimensional block of whole warps, in every one of its threads. All of them take part.
template <typename T>
__device__ T block_sum(T value) {
  __shared__ T sums[kWarp];
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp, warps = blockDim.x / kWarp;
  value = warp_sum(value);
  __syncthreads();  // The threads that still read the last call's sums come first.
  if (lane == 0) {
    sums[warp] = value;
  }
  __syncthreads();
  return warp_sum(lane < warps ? sums[lane] : T(0));
}
