// Swizzled tiles of 16-bit elements in shared memory, and the fragments that a warp loads from them with ldmatrix.
//
// A tile of R rows and C columns (64, 96, 128, 192 or 256) is panels of 64 columns; a panel is R swizzled rows of 128
// bytes. Of 96 columns the second panel's right half is neither copied nor read.

#pragma once

#include <cstdint>

#include "cp_async.cuh"
#include "mma.cuh"
#include "swizzle.cuh"

constexpr int kWarpSize = 32;
constexpr int kChunk = kSwizzleChunk / 2;  // Elements of a chunk, the 16 bytes that the swizzle keeps together.
constexpr int kPanel = kSwizzleRow / 2;    // Columns of a panel.

template <int kRows, int kColumns>
constexpr int kTileBytes = kRows * ((kColumns + kPanel - 1) / kPanel * kPanel) * 2;

// How many of `threads` copy a row of a tile, 16 bytes at a time: as many as divide it, and leave each thread rows that
// are a multiple of 8 apart, so that the swizzle is that of the first.
constexpr int copy_lanes(int columns, int threads) {
  const int chunks = columns / kChunk, dividing = chunks & -chunks, limit = threads / 8;
  return dividing < limit ? dividing : limit;
}

// The byte offset of a chunk in a tile.
template <int kRows>
__device__ constexpr int tile_offset(int row, int chunk) {
  return chunk / 8 * kRows * kSwizzleRow + swizzled(row, chunk % 8);
}

// Starts to copy chunks of a column of a tile with cp.async: of the rows first, first + kStep and so on, where kStep is
// a multiple of 8, so that the swizzle is that of the first row.
template <int kRows, int kStep, typename T>
__device__ void load_column(uint8_t* tile, const T* source, int stride, int rows, int chunks, int first, int chunk) {
  source += int64_t(first) * stride + chunk * kChunk;
  tile += tile_offset<kRows>(first, chunk);
  const int valid = chunk < chunks ? rows - first : 0;
#pragma unroll
  for (int row = 0; row < kRows; row += kStep) {
    cp_async_16(tile + row * kSwizzleRow, source + int64_t(row) * stride, row < valid);
  }
}

// Starts to copy a tile. Rows from `rows` on and chunks of columns from `chunks` on become zeros.
template <int kRows, int kColumns, int kThreads, typename T>
__device__ void load_tile(
    uint8_t* tile, const T* source, int stride, int rows, int chunks, unsigned thread = threadIdx.x) {
  constexpr int kChunks = kColumns / kChunk, kLanes = copy_lanes(kColumns, kThreads), kStep = kThreads / kLanes;
  static_assert(kThreads % kLanes == 0 && kRows % kStep == 0 && kStep % 8 == 0);
  const int chunk = thread % kLanes, first = thread / kLanes;
  load_column<kRows, kStep>(tile, source, stride, rows, chunks, first, chunk);
#pragma unroll
  for (int part = kLanes; part < kChunks; part += kLanes) {
    load_column<kRows, kStep>(tile, source, stride, rows, chunks, first, chunk + part);
  }
}

// The same for rows that lie anywhere: source(row) is the address of a row.
template <int kRows, int kStep, typename Source>
__device__ void load_column_of(uint8_t* tile, const Source& source, int rows, int chunks, int first, int chunk) {
  tile += tile_offset<kRows>(first, chunk);
#pragma unroll
  for (int row = 0; row < kRows; row += kStep) {
    const bool valid = first + row < rows && chunk < chunks;
    cp_async_16(tile + row * kSwizzleRow, source(min(first + row, rows - 1)) + chunk * kChunk, valid);
  }
}
template <int kRows, int kColumns, int kThreads, typename Source>
__device__ void load_tile_of(uint8_t* tile, const Source& source, int rows, int chunks) {
  constexpr int kChunks = kColumns / kChunk, kLanes = copy_lanes(kColumns, kThreads), kStep = kThreads / kLanes;
  static_assert(kThreads % kLanes == 0 && kRows % kStep == 0 && kStep % 8 == 0);
  const int chunk = threadIdx.x % kLanes, first = threadIdx.x / kLanes;
  load_column_of<kRows, kStep>(tile, source, rows, chunks, first, chunk);
#pragma unroll
  for (int part = kLanes; part < kChunks; part += kLanes) {
    load_column_of<kRows, kStep>(tile, source, rows, chunks, first, chunk + part);
  }
}

