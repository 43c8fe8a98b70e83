// A software pipeline over rows: a thread starts the copies of its part of some rows ahead of time, and works on one
// row while the next ones arrive. Memory is busy while the kernel computes, and no register waits for data in flight.
//
// The copies go to shared memory without passing through registers (cp.async, from compute capability 8.0 on). A thread
// reads only what it copied itself, so there is no barrier between threads.
//
//     for (stage < kStages - 1) { pipeline.fetch(...); pipeline.commit(); }
//     for (each row) {
//       pipeline.fetch(...);  // kStages - 1 rows ahead
//       pipeline.commit();
//       pipeline.wait();
//       ... pipeline.access(tensor, access) ...
//       pipeline.release();
//     }
//     pipeline.drain();

#pragma once

#include <cuda_pipeline.h>

#include "cache_hints.cuh"
#include "reduce.cuh"
#include "vector.cuh"

// kStages stages of one row of several tensors each; a thread has kAccesses accesses of N elements of every row.
template <typename T, int N, int kAccesses, int kStages>
class RowPipeline {
 public:
  using Access = Vector<T, N>;

  // The dynamic shared memory of a block, in bytes.
  static constexpr size_t bytes(int threads, int tensors) {
    return sizeof(Access) * kStages * tensors * kAccesses * threads;
  }

  // Fills the stages with zeros: what is never fetched, past the end of a row, reads as zeros.
  __device__ RowPipeline(void* shared, int tensors) : stage_(tensors * kAccesses * kWarp) {
    const int thread = threadIdx.y * blockDim.x + threadIdx.x;
    const int warp = thread / kWarp, lane = thread % kWarp;
    begin_ = read_ = write_ = static_cast<Access*>(shared) + warp * kStages * stage_ + lane;
    for (int i = 0; i < kStages * stage_; i += kWarp) {
      begin_[i] = Access();
    }
  }

  // Starts the copy of an access of a tensor's row into the stage to write.
  __device__ void fetch(int tensor, int access, const Access* from) {
    Access* const to = write_ + (tensor * kAccesses + access) * kWarp;
    if constexpr (sizeof(Access) >= 4) {
      __pipeline_memcpy_async(to, from, sizeof(Access));
    } else {
      *to = *from;
    }
  }

  // The same, of an access that stays in the L2 cache as `policy` says.
  __device__ void fetch(int tensor, int access, const Access* from, const EvictionPolicy& policy) {
    policy.copy_async(write_ + (tensor * kAccesses + access) * kWarp, from);
  }

  // Sets an access of the stage to write.
  __device__ void put(int tensor, int access, const Access& values) {
    write_[(tensor * kAccesses + access) * kWarp] = values;
  }

  // Ends the stage to write, also where nothing was fetched for it.
  __device__ void commit() {
    __pipeline_commit();
    write_ = after(write_);
  }

  // Waits for the stage to read, once kStages stages are committed.
  __device__ void wait() const { __pipeline_wait_prior(kStages - 1); }

  // Waits for all stages.
  __device__ void drain() const { __pipeline_wait_prior(0); }

  // An access in the stage to read.
  __device__ const Access& access(int tensor, int access) const { return read_[(tensor * kAccesses + access) * kWarp]; }

  // Leaves the stage to read to later copies.
  __device__ void release() { read_ = after(read_); }

 private:
  __device__ Access* after(Access* stage) const {
    if constexpr (kStages == 1) return stage;
    stage += stage_;
    return stage == begin_ + kStages * stage_ ? begin_ : stage;
  }

  // A warp's part of the shared memory is laid out by stage, tensor, access and lane; the pointers are the lane's.
  int stage_;
  Access *begin_, *read_, *write_;
};
