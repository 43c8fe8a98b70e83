// Warp specialisation (sm_90a): warpgroups that produce and warpgroups that consume, with registers to match.

#pragma once

#include <cstdint>

#include "named_barrier.cuh"

// Four consecutive warps that issue wgmma together; the first one's number is a multiple of four.
constexpr int kWarpgroup = 128;

// Tells the compiler that a value is the same in all lanes of a warp, so that it computes what depends on the value
// once for the warp. The operands of wgmma have to be computed that way.
__device__ inline int same_in_warp(int value) {
  return __shfl_sync(0xffffffff, value, 0);
}

// Raises the registers of each of this warpgroup's threads to kRegisters (setmaxnreg). The whole warpgroup takes part.
template <int kRegisters>
__device__ void take_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

// Lowers them, and leaves the rest to other warpgroups of the block.
template <int kRegisters>
__device__ void give_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
}
