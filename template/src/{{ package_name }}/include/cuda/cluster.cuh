// Thread block clusters: a block's rank, the cluster's barrier, and the shared memory of its other blocks (distributed
// shared memory). From compute capability 9.0 on; on older GPUs a block is a cluster of its own, and `arrive` traps.

#pragma once

#include <cstdint>

namespace cluster {

// The block's number in its cluster, and how many blocks the cluster has.
__device__ inline int rank() {
  uint32_t value = 0;
#if __CUDA_ARCH__ >= 900
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(value));
#endif
  return value;
}

__device__ inline int size() {
  uint32_t value = 1;
#if __CUDA_ARCH__ >= 900
  asm("mov.u32 %0, %%cluster_nctarank;" : "=r"(value));
#endif
  return value;
}

// The barrier of all threads of the cluster, in two halves: what a thread wrote before `arrive`, to any block's shared
// memory, is visible after `wait`.
__device__ inline void arrive() {
#if __CUDA_ARCH__ >= 900
  asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
#else
  __trap();
#endif
}

// The same without ordering memory: for threads whose writes a fence made visible, or that wrote nothing.
__device__ inline void arrive_relaxed() {
#if __CUDA_ARCH__ >= 900
  asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
#else
  __trap();
#endif
}

__device__ inline void wait() {
#if __CUDA_ARCH__ >= 900
  asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
#endif
}

// The address, in the shared memory of the block of the given rank, of a variable that all blocks have.
template <typename T>
__device__ T* shared_of(int rank, T* variable) {
  uint64_t address = reinterpret_cast<uint64_t>(variable);
#if __CUDA_ARCH__ >= 900
  asm("mapa.u64 %0, %1, %2;" : "=l"(address) : "l"(address), "r"(rank));
#endif
  return reinterpret_cast<T*>(address);
}

}  // namespace cluster
