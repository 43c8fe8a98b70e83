// Barriers for some of a block's threads. A block has 16; number 0 is that of __syncthreads.

#pragma once

// Waits until `threads` threads, whole warps, have arrived at the barrier.
__device__ inline void named_barrier_sync(int barrier, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}

// Arrives without waiting.
__device__ inline void named_barrier_arrive(int barrier, int threads) {
  asm volatile("bar.arrive %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}
