// Rows on their way from memory. A thread asks for its part of some rows ahead of time, and works on one row while the
// next ones come: so memory is not idle while a kernel computes, and no register waits for what has not come yet.
//
// The copies go to shared memory without passing through registers (cp.async, from compute capability 8.0 on). A thread
// reads what it has asked for itself and nothing else, so no thread waits for another.

#pragma once

#include <cuda_pipeline.h>

#include "vector.cuh"

// Room for kStages rows of `tensors` tensors, kAccesses accesses of N elements each for a thread.
template <typename T, int N, int kAccesses, int kStages>
class Queue {
 public:
  using Access = Vector<T, N>;

  // The dynamic shared memory that a block needs.
  static constexpr size_t bytes(int threads, int tensors) {
    return sizeof(Access) * kStages * tensors * kAccesses * threads;
  }

  __device__ Queue(void* shared, int tensors) : slots_(static_cast<Access*>(shared) + threadIdx.x), tensors_(tensors) {}

  // Asks for the i-th group of N elements of a row, as the access-th of a tensor's in the last place. What is not there
  // reads as zeros.
  __device__ void fetch(int tensor, int access, const T* row, int i, bool there) {
    Access* const to = slot(last_, tensor, access);
    const Access* const from = reinterpret_cast<const Access*>(row) + i;
    if (!there) {
      *to = Access();
    } else if constexpr (sizeof(Access) >= 4) {
      __pipeline_memcpy_async(to, from, sizeof(Access));
    } else {
      *to = *from;
    }
  }

  // The row in the last place is asked for; what is fetched next belongs to another.
  __device__ void push() {
    __pipeline_commit();
    last_ = last_ + 1 < kStages ? last_ + 1 : 0;
  }

  // Waits for the first row, once kStages rows are in the queue.
  __device__ void wait() const { __pipeline_wait_prior(kStages - 1); }

  // Waits for all of them.
  __device__ void drain() const { __pipeline_wait_prior(0); }

  __device__ const Access& front(int tensor, int access) const { return *slot(first_, tensor, access); }

  // The first row is done with.
  __device__ void pop() { first_ = first_ + 1 < kStages ? first_ + 1 : 0; }

 private:
  __device__ Access* slot(int stage, int tensor, int access) const {
    return slots_ + ((stage * tensors_ + tensor) * kAccesses + access) * blockDim.x;
  }

  Access* slots_;
  int tensors_;
  int first_ = 0, last_ = 0;
};
