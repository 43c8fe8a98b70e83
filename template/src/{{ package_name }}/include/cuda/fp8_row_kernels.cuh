// Kernels that compute rows and quantise them: which threads take what of a row, and the steps that all have in common.
//
// An op's kernels call these with a source, which computes the values of a row:
//
//     struct Source {
//       // Whether `whole` leaves out a factor that all of a row's values have in common.
//       static constexpr bool kHasFactor;
//
//       // The values of a part of a row that the block, or its warp, holds: Held, or the like.
//       template <int N, int kAccesses, bool kFull>
//       __device__ Values whole(int64_t row, const RowPart<N, kAccesses, kFull>&);
//       // With kHasFactor: the factor, of which the row's threads share what `whole` found. `largest`, a thread's
//       // largest value, becomes the row's.
//       __device__ float factor(BlockGroup&, uint32_t& largest);
//
//       // The values of a part of a row in `chunks` chunks, after `prepare`, or after `factor`.
//       template <int N, int kAccesses>
//       __device__ void prepare(BlockGroup&, int64_t row, int64_t accesses, int chunks);
//       template <int N, int kAccesses, bool kFull>
//       __device__ Values chunk(int64_t row, const RowPart<N, kAccesses, kFull>&);
//
//       // Writes the values times the factor to where they are wanted besides.
//       template <int N, int kAccesses, bool kFull, typename Values>
//       __device__ void keep(int64_t row, const RowPart<N, kAccesses, kFull>&, const Values&, float factor);
//     };

#pragma once

#include <cuda_runtime_api.h>

#include <algorithm>
#include <limits>

#include "cache_hints.cuh"
#include "fp8_rows.cuh"
#include "row_matrix.h"
#include "tile.cuh"
#include "vector.cuh"
#include "widen.cuh"

namespace fp8 {

// What of a matrix a block works on. A row is a warp's, or a block's; of a long row a block has a chunk.
struct Grid {
  int rows_per_block;
  int chunks;
  int row_blocks;
  bool full;  // Whether all threads have a row, and all of their accesses of it.

  __host__ __device__ int64_t blocks() const { return int64_t(row_blocks) * chunks; }
};

// The row and the chunk of a thread of the i-th block.
struct Place {
  int64_t row, chunk;

