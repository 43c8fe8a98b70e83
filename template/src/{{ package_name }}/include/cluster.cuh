// Blocks that run at the same time and see each other's shared memory (sm_90).

#pragma once

#include <cstdint>

#include "shared_address.cuh"

__device__ inline int cluster_block() {
  uint32_t rank;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return static_cast<int>(rank);
}

// Until every thread of the cluster is here; what each wrote before is visible to all after.
__device__ inline void cluster_sync() {
  asm volatile(
      "barrier.cluster.arrive.release.aligned;\n"
      "barrier.cluster.wait.acquire.aligned;" ::
          : "memory");
}

// Reads the four numbers at the same place in the shared memory of another block.
__device__ inline float4 load_from_block(const float4* here, int block) {
  float4 value;
  asm volatile(
      "{\n"
      ".reg .b32 remote;\n"
      "mapa.shared::cluster.u32 remote, %4, %5;\n"
      "ld.shared::cluster.v4.f32 { %0, %1, %2, %3}, [remote];\n"
      "}"
      : "=f"(value.x), "=f"(value.y), "=f"(value.z), "=f"(value.w)
      : "r"(shared_address(here)), "r"(block)
      : "memory");
  return value;
}
