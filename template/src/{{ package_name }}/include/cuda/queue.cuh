// Rows on their way from memory. A thread asks for its part of some rows ahead of time, and works on one row while the
// next ones come: so memory is not idle while a kernel computes, and no register waits for what has not come yet.
//
// The copies go to shared memory without passing through registers (cp.async, from compute capability 8.0 on). A thread
// reads what it has asked for itself and nothing else, so no thread waits for another.

#pragma once

#include <cuda_pipeline.h>

#include "reduce.cuh"
#include "vector.cuh"

// Room for kStages rows of some tensors, kAccesses accesses of N elements each for a thread.
template <typename T, int N, int kAccesses, int kStages>
class Queue {
 public:
  using Access = Vector<T, N>;

  // The dynamic shared memory that a block needs.
  static constexpr size_t bytes(int threads, int tensors) {
    return sizeof(Access) * kStages * tensors * kAccesses * threads;
  }

  // Zeros at first: what is never fetched, past the end of a row, reads as zeros.
  __device__ Queue(void* shared, int tensors) : stage_(tensors * kAccesses * kWarp) {
    const int thread = threadIdx.y * blockDim.x + threadIdx.x;
    const int warp = thread / kWarp, lane = thread % kWarp;
    begin_ = first_ = last_ = static_cast<Access*>(shared) + warp * kStages * stage_ + lane;
    for (int i = 0; i < kStages * stage_; i += kWarp) {
      begin_[i] = Access();
    }
  }

  // Asks for a group of N elements, as the access-th of a tensor's row in the last place.
  __device__ void fetch(int tensor, int access, const Access* from) {
    Access* const to = last_ + (tensor * kAccesses + access) * kWarp;
    if constexpr (sizeof(Access) >= 4) {
      __pipeline_memcpy_async(to, from, sizeof(Access));
    } else {
      *to = *from;
    }
  }

  // The row in the last place is asked for; what is fetched next belongs to another.
  __device__ void push() {
    __pipeline_commit();
    last_ = after(last_);
  }

  // Waits for the first row, once kStages rows are in the queue.
  __device__ void wait() const { __pipeline_wait_prior(kStages - 1); }

  // Waits for all of them.
  __device__ void drain() const { __pipeline_wait_prior(0); }

  __device__ const Access& front(int tensor, int access) const { return first_[(tensor * kAccesses + access) * kWarp]; }

  // The first row is done with.
  __device__ void pop() { first_ = after(first_); }

 private:
  __device__ Access* after(Access* place) const {
    place += stage_;
    return place == begin_ + kStages * stage_ ? begin_ : place;
  }

  // A warp's part of the shared memory: by stage, tensor, access and lane. `first_` and `last_` are the lane's places.
  int stage_;
  Access *begin_, *first_, *last_;
};
