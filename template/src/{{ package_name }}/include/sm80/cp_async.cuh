// Asynchronous copies from global to shared memory (cp.async, sm_80 and later).
//
// A thread starts copies, closes a group of them with cp_async_commit, and waits for its groups with cp_async_wait.
// What other threads copied is visible after a __syncthreads that follows their wait.
//
// On 7.5, which has no such copies, a thread loads and stores at once, and never waits.

#pragma once

#include <cstdint>

#include "shared_address.cuh"

// Copies 16 bytes between addresses that are multiples of 16, of memory that the kernel does not write. If not `valid`:
// writes zeros and reads nothing.
__device__ inline void cp_async_16(void* shared, const void* global, bool valid) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
  // By the read-only cache, so that the compiler may start several loads before the first is stored.
  *static_cast<uint4*>(shared) = valid ? __ldg(static_cast<const uint4*>(global)) : uint4{};
#else
  asm volatile(
      "cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(shared)), "l"(global), "r"(valid ? 16 : 0)
      : "memory");
#endif
}

// Copies 4 bytes between addresses that are multiples of 4.
__device__ inline void cp_async_4(void* shared, const void* global) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
  *static_cast<uint32_t*>(shared) = __ldg(static_cast<const uint32_t*>(global));
#else
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(shared_address(shared)), "l"(global) : "memory");
#endif
}

__device__ inline void cp_async_commit() {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800
  asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}

// Waits until at most kPending of this thread's latest groups are in flight.
template <int kPending>
__device__ void cp_async_wait() {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
#endif
}
