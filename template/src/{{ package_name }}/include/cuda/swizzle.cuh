// The layout of a tile in shared memory without bank conflicts, by rows or by columns: the 128-byte swizzle.
//
// A tile has rows of 128 bytes: eight chunks of 16 bytes. Row r keeps chunk c at position c xor (r mod 8), so the eight
// rows of one column of chunks, which a matrix instruction reads together, touch each of the 32 banks once. TMA calls
// the same layout CU_TENSOR_MAP_SWIZZLE_128B: what one writes the other reads, if the tile starts at a multiple of
// 1,024 bytes.

#pragma once

constexpr int kSwizzleRow = 128;
constexpr int kSwizzleChunk = 16;
// A swizzled tile's address is a multiple of this many bytes.
constexpr int kSwizzleAlignment = 1024;

// The offset in bytes of a chunk of 16 bytes from the tile's start.
__host__ __device__ constexpr int swizzled(int row, int chunk) {
  return row * kSwizzleRow + ((chunk ^ (row % 8)) * kSwizzleChunk);
}

// The same in a tile of rows of kRow bytes, 128 or 64. Where two rows share 128 bytes, they have the same swizzle, of
// four chunks: CU_TENSOR_MAP_SWIZZLE_64B.
template <int kRow>
__host__ __device__ constexpr int swizzled(int row, int chunk) {
  static_assert(kRow == 128 || kRow == 64);
  return row * kRow + ((chunk ^ (row / (kSwizzleRow / kRow) % (kRow / kSwizzleChunk))) * kSwizzleChunk);
}
