// The gradient of learned sinks (sink.cuh). A sink's weight in a row is exp(sink - lse), and no value belongs to it:
// grad_sink = -sum of weight * delta over the rows of its head, with the rows' deltas as the backward has them.

#pragma once

#include <cstdint>

#ifdef __CUDACC__
#include <cmath>

#include "exponential.cuh"
#endif

namespace attention {

constexpr int kSinkThreads = 512;  // Of a block, which is a head's: sums have one order.

struct SinkGradient {
  const float *sinks, *lse, *delta;  // (heads,), and twice (batch, heads, queries)
  float* grad_sinks;                 // (heads,)
  int batch, heads;
  int64_t queries;
};

#ifdef __CUDACC__

// By a block for each head.
template <int kThreads>
__device__ void sum_sink_gradient(const SinkGradient& p) {
  const int head = blockIdx.x;
  const float sink = p.sinks[head];
  float sum = 0;
  for (int batch = 0; batch < p.batch; ++batch) {
    const int64_t first = (int64_t(batch) * p.heads + head) * p.queries;
    for (int64_t row = first + threadIdx.x; row < first + p.queries; row += kThreads) {
      // A sink of -inf has no weight in a row without a key either, but a row that is NaN makes its gradient NaN.
      const float lse = p.lse[row], weight = lse == -INFINITY ? 0 : exp2_fast((sink - lse) * kLog2E);
      sum -= weight * p.delta[row];
    }
  }
  __shared__ float of_warps[kThreads / 32];
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2) sum += __shfl_xor_sync(0xffffffff, sum, distance);
  if (threadIdx.x % 32 == 0) of_warps[threadIdx.x / 32] = sum;
  __syncthreads();
  if (threadIdx.x != 0) return;
  for (int warp = 1; warp < kThreads / 32; ++warp) sum += of_warps[warp];
  p.grad_sinks[head] = sum;
}

#endif

}  // namespace attention
