// Operands of 8 bits for attention's second product by wgmma, after Shah et al., FlashAttention-3 (2024), section 3.3:
// weights leave the accumulator of the first product as the left operand of the second, and values, which wgmma does
// not read transposed, are transposed in shared memory.
//
// Both have keys in the same order along k, and not in that of memory, so that neither moves between lanes. Of 16 keys,
// word i of a chunk, which is lane i % 4's in wgmma.cuh's layout, has
//
//   keys 2i, 2i + 1, 2i + 8, 2i + 9
//
// of which a lane holds the scores (the first two in one 8 x 8 matrix, the others in the next), and of which
// ldmatrix.trans gives it the values. The transposed tile also has the dimensions in another order: of 16, the even
// ones, then the odd ones. So eight rows that stmatrix writes together lie one below the other, without bank conflicts,
// and a lane of the accumulator has four consecutive dimensions: OutputOrder.

#pragma once

#include <cstdint>

#include "fp8.cuh"
#include "mma.cuh"
#include "swizzle.cuh"

namespace attention::sm90 {

constexpr int kFp8Keys = kSwizzleRow;  // Of a tile: a transposed row has all of them.
constexpr int kFp8Depth = 32;          // K of a wgmma.

// Four numbers rounded to e4m3, the first in the lowest byte. Beyond 448 they are 448, NaN stays.
__device__ __forceinline__ uint32_t e4m3_quad(float first, float second, float third, float fourth) {
  uint32_t codes;
  asm("{\n"
      ".reg .b16 low, high;\n"
      "cvt.rn.satfinite.e4m3x2.f32 low, %2, %1;\n"
      "cvt.rn.satfinite.e4m3x2.f32 high, %4, %3;\n"
      "mov.b32 %0, {low, high};\n"
      "}"
      : "=r"(codes)
      : "f"(first), "f"(second), "f"(third), "f"(fourth));
  return codes;
}

// Where a lane's four weights of 16 keys and of its upper (0) or lower (1) row are in the accumulator of 64 rows: at
// `first` and the next, and at four and five from there. As codes they are word quad % 2 * 2 + row of the left operand
// quad / 2.
struct WeightOrder {
  static constexpr __device__ int first(int quad, int row) { return quad * 8 + row * 2; }
};

// Transposes tiles of kFp8Keys rows of 128 bytes, the first D of which are values, to D rows of kFp8Keys bytes: a
// warp's share of the work, which kWarps do.
template <int D, int kWarps>
class Transposition {
 public:
  __device__ explicit Transposition(int warp) : first_(warp) {
    const int lane = threadIdx.x % 32, in_eight = lane % 8, matrix = lane / 8;
    values_ = swizzled(lane, 0);
    turned_ = swizzled(matrix % 2 * 8 + in_eight, matrix / 2);
  }

  __device__ __forceinline__ void run(char* turned, const char* values) const {
#pragma unroll 1
    for (int dims = first_; dims < D / 16; dims += kWarps) {
      // Other chunks of a row are at addresses that differ by an exclusive or, in tiles aligned to kSwizzleAlignment.
      const char* const from = values + (values_ ^ dims * kSwizzleChunk);
      char* const to = turned + dims * 16 * kSwizzleRow;
      constexpr int kSteps = kFp8Keys / 32;
      // Of 8 keys each, pairs of dimensions: a register has those of a lane's two keys. All are loaded before the first
      // is stored, so that a warp waits for shared memory once.
      uint32_t pairs[kSteps][4];
#pragma unroll
      for (int step = 0; step < kSteps; ++step) ldmatrix_x4_transposed(pairs[step], from + step * 32 * kSwizzleRow);
#pragma unroll
      for (int step = 0; step < kSteps; ++step) {
        const uint32_t (&of_step)[4] = pairs[step];
        // The even dimensions of 16 keys, the odd ones, and both of the next 16 keys.
        const uint32_t rows[4] = {
            __byte_perm(of_step[0], of_step[1], 0x6420),
            __byte_perm(of_step[0], of_step[1], 0x7531),
            __byte_perm(of_step[2], of_step[3], 0x6420),
            __byte_perm(of_step[2], of_step[3], 0x7531)};
        stmatrix_x4(to + (turned_ ^ step * 2 * kSwizzleChunk), rows);
      }
    }
  }

 private:
  int first_;            // Of 16 dimensions each.
  int values_, turned_;  // This lane's offsets in the first 32 keys by 16 dimensions.
};

// Where a lane's four numbers of 16 dimensions are in the accumulator, for the upper (0) or the lower (1) row. They are
// those of dimensions 4 (lane % 4) to 4 (lane % 4) + 3.
struct OutputOrder {
  static constexpr __device__ int index(int sixteen, int lower, int i) {
    return sixteen * 8 + i % 2 * 4 + lower * 2 + i / 2;
  }
};

}  // namespace attention::sm90
