// Where a tile's elements lie in shared memory, so that neither rows nor columns collide in its banks.
//
// A tile is kept in rows of 128 bytes, as eight chunks of 16. In row r, chunk c lies at place c xor (r mod 8). Eight
// rows of one column of chunks, which is what a matrix instruction reads, thus touch all 32 banks once. It is also what
// TMA calls CU_TENSOR_MAP_SWIZZLE_128B: tiles that TMA wrote can be read with it, and the other way round, if they
// start at a multiple of 1,024 bytes.

#pragma once

constexpr int kSwizzleRow = 128;
constexpr int kSwizzleChunk = 16;
// A tile that is swizzled must start at a multiple of this many bytes.
constexpr int kSwizzleAlignment = 1024;

// The offset in bytes of a chunk of 16 bytes.
__host__ __device__ constexpr int swizzled(int row, int chunk) {
  return row * kSwizzleRow + ((chunk ^ (row % 8)) * kSwizzleChunk);
}
