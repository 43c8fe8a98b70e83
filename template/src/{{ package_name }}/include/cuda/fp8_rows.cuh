// The quantising end of a kernel over rows: codes and scales of values that its threads hold.

#pragma once

#include "fp8.cuh"
#include "fp8_rows.h"
#include "reduce.cuh"
#include "thread_group.cuh"

namespace fp8 {

// A thread's accesses of N elements to a row, kWarp accesses apart; those of a warp are consecutive.
template <int N, int kAccesses>
struct RowPart {
  int64_t first;  // The thread's first access.
  int left;       // Accesses of the row from there on, as far as they matter.

  // The part of a thread of a block, or of the chunk-th block, that has the row. `count`: the row's accesses; 0 where
  // there is no row.
  __device__ RowPart(int64_t count, int64_t chunk = 0)
      : first((chunk * blockDim.x + threadIdx.x / kWarp * kWarp) * kAccesses + threadIdx.x % kWarp) {
    constexpr int64_t kMost = kAccesses * kWarp;
    left = static_cast<int>(count - first < kMost ? max(count - first, int64_t(0)) : kMost);
  }

  __device__ int64_t index(int access) const { return first + access * kWarp; }
  __device__ bool has(int access) const { return access * kWarp < left; }

  __device__ int64_t group(int access) const { return index(access) * N / kGroupLength; }
  __device__ bool begins_group(int access) const { return has(access) && index(access) * N % kGroupLength == 0; }
};

// What a thread holds of a row.
template <int N, int kAccesses>
struct Held {
  Vector<float, N> values[kAccesses];

