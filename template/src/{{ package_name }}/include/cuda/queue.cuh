// The name that a row pipeline had, for ops that were written with it.

#pragma once

#include "pipeline.cuh"

template <typename T, int N, int kAccesses, int kStages>
class Queue : public RowPipeline<T, N, kAccesses, kStages> {
  using Pipeline = RowPipeline<T, N, kAccesses, kStages>;

 public:
  using Pipeline::Pipeline;

  __device__ void push() { Pipeline::commit(); }
  __device__ const typename Pipeline::Access& front(int tensor, int access) const {
    return Pipeline::access(tensor, access);
  }
  __device__ void pop() { Pipeline::release(); }
};
