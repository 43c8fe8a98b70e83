// Copies of tiles between global and shared memory by the copy engine (TMA, sm_90). tma.h describes the tensors.
//
// One thread starts a copy. A load is complete when its barrier's phase ends. Stores are waited for in groups, as with
// cp.async; before one starts, what threads wrote to shared memory must be made visible with fence_async_shared.

#pragma once

#include <cuda.h>

#include <cstdint>

#include "mbarrier.cuh"
#include "shared_address.cuh"

__device__ inline void tma_prefetch_descriptor(const CUtensorMap& map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(&map) : "memory");
}

// Loads the tile of a matrix that starts at `row` and `column`. What lies outside the matrix is zeros.
__device__ inline void tma_load(void* shared, const CUtensorMap& map, int row, int column, MBarrier& barrier) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, { %3, %4}], [%2];" ::"r"(
          shared_address(shared)),
      "l"(&map),
      "r"(shared_address(&barrier)),
      "r"(column),
      "r"(row)
      : "memory");
}

// Loads it into the same place of every block of the cluster whose bit is set in `blocks`, and there completes the
// barrier at the same place.
__device__ inline void tma_load_multicast(
    void* shared, const CUtensorMap& map, int row, int column, MBarrier& barrier, uint16_t blocks) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster"
      " [%0], [%1, { %3, %4}], [%2], %5;" ::"r"(shared_address(shared)),
      "l"(&map),
      "r"(shared_address(&barrier)),
      "r"(column),
      "r"(row),
      "h"(blocks)
      : "memory");
}

// Stores a tile. What lies outside the matrix is left out.
__device__ inline void tma_store(const CUtensorMap& map, const void* shared, int row, int column) {
  asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, { %2, %3}], [%1];" ::"l"(&map),
               "r"(shared_address(shared)),
               "r"(column),
               "r"(row)
               : "memory");
}

__device__ inline void tma_store_commit() {
  asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}

// Until at most so many of this thread's latest groups still read shared memory.
template <int kReading>
__device__ void tma_store_wait_read() {
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(kReading) : "memory");
}

// What this thread wrote to shared memory so far becomes visible to TMA and wgmma.
__device__ inline void fence_async_shared() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}