  __device__ Vector<float, N>& operator[](int access) { return values[access]; }
  __device__ const Vector<float, N>& operator[](int access) const { return values[access]; }
};

// The largest magnitude of each access, as bits. With kFiniteAlone infinity and NaN do not count. Past the row's end
// there are zeros, or NaN where all of the row is.
template <bool kFiniteAlone, int N, int kAccesses, typename Values>
__device__ __forceinline__ void largest_of_accesses(
    const Values& values, const RowPart<N, kAccesses>& part, uint32_t (&largest)[kAccesses]) {
#pragma unroll
  for (int access = 0; access < kAccesses; ++access) {
    const Vector<float, N> of_access = values[access];
    if constexpr (!kFiniteAlone) {
      float of_all = 0;
#pragma unroll
      for (int k = 0; k < N; ++k) of_all = maximum_or_nan(of_all, fabsf(of_access[k]));
      largest[access] = magnitude(of_all);
    } else {
      largest[access] = 0;
#pragma unroll
      for (int k = 0; k < N; ++k) {
        const uint32_t bits = magnitude(of_access[k]);
        if (bits < kFloatInfinity) largest[access] = max(largest[access], bits);
      }
    }
  }
}

// Of each access, the largest of its group. The whole warp takes part.
template <int N, int kAccesses>
__device__ __forceinline__ void share_in_groups(uint32_t (&largest)[kAccesses]) {
  constexpr int kLanes = kGroupLength / N < kWarp ? kGroupLength / N : kWarp;
  if constexpr (kLanes * N == kGroupLength) {
#pragma unroll
    for (int access = 0; access < kAccesses; ++access) {
      largest[access] = warp_max<kLanes>(largest[access]);
    }
  } else {
    // A group is all that a warp has.
    static_assert(kWarp * kAccesses * N == kGroupLength);
    uint32_t all = 0;
#pragma unroll
    for (int access = 0; access < kAccesses; ++access) {
      all = max(all, largest[access]);
    }
    all = warp_max(all);
#pragma unroll
    for (int access = 0; access < kAccesses; ++access) {
      largest[access] = all;
    }
  }
}

// The largest of a row, in every thread that has a part of it: a warp, or the block.
template <int kAccesses>
__device__ __forceinline__ uint32_t share_in_row(BlockGroup& block, const uint32_t (&largest)[kAccesses]) {
  uint32_t all = 0;
#pragma unroll
  for (int access = 0; access < kAccesses; ++access) {
    all = max(all, largest[access]);
  }
  return blockDim.x == kWarp ? warp_max(all) : block.max(all);
}

// Writes the codes of a thread's part, with the inverse of each access's scale.
template <int N, int kAccesses, typename Values>
__device__ __forceinline__ void write_codes(
    uint8_t* codes,
    const Values& values,
    const RowPart<N, kAccesses>& part,
    const float (&inverses)[kAccesses],
    bool finite,
    Format format) {
#pragma unroll
  for (int access = 0; access < kAccesses; ++access) {
    if (part.has(access))
      store(codes, part.index(access), encode_all(values[access], inverses[access], finite, format));
  }
}

// The same with one scale.
template <int N, int kAccesses, typename Values>
__device__ __forceinline__ void write_codes(
    uint8_t* codes,
    const Values& values,
    const RowPart<N, kAccesses>& part,
    float inverse,
    bool finite,
    Format format) {
  float inverses[kAccesses];
#pragma unroll
  for (int access = 0; access < kAccesses; ++access) {
    inverses[access] = inverse;
  }
  write_codes(codes, values, part, inverses, finite, format);
}

// Whether all that a thread holds is finite.
template <int N, int kAccesses, typename Values>
__device__ __forceinline__ bool is_finite(const Values& values, const RowPart<N, kAccesses>& part) {
  uint32_t largest[kAccesses], all = 0;
  largest_of_accesses<false>(values, part, largest);
#pragma unroll
  for (int access = 0; access < kAccesses; ++access) {
    all = max(all, largest[access]);
  }
  return all < kFloatInfinity;
}

// The scales of the groups of a warp's accesses, from their largest magnitudes: their values and inverses. Each thread
// computes one of an access, since divisions take long.
template <int kAccesses>
__device__ __forceinline__ void scales_of_groups(
    const uint32_t (&largest)[kAccesses],
    bool power_of_two,
    Format format,
    float (&values)[kAccesses],
    float (&inverses)[kAccesses]) {
  const int lane = threadIdx.x % kWarp;
  uint32_t own = largest[0];
#pragma unroll
  for (int access = 1; access < kAccesses; ++access) {
    if (lane % kAccesses == access) own = largest[access];
  }
  const Scale scale = scale_for(own, power_of_two, format);
#pragma unroll
  for (int access = 0; access < kAccesses; ++access) {
    values[access] = __shfl_sync(0xffffffff, scale.value, lane / kAccesses * kAccesses + access);
    inverses[access] = __shfl_sync(0xffffffff, scale.inverse, lane / kAccesses * kAccesses + access);
  }
}

// Writes codes and scales of a row by groups. The whole warp takes part.
template <int N, int kAccesses, typename Values>
__device__ void quantise_groups(
    const Values& values, const RowPart<N, kAccesses>& part, const Rows& out, int64_t row, int64_t n) {
  uint32_t largest[kAccesses];
  largest_of_accesses<false>(values, part, largest);
  share_in_groups<N>(largest);
  bool finite = true;
#pragma unroll
  for (int access = 0; access < kAccesses; ++access) {
    finite &= largest[access] < kFloatInfinity;
  }
  // Seldom, and of a whole warp at once, whose threads then share again.
  if (!__all_sync(0xffffffff, finite)) {
    finite = false;
    largest_of_accesses<true>(values, part, largest);
    share_in_groups<N>(largest);
  }
  float scales[kAccesses], inverses[kAccesses];
  scales_of_groups(largest, out.power_of_two, Format{out.e5m2}, scales, inverses);
#pragma unroll
  for (int access = 0; access < kAccesses; ++access) {
    if (part.begins_group(access))
      out.scales[row * out.row_step + part.group(access) * out.group_step] = scales[access];
  }
  write_codes(out.codes + row * n, values, part, inverses, finite, Format{out.e5m2});
}

// Writes codes and scale of a row that its threads, a warp or the block, hold as a whole; nothing unless `valid`.
template <int N, int kAccesses, typename Values>
__device__ void quantise_row(
    BlockGroup& block,
    const Values& values,
    const RowPart<N, kAccesses>& part,
    const Rows& out,
    int64_t row,
    bool valid,
    int64_t n) {
  uint32_t largest[kAccesses];
  largest_of_accesses<false>(values, part, largest);
  uint32_t all = share_in_row(block, largest);
  const bool finite = all < kFloatInfinity;
  if (!finite) {
    largest_of_accesses<true>(values, part, largest);
    all = share_in_row(block, largest);
  }
  const Scale scale = scale_for(all, out.power_of_two, Format{out.e5m2});
  if (valid && part.index(0) == 0) out.scales[row * out.row_step] = scale.value;
  write_codes(out.codes + row * n, values, part, scale.inverse, finite, Format{out.e5m2});
}

}  // namespace fp8
