// The blocks of a thread block cluster: which of them this is, meeting the others, and their shared memory.
// From compute capability 9.0 on; on older GPUs there are no clusters, and a kernel that asks for one stops.

#pragma once

#include <cstdint>

namespace cluster {

// The block's number in its cluster, and how many there are.
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

// Two halves of meeting every thread of the cluster: what a thread wrote before it arrived, to whichever block's shared
// memory, is seen by those that have waited.
__device__ inline void arrive() {
#if __CUDA_ARCH__ >= 900
  asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
#else
  __trap();
#endif
}

// The same without a promise of what was written before: for those that made it seen by a fence.
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

// Where a variable of this block's shared memory lies in that of the block of the given rank.
template <typename T>
__device__ T* shared_of(int rank, T* variable) {
  uint64_t address = reinterpret_cast<uint64_t>(variable);
#if __CUDA_ARCH__ >= 900
  asm("mapa.u64 %0, %1, %2;" : "=l"(address) : "l"(address), "r"(rank));
#endif
  return reinterpret_cast<T*>(address);
}

}  // namespace cluster
