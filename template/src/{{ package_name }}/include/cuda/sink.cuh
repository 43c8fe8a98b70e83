// A learned sink: a logit of each head of queries that joins the denominator of its rows' softmax, and takes weight to
// which no value belongs (gpt-oss; after Xiao et al., Efficient Streaming Language Models with Attention Sinks, 2024).

#pragma once

#include <cmath>

#include "exponential.cuh"

namespace attention {

// Joins a sink to a row whose softmax is complete, all splits of its keys included: once, so that the loops over keys
// know nothing of it. `factor` is what the accumulator is multiplied by, or a result; `lse` counts the sink afterwards.
__device__ inline void join_sink(float sink, float& factor, float& lse) {
  if (sink == -INFINITY) return;  // As without one.
  const float difference = sink - lse;
  // The row has no key, or scores of -inf alone, whose 0 / 0 would be NaN: all weight is the sink's.
  factor = lse == -INFINITY ? 0 : factor / (1 + exp2_fast(difference * kLog2E));
  lse = fmaxf(lse, sink) + logf(1 + exp2_fast(-fabsf(difference) * kLog2E));
  // A softmax with an infinity or a NaN is NaN, with no key too.
  if (!(sink < INFINITY)) factor = lse = NAN;
}

}  // namespace attention
