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

// In place of the first split's sum, where a row attends to no key at all: its splits look like those of scores that
// are all -inf. The max is -inf then, so that the mark weighs nothing.
constexpr float kNoKeys = -1;

// Splits are combined for 32 outputs of a row at a time, by groups of 8 threads. A group takes every so many-th split,
// and reads eight at once: few rows of many splits would else wait for one split's memory after another's. Blocks are
// small enough to start beside those that still compute splits.
constexpr int kCombinedColumns = 32, kCombiningLanes = kCombinedColumns / 4;
constexpr int kCombiningThreads = 128, kSplitsAtOnce = 8;

// How many groups combine 32 outputs.
inline int combining_groups(int splits) {
  int groups = 1;
  while (groups * kSplitsAtOnce < splits && 2 * groups * kCombiningLanes <= kCombiningThreads) groups *= 2;
  return groups;
}

// Of the kernel that combines so many rows of `width` outputs.
inline unsigned int combining_blocks(int64_t rows, int width, int groups) {
  const int64_t threads = rows * (width / kCombinedColumns) * kCombiningLanes * groups;
  return static_cast<unsigned int>((threads + kCombiningThreads - 1) / kCombiningThreads);
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

// Which outputs of which row, of W outputs, a thread combines, and which splits of them.
template <int W>
struct CombiningThread {
  int row, lane, group, groups;  // `lane` counts the row's fours of outputs.

  __device__ explicit CombiningThread(int groups) : group(threadIdx.x / kCombiningLanes % groups), groups(groups) {
    constexpr int kUnits = W / kCombinedColumns;
    const int unit = (blockIdx.x * kCombiningThreads + threadIdx.x) / (kCombiningLanes * groups);
    row = unit / kUnits;
    lane = unit % kUnits * kCombiningLanes + threadIdx.x % kCombiningLanes;
  }
};

// The row, for the threads of its first group: all threads of the block call this. Outputs are added up in a fixed
// order, with w = exp(scale * (max_split - max)) * sum_split. `head` is the row's, whose sink joins; `empty`: the row
// attends to no key. Nothing is read for rows from `rows` on.
template <int W, typename Forward>
__device__ CombinedRow
combine_splits(const Forward& p, const CombiningThread<W>& thread, int rows, int head, bool empty) {
  __shared__ PartialSums of_threads[kCombiningThreads];
  PartialSums total = PartialSums::none();
  const int splits = thread.row < rows ? p.splits : 0;
  for (int first = thread.group; first < splits; first += kSplitsAtOnce * thread.groups) {
    PartialSums parts[kSplitsAtOnce];
#pragma unroll
    for (int i = 0; i < kSplitsAtOnce; ++i) {
      const int split = first + i * thread.groups;
      parts[i] = PartialSums::none();
      if (split >= splits) continue;
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
      const PartialSums other[1] = {of_threads[threadIdx.x + group * kCombiningLanes]};
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
