// What is kept of a row's softmax where its keys are split, and how the splits are combined.

#pragma once

#include <cstdint>

#ifdef __CUDACC__
#include <cmath>

#include "exponential.cuh"
#include "sink.cuh"
#endif

namespace attention {

// The softmax of a row over some of its keys. These two are exact for scores of any size, unlike their LSE.
struct PartialSoftmax {
  float max;  // The row max before the scale; -inf if the row attends to none of the keys.
  float sum;  // The sum of exp(score - scale * max).
};

#ifdef __CUDACC__

// Four of a row's W outputs, and its LSE.
struct CombinedRow {
  float out[4];
  float lse;
};

// The row of that number, of so many, by W / 4 lanes: out = sum of w * out_split over sum of w, in the order of the
// splits, with w = exp(scale * (max_split - max)) * sum_split. `head` is the row's, whose sink joins; `empty`: the row
// attends to no key.
template <int W, typename Forward>
__device__ CombinedRow combine_splits(const Forward& p, int64_t row, int64_t rows, int head, int lane, bool empty) {
  const PartialSoftmax* const softmax = p.partial_softmax + row;
  const float* const outs = p.partial_out + row * W + lane * 4;
  float max = -INFINITY;
#pragma unroll 8
  for (int split = 0; split < p.splits; ++split) max = fmaxf(max, softmax[split * rows].max);
  // While every score is -inf, any finite number keeps the differences below from becoming NaN.
  const float base = max == -INFINITY ? 0 : max;
  float sum = 0, acc[4] = {};
#pragma unroll 8
  for (int split = 0; split < p.splits; ++split) {
    const PartialSoftmax part = softmax[split * rows];
    const float4 out = *reinterpret_cast<const float4*>(outs + split * rows * W);
    const float factor = exp2_fast((part.max - base) * p.score.scale_log2) * part.sum;
    sum += factor;
    acc[0] += factor * out.x;
    acc[1] += factor * out.y;
    acc[2] += factor * out.z;
    acc[3] += factor * out.w;
  }
  float inverse = empty ? 0 : 1 / sum, lse = empty ? -INFINITY : max * p.score.scale + logf(sum);
  if (p.sinks) join_sink(p.sinks[head], inverse, lse);
  return {{acc[0] * inverse, acc[1] * inverse, acc[2] * inverse, acc[3] * inverse}, lse};
}

#endif

}  // namespace attention
