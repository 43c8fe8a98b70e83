// The quantising end of a kernel over rows: codes and scales of values that its threads hold.

#pragma once

#include "fp8.cuh"
#include "fp8_rows.h"
#include "reduce.cuh"
#include "thread_group.cuh"

namespace fp8 {

// A thread's accesses of N elements to a row, kWarp accesses apart; those of a warp are consecutive. With kFull all
// threads have all of theirs.
template <int N, int kAccesses, bool kFull = false>
struct RowPart {
  int64_t first;  // The thread's first access.
  int left;       // Accesses of the row from there on, as far as they matter.

  // The part of a thread of a block, or of the chunk-th block, that has the row. `count`: the row's accesses; 0 where
  // there is no row.
  __device__ RowPart(int64_t count, int64_t chunk = 0)
      : first((chunk * blockDim.x + threadIdx.x / kWarp * kWarp) * kAccesses + threadIdx.x % kWarp) {
    constexpr int64_t kMost = kAccesses * kWarp;
    left = static_cast<int>(kFull || count - first >= kMost ? kMost : max(count - first, int64_t(0)));
  }

  __device__ int64_t index(int access) const { return first + access * kWarp; }
  __device__ bool has(int access) const { return kFull || access * kWarp < left; }
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
template <bool kFiniteAlone, int N, int kAccesses, bool kFull, typename Values>
__device__ __forceinline__ void largest_of_accesses(
    const Values& values, const RowPart<N, kAccesses, kFull>& part, uint32_t (&largest)[kAccesses]) {
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

// The largest of a thread's accesses.
template <int kAccesses>
__device__ __forceinline__ uint32_t largest_of_all(const uint32_t (&largest)[kAccesses]) {
  uint32_t all = 0;
#pragma unroll
  for (int access = 0; access < kAccesses; ++access) {
    all = max(all, largest[access]);
  }
  return all;
}

// The largest of a row, in every thread that has a part of it: a warp, or the block.
__device__ __forceinline__ uint32_t share_in_row(BlockGroup& block, uint32_t largest) {
  return blockDim.x == kWarp ? warp_max(largest) : block.max(largest);
}

// Writes the codes of a thread's part, with the inverse of each access's scale. The format is asked for once: for each
// pair of codes it would take an instruction more.
template <int N, int kAccesses, bool kFull, typename Values>
__device__ __forceinline__ void write_codes(
    uint8_t* codes,
    const Values& values,
    const RowPart<N, kAccesses, kFull>& part,
    const float (&inverses)[kAccesses],
    bool finite,
    Format format) {
  const auto write = [&](const auto& store) {
#pragma unroll
    for (int access = 0; access < kAccesses; ++access) {
      const Vector<float, N> of_access = values[access];
      if (part.has(access)) store(part.index(access), of_access, inverses[access]);
    }
  };
  if (!finite) {
    write([&](int64_t i, const auto& numbers, float inverse) { store_encoded(codes, i, numbers, inverse, format); });
  } else if (format.e5m2) {
    write(
        [&](int64_t i, const auto& numbers, float inverse) { store_encoded_finite<true>(codes, i, numbers, inverse); });
  } else {
    write([&](int64_t i, const auto& numbers, float inverse) {
      store_encoded_finite<false>(codes, i, numbers, inverse);
    });
  }
}

// The same with one scale.
template <int N, int kAccesses, bool kFull, typename Values>
__device__ __forceinline__ void write_codes(
    uint8_t* codes,
    const Values& values,
    const RowPart<N, kAccesses, kFull>& part,
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
template <int N, int kAccesses, bool kFull, typename Values>
__device__ __forceinline__ bool is_finite(const Values& values, const RowPart<N, kAccesses, kFull>& part) {
  uint32_t largest[kAccesses];
  largest_of_accesses<false>(values, part, largest);
  return largest_of_all(largest) < kFloatInfinity;
}

// The inverses of the scales of all of a thread's groups, of which each thread has found one as `own_largest` does:
// divisions take long.
template <int kCount>
__device__ __forceinline__ void share_inverses(float own, float (&inverses)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    inverses[i] = __shfl_sync(0xffffffff, own, threadIdx.x % kWarp / kCount * kCount + i);
  }
}

// The group of which a thread has the largest, as `share_in_groups` shares them; -1 if the row has no such group. The
// whole warp takes part.
template <int N, int kAccesses, bool kFull>
__device__ __forceinline__ int own_group(const RowPart<N, kAccesses, kFull>& part, int64_t n) {
  const bool has_row = kFull || __any_sync(0xffffffff, part.left > 0);
  const int access = GroupShape<N, kAccesses>::kOfWarp ? 0 : threadIdx.x % kAccesses;
  const int64_t group = part.index(access) / (kGroupLength / N);
  return has_row && (kFull || group * kGroupLength < n) ? static_cast<int>(group) : -1;
}

// A magnitude times the factor that its row's values have in common.
__device__ __forceinline__ uint32_t multiplied(uint32_t largest, float factor) {
  return magnitude(__uint_as_float(largest) * factor);
}

// Whether a factor may be multiplied with the scale's inverse in place of each value: where the largest value is far
// from the ends of float32's range, and finite with the factor, so are all that are not negligible beside it.
__device__ __forceinline__ bool may_multiply_late(uint32_t largest, float factor) {
  constexpr uint32_t kLeast = (127 - 100) << 23, kMost = (127 + 100) << 23;  // The bits of 2⁻¹⁰⁰ and 2¹⁰⁰.
  return largest >= kLeast && largest <= kMost && multiplied(largest, factor) < kFloatInfinity;
}

// The largest of each thread's group, see `share_in_groups`, and whether all of the warp's are finite.
template <int N, int kAccesses, bool kFull, typename Values>
__device__ __forceinline__ uint32_t
largest_of_groups(const Values& values, const RowPart<N, kAccesses, kFull>& part, bool& finite) {
  uint32_t largest[kAccesses];
  largest_of_accesses<false>(values, part, largest);
  uint32_t own = share_in_groups<N>(largest);
  finite = __all_sync(0xffffffff, own < kFloatInfinity);
  if (!finite) {  // Seldom, and of a whole warp at once.
    largest_of_accesses<true>(values, part, largest);
    own = share_in_groups<N>(largest);
  }
  return own;
}

// The same of a row that its threads, a warp or the block, hold as a whole.
template <int N, int kAccesses, bool kFull, typename Values>
__device__ __forceinline__ uint32_t
largest_of_row(BlockGroup& block, const Values& values, const RowPart<N, kAccesses, kFull>& part, bool& finite) {
  uint32_t largest[kAccesses];
  largest_of_accesses<false>(values, part, largest);
  uint32_t all = share_in_row(block, largest_of_all(largest));
  finite = all < kFloatInfinity;
  if (!finite) {
    largest_of_accesses<true>(values, part, largest);
    all = share_in_row(block, largest_of_all(largest));
  }
  return all;
}

// Writes codes and scales of a row by groups, of which each thread has `own_group` and its largest value, with the
// factor that all values are multiplied with. The whole warp takes part.
template <int N, int kAccesses, bool kFull, typename Values>
__device__ void quantise_groups(
    const Values& values,
    float factor,
    uint32_t largest,
    bool finite,
    const RowPart<N, kAccesses, kFull>& part,
    const Rows& out,
    int64_t row,
    int64_t n,
    int group) {
  using Shape = GroupShape<N, kAccesses>;
  const Scale scale = scale_for(largest, out.power_of_two, Format{out.e5m2});
  if (group >= 0 && threadIdx.x % Shape::kLanes < (Shape::kOfWarp ? 1 : kAccesses)) {
    out.scales[row * out.row_step + group * out.group_step] = scale.value;
  }
  float inverses[kAccesses];
  share_inverses(scale.inverse * factor, inverses);
  write_codes(out.codes + row * n, values, part, inverses, finite, Format{out.e5m2});
}

}  // namespace fp8
