// Kernels that compute rows and quantise them: which threads take what of a row, and the steps that all have in common.
//
// An op's kernels call these with a source, which computes the values of a row:
//
//     struct Source {
//       // What all elements of a row have in common, such as the mean of squares; of a row that the block, or its
//       // warp, holds, and of one in `chunks` chunks. `whole` returns the values of a part, and so does `chunk` after
//       // `prepare`: Held, or the like.
//       template <int N, int kAccesses>
//       __device__ Values whole(BlockGroup&, int64_t row, const RowPart<N, kAccesses>&);
//       template <int N, int kAccesses>
//       __device__ void prepare(BlockGroup&, int64_t row, int64_t accesses, int chunks);
//       template <int N, int kAccesses>
//       __device__ Values chunk(int64_t row, const RowPart<N, kAccesses>&);
//
//       // Writes the values to where they are wanted besides.
//       template <int N, int kAccesses, typename Values>
//       __device__ void keep(int64_t row, const RowPart<N, kAccesses>&, const Values&);
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

  __host__ __device__ int64_t blocks() const { return int64_t(row_blocks) * chunks; }
};

// The row and the chunk of a thread of the i-th block.
struct Place {
  int64_t row, chunk;

  __device__ Place(const Grid& grid, int i)
      : row(int64_t(i / grid.chunks) * grid.rows_per_block + threadIdx.y), chunk(i % grid.chunks) {}
};

// What a thread loads of a row: zeros past its end.
template <int N, int kAccesses, typename T>
__device__ __forceinline__ void load_part(
    const T* row, const RowPart<N, kAccesses>& part, Vector<T, N> (&loaded)[kAccesses]) {
#pragma unroll
  for (int access = 0; access < kAccesses; ++access) {
    loaded[access] = load_evict_last<N>(row, part.index(access), part.has(access));
  }
}

// The values, each rounded to T.
template <int N, int kAccesses, typename T, typename Values>
__device__ __forceinline__ void store_part(T* row, const RowPart<N, kAccesses>& part, const Values& values) {
#pragma unroll
  for (int access = 0; access < kAccesses; ++access) {
    const Vector<float, N> of_access = values[access];
    if (part.has(access)) store_evict_last(row, part.index(access), narrow<T>(of_access));
  }
}

// Rows of n elements that a warp or a block holds, with a scale each or one for each group.
template <int N, int kAccesses, typename Source>
__device__ void quantise_whole_rows(
    Source source, const Rows& out, Scaling scaling, int64_t rows, int64_t n, const Grid& grid) {
  const Place place(grid, blockIdx.x);
  const bool valid = place.row < rows;
  const RowPart<N, kAccesses> part(valid ? n / N : 0);
  BlockGroup block;
  const auto values = source.whole(block, place.row, part);
  source.keep(place.row, part, values);
  if (scaling == Scaling::kGroup) {
    quantise_groups(values, part, out, place.row, n);
  } else {
    quantise_row(block, values, part, out, place.row, valid, n);
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
    uint32_t largest[kAccesses], all[1] = {0};
    for (int chunk = 0; chunk < chunks; ++chunk) {
      const RowPart<N, kAccesses> part(n / N, chunk);
      const auto values = source.chunk(row, part);
      largest_of_accesses<true>(values, part, largest);
#pragma unroll
      for (int access = 0; access < kAccesses; ++access) {
        all[0] = max(all[0], largest[access]);
      }
    }
    scale = scale_for(share_in_row(block, all), out.power_of_two, Format{out.e5m2});
    if (threadIdx.x == 0) out.scales[row * out.row_step] = scale.value;
  }
  for (int chunk = 0; chunk < chunks; ++chunk) {
    const RowPart<N, kAccesses> part(n / N, chunk);
    const auto values = source.chunk(row, part);
    source.keep(row, part, values);
    if (scaling == Scaling::kGroup) {
      quantise_groups(values, part, out, row, n);
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
  source.keep(place.row, part, values);
  quantise_groups(values, part, out, place.row, n);
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
      static_cast<int>((rows + height - 1) / height)};
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
