// Copies of tiles between global and shared memory by the Tensor Memory Accelerator (TMA, sm_90). tma.h makes the
// descriptors.
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

// The same for data that is read once: its lines are the first that the L2 cache evicts.
__device__ inline void tma_load_once(void* shared, const CUtensorMap& map, int row, int column, MBarrier& barrier) {
  asm volatile(
      "{\n"
      ".reg .b64 policy;\n"
      "createpolicy.fractional.L2::evict_first.b64 policy, 1.0;\n"
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint"
      " [%0], [%1, { %3, %4}], [%2], policy;\n"
      "}" ::"r"(shared_address(shared)),
      "l"(&map),
      "r"(shared_address(&barrier)),
      "r"(column),
      "r"(row)
      : "memory");
}

// The coordinates of a tile of a four-dimensional tensor, the contiguous dimension first.
struct TmaPlace {
  int column, row, layer, volume;
};

__device__ inline void tma_load(void* shared, const CUtensorMap& map, const TmaPlace& place, MBarrier& barrier) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes"
      " [%0], [%1, { %3, %4, %5, %6}], [%2];" ::"r"(shared_address(shared)),
      "l"(&map),
      "r"(shared_address(&barrier)),
      "r"(place.column),
      "r"(place.row),
      "r"(place.layer),
      "r"(place.volume)
      : "memory");
}

// The same of a five-dimensional tensor.
struct TmaPlace5 {
  int column, row, layer, volume, last;
};

__device__ inline void tma_load(void* shared, const CUtensorMap& map, const TmaPlace5& place, MBarrier& barrier) {
  asm volatile(
      "cp.async.bulk.tensor.5d.shared::cluster.global.mbarrier::complete_tx::bytes"
      " [%0], [%1, { %3, %4, %5, %6, %7}], [%2];" ::"r"(shared_address(shared)),
      "l"(&map),
      "r"(shared_address(&barrier)),
      "r"(place.column),
      "r"(place.row),
      "r"(place.layer),
      "r"(place.volume),
      "r"(place.last)
      : "memory");
}

// Loads contiguous bytes. Their number and both addresses are multiples of 16.
__device__ inline void tma_load_bytes(void* shared, const void* global, int bytes, MBarrier& barrier) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                   shared_address(shared)),
               "l"(global),
               "r"(bytes),
               "r"(shared_address(&barrier))
               : "memory");
}

// Loads the tile of a matrix into the same place of every block of the cluster whose bit is set in `blocks`, and there
// completes the barrier at the same place.
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

__device__ inline void tma_load_once_multicast(
    void* shared, const CUtensorMap& map, int row, int column, MBarrier& barrier, uint16_t blocks) {
  asm volatile(
      "{\n"
      ".reg .b64 policy;\n"
      "createpolicy.fractional.L2::evict_first.b64 policy, 1.0;\n"
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster.L2::cache_hint"
      " [%0], [%1, { %3, %4}], [%2], %5, policy;\n"
      "}" ::"r"(shared_address(shared)),
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

__device__ inline void tma_store(const CUtensorMap& map, const void* shared, const TmaPlace& place) {
  asm volatile("cp.async.bulk.tensor.4d.global.shared::cta.bulk_group [%0, { %2, %3, %4, %5}], [%1];" ::"l"(&map),
               "r"(shared_address(shared)),
               "r"(place.column),
               "r"(place.row),
               "r"(place.layer),
               "r"(place.volume)
               : "memory");
}

__device__ inline void tma_store(const CUtensorMap& map, const void* shared, const TmaPlace5& place) {
  asm volatile("cp.async.bulk.tensor.5d.global.shared::cta.bulk_group [%0, { %2, %3, %4, %5, %6}], [%1];" ::"l"(&map),
               "r"(shared_address(shared)),
               "r"(place.column),
               "r"(place.row),
               "r"(place.layer),
               "r"(place.volume),
               "r"(place.last)
               : "memory");
}

// Stores contiguous bytes. Their number and both addresses are multiples of 16.
__device__ inline void tma_store_bytes(void* global, const void* shared, int bytes) {
  asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(global),
               "r"(shared_address(shared)),
               "r"(bytes)
               : "memory");
}

// Adds float32 numbers in shared memory to those at `global`. `bytes` and both addresses are multiples of 16.
__device__ inline void tma_add(float* global, const void* shared, int bytes) {
  asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%0], [%1], %2;" ::"l"(global),
               "r"(shared_address(shared)),
               "r"(bytes)
               : "memory");
}

__device__ inline void tma_store_commit() {
  asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}

// Waits until at most kReading of this thread's latest groups still read shared memory.
template <int kReading>
__device__ void tma_store_wait_read() {
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(kReading) : "memory");
}

// Waits until this thread's groups are complete, and what they wrote is visible to it.
__device__ inline void tma_store_wait() {
  asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
}

// Makes what this thread wrote to shared memory visible to TMA and wgmma (the async proxy).
__device__ inline void fence_async_shared() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// Orders this thread's accesses to global memory before the copies that it starts afterwards.
__device__ inline void fence_async_global() {
  asm volatile("fence.proxy.async.global;" ::: "memory");
}