  __device__ Place(const Grid& grid, int i)
      : row(int64_t(i / grid.chunks) * grid.rows_per_block + threadIdx.y), chunk(i % grid.chunks) {}
};

// What a thread loads of a row: zeros past its end.
template <int N, int kAccesses, bool kFull, typename T>
__device__ __forceinline__ void load_part(
    const T* row,
    const RowPart<N, kAccesses, kFull>& part,
    Vector<T, N> (&loaded)[kAccesses],
    Eviction eviction = Eviction::kLast) {
  const EvictionPolicy policy(eviction);
#pragma unroll
  for (int access = 0; access < kAccesses; ++access) {
    loaded[access] = policy.load<N>(row, part.index(access), part.has(access));
  }
}

// The values times the factor, each rounded to T.
template <int N, int kAccesses, bool kFull, typename T, typename Values>
__device__ __forceinline__ void store_part(
    T* row, const RowPart<N, kAccesses, kFull>& part, const Values& values, float factor) {
#pragma unroll
  for (int access = 0; access < kAccesses; ++access) {
    Vector<float, N> of_access = values[access];
    of_access *= factor;
    if (part.has(access)) store_evict_last(row, part.index(access), narrow<T>(of_access));
  }
}

// Codes and scales of a row of n elements that a warp or a block holds, from a part's values but for the factor; of
// these, with the factor, the row's or the groups' largest.
template <int N, int kAccesses, bool kFull, typename Source, typename Values>
__device__ __forceinline__ void write_whole_row(
    const Source& source,
    const Values& values,
    float factor,
    uint32_t largest,
    bool finite,
    const RowPart<N, kAccesses, kFull>& part,
    const Rows& out,
    Scaling scaling,
    int64_t row,
    bool valid,
    int64_t n,
    int group) {
  source.keep(row, part, values, factor);
  if (scaling == Scaling::kGroup) return quantise_groups(values, factor, largest, finite, part, out, row, n, group);
  const Scale scale = scale_for(largest, out.power_of_two, Format{out.e5m2});
  if (valid && part.index(0) == 0) out.scales[row * out.row_step] = scale.value;
  write_codes(out.codes + row * n, values, part, scale.inverse * factor, finite, Format{out.e5m2});
}

// A row of any values, each with its factor, if there is one. A call: it would take registers of the others.
template <int N, int kAccesses, typename Source>
__device__ __noinline__ void quantise_row_of_any_values(
    Source source, const Rows& out, Scaling scaling, int64_t row, bool valid, int64_t n) {
  const RowPart<N, kAccesses> part(valid ? n / N : 0);
  const int group = own_group(part, n);
  BlockGroup block;
  bool finite;
  const auto values = source.chunk(row, part);
  const uint32_t largest = scaling == Scaling::kGroup ? largest_of_groups(values, part, finite)
                                                      : largest_of_row(block, values, part, finite);
  write_whole_row(source, values, 1, largest, finite, part, out, scaling, row, valid, n, group);
}

// A factor that a row's values have in common is multiplied with the scale's inverse, once, where no product leaves
// float32's range. Of other rows, such as those of zeros, the values are computed again, each with the factor.
template <int N, int kAccesses, bool kFull, typename Source>
__device__ __forceinline__ void quantise_whole_row(
    Source& source,
    const Rows& out,
    Scaling scaling,
    int64_t row,
    bool valid,
    int64_t n,
    const RowPart<N, kAccesses, kFull>& part) {
  const bool by_group = scaling == Scaling::kGroup;
  const int group = by_group ? own_group(part, n) : -1;
  BlockGroup block;
  const auto values = source.whole(row, part);
  if constexpr (Source::kHasFactor) {
    uint32_t of_accesses[kAccesses];
    largest_of_accesses<false>(values, part, of_accesses);
    uint32_t largest = largest_of_all(of_accesses);
    const float factor = source.factor(block, largest);
    bool late = may_multiply_late(largest, factor) || !valid;
    if (by_group) {
      largest = share_in_groups<N>(of_accesses);
      late = __all_sync(0xffffffff, may_multiply_late(largest, factor) || group < 0);
    }
    if (late) {
      largest = multiplied(largest, factor);
      write_whole_row(source, values, factor, largest, true, part, out, scaling, row, valid, n, group);
    } else {
      quantise_row_of_any_values<N, kAccesses>(source, out, scaling, row, valid, n);
    }
  } else {
    bool finite;
    const uint32_t largest =
        by_group ? largest_of_groups(values, part, finite) : largest_of_row(block, values, part, finite);
    write_whole_row(source, values, 1, largest, finite, part, out, scaling, row, valid, n, group);
  }
}

// Rows of n elements, each a warp's or a block's as a whole.
template <int N, int kAccesses, typename Source>
__device__ void quantise_whole_rows(
    Source source, const Rows& out, Scaling scaling, int64_t rows, int64_t n, const Grid& grid) {
  const int64_t row = int64_t(blockIdx.x) * grid.rows_per_block + threadIdx.y;
  if (grid.full) {
    quantise_whole_row(source, out, scaling, row, true, n, RowPart<N, kAccesses, true>(n / N));
  } else {
    const bool valid = row < rows;
    quantise_whole_row(source, out, scaling, row, valid, n, RowPart<N, kAccesses>(valid ? n / N : 0));
  }
}

// A row that is too long to be held, a block's: after the first time its chunks are read from the L2 cache.
template <int N, int kAccesses, typename Source>
__device__ void quantise_long_row(Source source, const Rows& out, Scaling scaling, int64_t n, int chunks) {
  const int64_t row = blockIdx.x;
  BlockGroup block;
  source.template prepare<N, kAccesses>(block, row, n / N, chunks);
  Scale scale(1.f, 1.f);
  if (scaling == Scaling::kRow) {
    uint32_t largest[kAccesses], all = 0;
    for (int chunk = 0; chunk < chunks; ++chunk) {
      const RowPart<N, kAccesses> part(n / N, chunk);
      const auto values = source.chunk(row, part);
      largest_of_accesses<true>(values, part, largest);
      all = max(all, largest_of_all(largest));
    }
    scale = scale_for(share_in_row(block, all), out.power_of_two, Format{out.e5m2});
    if (threadIdx.x == 0) out.scales[row * out.row_step] = scale.value;
  }
  for (int chunk = 0; chunk < chunks; ++chunk) {
    const RowPart<N, kAccesses> part(n / N, chunk);
    const auto values = source.chunk(row, part);
    source.keep(row, part, values, 1);
    if (scaling == Scaling::kGroup) {
      bool finite;
      const uint32_t largest = largest_of_groups(values, part, finite);
      quantise_groups(values, 1, largest, finite, part, out, row, n, own_group(part, n));
    } else {
      const bool finite = is_finite(values, part);
      write_codes(out.codes + row * n, values, part, scale.inverse, finite, Format{out.e5m2});
    }
  }
}

// A chunk of a row whose elements have nothing in common, with a scale for each group.
template <int N, int kAccesses, typename Source>
__device__ void quantise_chunk(Source source, const Rows& out, int64_t rows, int64_t n, const Grid& grid) {
  const Place place(grid, blockIdx.x);
  const RowPart<N, kAccesses> part(place.row < rows ? n / N : 0, place.chunk);
  const auto values = source.chunk(place.row, part);
  source.keep(place.row, part, values, 1);
  bool finite;
  const uint32_t largest = largest_of_groups(values, part, finite);
  quantise_groups(values, 1, largest, finite, part, out, place.row, n, own_group(part, n));
}

// ---- Launching ------------------------------------------------------------------------------------------------

// Single elements are read so many at a time that a warp has a group.
constexpr int kSingleElements = kGroupLength / kWarp;

// Whether rows of n elements can be read 16 bytes at a time, and their codes be written. A null matrix does not matter.
template <typename T, typename... Matrices>
bool in_accesses(int64_t rows, int64_t n, const Matrices&... matrices) {
  constexpr int N = kVectorLength<T>;
  return n % N == 0 && ((vector_aligned(matrices.data) && (rows == 1 || matrices.stride % N == 0)) && ...);
}

// The grid, and its blocks of at most `threads` threads, for rows of so many accesses, of which a thread holds
// `accesses`.
inline Grid grid_for(int64_t rows, int64_t row_accesses, int accesses, int threads, dim3* block) {
  const int width = std::min(std::max(kWarp, threads_for(row_accesses, accesses)), threads);
  const int height = width == kWarp ? threads / kWarp : 1;
  *block = dim3(width, height);
  const int64_t chunk = int64_t(width) * accesses;
  return {
      height,
      static_cast<int>(std::max<int64_t>(1, (row_accesses + chunk - 1) / chunk)),
      static_cast<int>((rows + height - 1) / height),
      row_accesses % chunk == 0 && rows % height == 0};
}

// The same for rows that a warp or a block has as a whole: in one chunk, or else in chunks one after the other.
inline Grid grid_for_whole(
    int64_t rows, int64_t row_accesses, int accesses, int short_threads, int long_threads, dim3* block) {
  const bool is_short = row_accesses <= int64_t(kWarp) * accesses;
  return grid_for(rows, row_accesses, accesses, is_short ? short_threads : long_threads, block);
}

// The block for one row: of rows that are read by single elements, the short ones are read twice as well, so that there
// is one kernel less.
inline dim3 of_one_row(const dim3& block) {
  return dim3(block.x);
}

template <typename... Parameters, typename... Arguments>
cudaError_t launch_blocks(
    void (*kernel)(Parameters...), int64_t blocks, dim3 block, cudaStream_t stream, const Arguments&... arguments) {
  if (blocks == 0) return cudaSuccess;
  if (blocks > std::numeric_limits<int>::max()) return cudaErrorInvalidConfiguration;
  kernel<<<static_cast<unsigned>(blocks), block, 0, stream>>>(arguments...);
  return cudaGetLastError();
}

}  // namespace fp8
