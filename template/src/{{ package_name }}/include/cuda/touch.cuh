// Brings memory to the L2 cache before it is read, without waiting for it.
//
// A kernel that reads parameters only once a row's sum is known waits for them as long as for the row itself, unless
// other blocks have read them before: where there are few blocks that is most of its time.

#pragma once

#include "vector.cuh"

// Reads a byte, whose value nobody uses.
template <typename T>
__device__ void touch(const T* pointer) {
  uint32_t unused;
  asm volatile("ld.volatile.global.u8 %0, [%1];" : "=r"(unused) : "l"(pointer));
}

// A row of parameters, by a block of few; it may be null. Of long rows every block would touch too much.
template <typename T>
__device__ void touch_parameters(const T* row, int64_t n) {
  constexpr int kFewBlocks = 192, kMostBytes = 32 * 1024;
  if (!row || gridDim.x > kFewBlocks || n * sizeof(T) > kMostBytes) return;
  const int thread = threadIdx.y * blockDim.x + threadIdx.x, threads = blockDim.x * blockDim.y;
#pragma unroll 1  // Mostly it is one iteration.
  for (int64_t i = int64_t(thread) * kVectorLength<T>; i < n; i += int64_t(threads) * kVectorLength<T>) {
    touch(row + i);
  }
}