// Writes 16 rows of a tile, from `row` on, to global memory: by one warp. target(row) is the address of a row.
template <int kRows, int kStep, typename Target>
__device__ void store_column_of(
    const uint8_t* tile, int row, const Target& target, int rows, int chunks, int first, int chunk) {
#pragma unroll
  for (int i = first; i < row + 16; i += kStep) {
    if (i < rows && chunk < chunks) {
      *reinterpret_cast<uint4*>(target(i) + chunk * kChunk) =
          *reinterpret_cast<const uint4*>(tile + tile_offset<kRows>(i, chunk));
    }
  }
}
template <int kRows, int kColumns, typename Target>
__device__ void store_rows_of(const uint8_t* tile, int row, const Target& target, int rows, int chunks) {
  constexpr int kChunks = kColumns / kChunk, kLanes = kChunks & -kChunks, kStep = kWarpSize / kLanes;
  const int lane = threadIdx.x % kWarpSize, chunk = lane % kLanes, first = row + lane / kLanes;
  store_column_of<kRows, kStep>(tile, row, target, rows, chunks, first, chunk);
#pragma unroll
  for (int part = kLanes; part < kChunks; part += kLanes) {
    store_column_of<kRows, kStep>(tile, row, target, rows, chunks, first, chunk + part);
  }
}

// The same for rows that are `stride` elements apart.
template <int kRows, int kColumns, typename T>
__device__ void store_rows(const uint8_t* tile, int row, T* target, int stride, int rows, int chunks) {
  store_rows_of<kRows, kColumns>(tile, row, [=](int i) { return target + int64_t(i) * stride; }, rows, chunks);
}

// The row and the chunk whose address a lane gives to ldmatrix.x4, within a block of 16 x 16 elements. Blocks begin at
// multiples of 16, so the swizzle depends on the lane and on the block's column only.
struct LdmatrixLane {
  int row;    // As a byte offset.
  int chunk;  // Swizzled.

  // The four 8 x 8 matrices in the order upper left, lower left, upper right, lower right.
  __device__ static LdmatrixLane by_columns() {
    const int lane = threadIdx.x % kWarpSize;
    return {lane % 16 * kSwizzleRow, (lane / 16) ^ (lane % 8)};
  }
  // In the order upper left, upper right, lower left, lower right.
  __device__ static LdmatrixLane by_rows() {
    const int lane = threadIdx.x % kWarpSize;
    return {(lane % 8 + lane / 16 * 8) * kSwizzleRow, (lane / 8 % 2) ^ (lane % 8)};
  }
  template <int kRows>
  __device__ const uint8_t* address_in(const uint8_t* tile, int row, int column) const {
    const int first = column / kChunk;
    return tile + first / 8 * kRows * kSwizzleRow + row * kSwizzleRow + this->row +
           ((chunk ^ (first % 8)) * kSwizzleChunk);
  }
};

// An operand of mma_16x8x16; b comes as two of 8 columns each. How to load one, by where it lies in a tile:
//
//                       tile[row of a][k]           tile[k][row of a]
//   a, 16 x 16          load_rows, by_columns       load_transposed, by_rows
//                       tile[column of b][k]        tile[k][column of b]
//   b, 16 x 16          load_rows, by_rows          load_transposed, by_columns
using Fragment = uint32_t[4];

template <int kRows>
__device__ void load_rows(Fragment& fragment, const uint8_t* tile, const LdmatrixLane& lane, int row, int column) {
  ldmatrix_x4(fragment, lane.address_in<kRows>(tile, row, column));
}

template <int kRows>
__device__ void load_transposed(
    Fragment& fragment, const uint8_t* tile, const LdmatrixLane& lane, int row, int column) {
  ldmatrix_x4_transposed(fragment, lane.address_in<kRows>(tile, row, column));
}

// An accumulator of 16 rows by kColumns columns: [8-column block][element]. See mma.cuh for the layout of a block.
template <int kColumns>
using Accumulator = float[kColumns / 8][4];

template <typename T, int N>
__device__ void multiply(float (&left)[N], float (&right)[N], const Fragment& a, const Fragment& b) {
  mma_16x8x16<T>(left, a, b[0], b[1]);
  mma_16x8x16<T>(right, a, b[2], b[3]);
}
