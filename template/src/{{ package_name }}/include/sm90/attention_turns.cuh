// The turns of cuda/addition_turns.cuh where TMA adds: bulk copies are asynchronous, and wait for nothing by
// themselves. prepare_rows zeros the progress.

#pragma once

#include "addition_turns.cuh"
#include "tma.cuh"

namespace attention::sm90::bwd {

struct Turn : attention::Turn {
  __device__ static Turn of(int* progress, int tile, int before) {
    return {attention::Turn::of(progress, tile, before)};
  }

  __device__ void wait() const {
    attention::Turn::wait();
    fence_async_global();
  }

  // Ends the turn once this thread's bulk stores and reduce-adds are complete.
  __device__ void pass() const {
    tma_store_wait();
    attention::Turn::pass();
  }
};

}  // namespace attention::sm90::bwd
