// Asynchronous copies from global to shared memory (cp.async, sm_80 and later).
//
// A thread starts copies, closes a group of them with cp_async_commit, and waits for its groups with cp_async_wait.
// What other threads copied is visible after a __syncthreads that follows their wait.

#pragma once

#include <cstdint>

#include "shared_address.cuh"

// Copies 16 bytes between addresses that are multiples of 16. If not `valid`: writes zeros and reads nothing.
__device__ inline void cp_async_16(void* shared, const void* global, bool valid) {
  asm volatile(
      "cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(shared)), "l"(global), "r"(valid ? 16 : 0)
      : "memory");
}

__device__ inline void cp_async_commit() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}

// Waits until at most kPending of this thread's latest groups are in flight.
template <int kPending>
__device__ void cp_async_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}
