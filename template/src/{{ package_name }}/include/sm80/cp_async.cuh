// Copies from global to shared memory that run while the thread goes on (sm_80 and later).
//
// A thread starts copies, closes a group of them with cp_async_commit, and later waits until at most so many of its
// latest groups are under way. What other threads copied is there after a __syncthreads that follows their wait.

#pragma once

#include <cstdint>

#include "shared_address.cuh"

// Copies 16 bytes between addresses that are multiples of 16; or writes 16 bytes of zeros and reads nothing.
__device__ inline void cp_async_16(void* shared, const void* global, bool valid) {
  asm volatile(
      "cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(shared)), "l"(global), "r"(valid ? 16 : 0)
      : "memory");
}

__device__ inline void cp_async_commit() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}

template <int kUnderWay>
__device__ void cp_async_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kUnderWay) : "memory");
}
