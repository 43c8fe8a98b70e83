// What the warps of a block that do different work need (sm_90a): registers to give away, and barriers of their own.

#pragma once

#include <cstdint>

// Four warps that issue wgmma together. The first of them has a number that is a multiple of four.
constexpr int kWarpgroup = 128;

// A value that is the same in all lanes of a warp; by way of this the compiler knows it too, and computes what follows
// from it once for the warp. Of the operands of wgmma, with which it matters, all that varies is such.
__device__ inline int same_in_warp(int value) {
  return __shfl_sync(0xffffffff, value, 0);
}

// From here on this warpgroup's threads have so many registers each. All of the warpgroup take part.
template <int kRegisters>
__device__ void take_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

template <int kRegisters>
__device__ void give_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

// The block's barrier of that number, of 16, for so many threads. Number 0 is that of __syncthreads.
__device__ inline void named_barrier_sync(int barrier, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}

// Arrives without waiting: the others of the barrier need not wait for this thread any more.
__device__ inline void named_barrier_arrive(int barrier, int threads) {
  asm volatile("bar.arrive %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}
