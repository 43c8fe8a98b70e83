// Turns, by which the deterministic backward adds to grad_q in a fixed order.
//
// Blocks whose keys a tile of queries attends to add to its grad_q one after the other, in ascending order of their
// keys. The scratch `progress` holds how many blocks have begun, unless these draw their tiles of keys; then for each
// tile of queries how many blocks have added to it. prepare_rows zeros it.
//
// A block waits for blocks of lower keys only, all of which have begun: blocks take tiles of keys in the order in which
// they begin themselves, since CUDA does not promise that this is the order of their indices. They visit tiles of
// queries in descending order. So with a causal mask or a window, too, a block begins with about the same tile as the
// block before it, and waits for one addition and not for a loop.

#pragma once

#include <cstdint>

#include "tma.cuh"
#include "warpgroup.cuh"

namespace attention::sm90::bwd {

// How many blocks had begun before this one. For all threads of the block.
__device__ inline int blocks_before(int* progress) {
  __shared__ int before;
  if (threadIdx.x == 0) before = atomicAdd(progress, 1);
  __syncthreads();
  return same_in_warp(before);
}

// A block's turn at a tile of queries, for one thread. Its additions lie between wait and pass.
struct Turn {
  int* added;  // How many blocks have added to the tile.
  int before;  // And how many of them come before this one.

  // An int counts the tiles.
  __device__ static Turn of(int* progress, int tile, int before) { return {progress + 1 + tile, before}; }

  __device__ bool is_first() const { return before == 0; }

  __device__ void wait() const {
    int count;
    do {
      asm volatile("ld.acquire.gpu.global.s32 %0, [%1];" : "=r"(count) : "l"(added) : "memory");
    } while (count < before);
    fence_async_global();
  }

  // Ends the turn once this thread's bulk stores and reduce-adds are complete. What other threads have added before a
  // barrier with this one is released with it.
  __device__ void pass() const {
    tma_store_wait();
    // Sequences whose ends do not ascend have tiles in common: the count never falls, so that no block waits for ever.
    asm volatile("red.release.gpu.global.max.s32 [%0], %1;" ::"l"(added), "r"(before + 1) : "memory");
  }
};

}  // namespace attention::sm90::bwd
