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

// The largest of each of kCount values over kLanes neighbouring threads: each thread has that of value
// `threadIdx.x % kCount`. The whole warp takes part. A thread passes on half of its values, and keeps the others, so
// that it takes fewer instructions than each value's maximum in every thread. `larger(a, b)` is the larger of two.
template <int kLanes, int kCount, typename Larger>
__device__ __forceinline__ uint32_t own_largest(uint32_t (&values)[kCount], const Larger& larger) {
  static_assert((kCount & (kCount - 1)) == 0 && kCount <= kLanes, "values halve with the threads that have them");
#pragma unroll
  for (int distance = 1; distance < kCount; distance *= 2) {
    const bool upper = threadIdx.x & distance;
#pragma unroll
    for (int i = 0; i < kCount / 2 / distance; ++i) {
      const uint32_t even = values[2 * i], odd = values[2 * i + 1];
      const uint32_t others = __shfl_xor_sync(0xffffffff, upper ? even : odd, distance);
      values[i] = larger(upper ? odd : even, others);
    }
  }
#pragma unroll
  for (int distance = kCount; distance < kLanes; distance *= 2) {
    values[0] = larger(values[0], __shfl_xor_sync(0xffffffff, values[0], distance));
  }
  return values[0];
}

// How accesses of N elements make groups: kLanes neighbouring threads have a group with one access each; or else all
// accesses of a warp are a group.
template <int N, int kAccesses>
struct GroupShape {
  static constexpr int kLanes = kGroupLength / N < kWarp ? kGroupLength / N : kWarp;
  static constexpr bool kOfWarp = kLanes * N < kGroupLength;
  static_assert(!kOfWarp || kWarp * kAccesses * N == kGroupLength);
};

// The largest of the group that a thread has access number `threadIdx.x % kAccesses` in. The whole warp takes part.
template <int N, int kAccesses>
__device__ __forceinline__ uint32_t share_in_groups(uint32_t (&largest)[kAccesses]) {
  using Shape = GroupShape<N, kAccesses>;
  if constexpr (Shape::kOfWarp) {
    uint32_t all = 0;
#pragma unroll
    for (int access = 0; access < kAccesses; ++access) all = max(all, largest[access]);
    return warp_max(all);
  } else {
    return own_largest<Shape::kLanes>(largest, [](uint32_t a, uint32_t b) { return max(a, b); });
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
    const Vector<float, N> of_access = values[access];
    if (part.has(access)) store_encoded(codes, part.index(access), of_access, inverses[access], finite, format);
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

// The inverses of the scales of all of a thread's groups, of which each thread has found one as `own_largest` does:
// divisions take long.
template <int kCount>
__device__ __forceinline__ void share_inverses(const Scale& own, float (&inverses)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    inverses[i] = __shfl_sync(0xffffffff, own.inverse, threadIdx.x % kWarp / kCount * kCount + i);
  }
}

// Writes the scale that a thread has found, if it is the first that has it and there is such a group. The whole warp
// takes part.
template <int N, int kAccesses>
__device__ __forceinline__ void write_scale(
    const RowPart<N, kAccesses>& part, const Rows& out, int64_t row, int64_t n, float scale) {
  using Shape = GroupShape<N, kAccesses>;
  const bool has_row = __any_sync(0xffffffff, part.left > 0);
  const int own = threadIdx.x % Shape::kLanes;  // The access, where it is below kAccesses.
  const int64_t group = part.index(own) / (kGroupLength / N);
  if (has_row && own < (Shape::kOfWarp ? 1 : kAccesses) && group * kGroupLength < n) {
    out.scales[row * out.row_step + group * out.group_step] = scale;
  }
}

// Writes codes and scales of a row by groups. The whole warp takes part.
template <int N, int kAccesses, typename Values>
__device__ void quantise_groups(
    const Values& values, const RowPart<N, kAccesses>& part, const Rows& out, int64_t row, int64_t n) {
  uint32_t largest[kAccesses];
  largest_of_accesses<false>(values, part, largest);
  uint32_t own = share_in_groups<N>(largest);
  const bool finite = __all_sync(0xffffffff, own < kFloatInfinity);
  if (!finite) {  // Seldom, and of a whole warp at once.
    largest_of_accesses<true>(values, part, largest);
    own = share_in_groups<N>(largest);
  }
  const Scale scale = scale_for(own, out.power_of_two, Format{out.e5m2});
  write_scale(part, out, row, n, scale.value);
  float inverses[kAccesses];
  share_inverses(scale, inverses);
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
