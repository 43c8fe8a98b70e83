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

constexpr int kCombiningThreads = 512;  // Of a block that combines splits.
constexpr int kSplitsAtOnce = 8;        // Splits that a thread reads at once.

// How many groups of so many threads combine a row.
inline int combining_groups(int splits, int lanes) {
  int groups = 1;
  while (groups * kSplitsAtOnce < splits && 2 * groups * lanes <= kCombiningThreads) groups *= 2;
  return groups;
}

#ifdef __CUDACC__

// Four of a row's W outputs, and its LSE.
struct CombinedRow {
  float out[4];
  float lse;
};

// A softmax over some of a row's splits, and four of the outputs' sums, weighted as it says.
struct PartialSums {
  float max, sum, out[4];

  __device__ static PartialSums none() { return {-INFINITY, 0, {}}; }

  // Adds others up in their order, with w = exp(scale * (max_i - max)): sums of w * sum_i and of w * out_i.
  template <int kCount>
  __device__ void add(const PartialSums (&others)[kCount], float scale_log2) {
    float new_max = max;
#pragma unroll
    for (const PartialSums& other : others) new_max = fmaxf(new_max, other.max);
    // While every score is -inf, any finite number keeps the differences below from becoming NaN.
    const float base = new_max == -INFINITY ? 0 : new_max;
    const float rescale = exp2_fast((max - base) * scale_log2);
    max = new_max;
    sum *= rescale;
    for (float& value : out) value *= rescale;
#pragma unroll
    for (const PartialSums& other : others) {
      const float weight = exp2_fast((other.max - base) * scale_log2);
      sum += weight * other.sum;
#pragma unroll
      for (int i = 0; i < 4; ++i) out[i] += weight * other.out[i];
    }
  }
};

// Which splits of which row a thread of a block combines: a row has `groups` groups of kLanes threads, which take every
// groups-th split each. Few rows of many splits would else wait for one split's memory after another's.
template <int kLanes>
struct CombiningThread {
  int row, lane, group, groups;

  __device__ explicit CombiningThread(int groups)
      : row(blockIdx.x * (blockDim.x / (kLanes * groups)) + threadIdx.x / (kLanes * groups)),
        lane(threadIdx.x % kLanes),
        group(threadIdx.x / kLanes % groups),
        groups(groups) {}
};

// The row, for the threads of its first group: all threads of the block call this. Outputs are added up in a fixed
// order, with w = exp(scale * (max_split - max)) * sum_split. `head` is the row's, whose sink joins; `empty`: the row
// attends to no key. Lanes from W / 4 on, and rows from `rows` on, compute nothing.
template <int W, int kLanes, typename Forward>
__device__ CombinedRow combine_splits(
    const Forward& p, const CombiningThread<kLanes>& thread, int rows, int head, bool empty) {
  __shared__ PartialSums of_threads[kCombiningThreads];
  PartialSums total = PartialSums::none();
  const bool reads = thread.row < rows && thread.lane < W / 4;
  for (int first = thread.group; reads && first < p.splits; first += kSplitsAtOnce * thread.groups) {
    PartialSums parts[kSplitsAtOnce];
#pragma unroll
    for (int i = 0; i < kSplitsAtOnce; ++i) {
      const int split = first + i * thread.groups;
      parts[i] = PartialSums::none();
      if (split >= p.splits) continue;
      const int64_t number = int64_t(split) * rows + thread.row;
      const PartialSoftmax softmax = p.partial_softmax[number];
      const float4 out = reinterpret_cast<const float4*>(p.partial_out + number * W)[thread.lane];
      const float sum = softmax.sum;
      parts[i] = {softmax.max, sum, {sum * out.x, sum * out.y, sum * out.z, sum * out.w}};
    }
    total.add(parts, p.score.scale_log2);
  }
  if (thread.groups > 1) {
    of_threads[threadIdx.x] = total;
    __syncthreads();
    for (int group = 1; thread.group == 0 && group < thread.groups; ++group) {
      const PartialSums other[1] = {of_threads[threadIdx.x + group * kLanes]};
      total.add(other, p.score.scale_log2);
    }
  }
  const float max = total.max, sum = total.sum;
  float inverse = empty ? 0 : 1 / sum, lse = empty ? -INFINITY : max * p.score.scale + logf(sum);
  if (p.sinks) join_sink(p.sinks[head], inverse, lse);
  return {{total.out[0] * inverse, total.out[1] * inverse, total.out[2] * inverse, total.out[3] * inverse}, lse};
}

#endif

}  // namespace attention
