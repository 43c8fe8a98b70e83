// Matrix products by one warp (sm_75 and later): mma.sync, and ldmatrix, which loads its operands. The tensor cores of
// 7.5 multiply float16 alone.
//
// ldmatrix loads 8x8 matrices of 16-bit elements, a row of which is 16 bytes of shared memory. ldmatrix_x4 loads four;
// lanes 0 to 7 give the addresses of the first one's rows, lanes 8 to 15 those of the second's, and so on. Lane i then
// holds elements 2(i % 4) and 2(i % 4) + 1 of row i / 4 of each matrix.

#pragma once

#include <cstdint>

#include "float_types.cuh"
#include "shared_address.cuh"

__device__ inline void ldmatrix_x4(uint32_t (&matrices)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 { %0, %1, %2, %3}, [%4];"
               : "=r"(matrices[0]), "=r"(matrices[1]), "=r"(matrices[2]), "=r"(matrices[3])
               : "r"(shared_address(row))
               : "memory");
}

// The same, each matrix transposed.
__device__ inline void ldmatrix_x4_transposed(uint32_t (&matrices)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 { %0, %1, %2, %3}, [%4];"
               : "=r"(matrices[0]), "=r"(matrices[1]), "=r"(matrices[2]), "=r"(matrices[3])
               : "r"(shared_address(row))
               : "memory");
}

// The inverse of ldmatrix_x4 (sm_90 and later).
__device__ inline void stmatrix_x4(void* row, const uint32_t (&matrices)[4]) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], { %1, %2, %3, %4};" ::"r"(shared_address(row)),
               "r"(matrices[0]),
               "r"(matrices[1]),
               "r"(matrices[2]),
               "r"(matrices[3])
               : "memory");
}

// The same of the transposed matrices: a lane's pairs are of a column of what is stored.
__device__ inline void stmatrix_x4_transposed(void* row, const uint32_t (&matrices)[4]) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], { %1, %2, %3, %4};" ::"r"(shared_address(row)),
               "r"(matrices[0]),
               "r"(matrices[1]),
               "r"(matrices[2]),
               "r"(matrices[3])
               : "memory");
}

// The same of two matrices, to rows that the first half of the lanes name.
__device__ inline void stmatrix_x2_transposed(void* row, uint32_t left, uint32_t right) {
  asm volatile("stmatrix.sync.aligned.m8n8.x2.trans.shared.b16 [%0], { %1, %2};" ::"r"(shared_address(row)),
               "r"(left),
               "r"(right)
               : "memory");
}

// Transposes an 8x8 matrix that the warp's lanes hold (movmatrix, sm_75 and later).
__device__ inline uint32_t transposed(uint32_t matrix) {
  uint32_t result;
  asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(result) : "r"(matrix));
  return result;
}

// sum (16x8) += a (16x16) b (16x8), in float32.
//
// `a` is four 8x8 matrices: upper left, lower left, upper right, lower right. `b` is two, the upper and the lower half,
// each transposed, which is what ldmatrix_x4 loads if memory holds b by columns. Of `sum`, lane i
// holds columns 2(i % 4) and 2(i % 4) + 1, of row i / 4 first, then of row i / 4 + 8.
template <typename T>
__device__ void mma_16x8x16(float (&sum)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1);

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
// 7.5 multiplies 8 elements of k at a time.
template <>
__device__ inline void mma_16x8x16<float16>(float (&sum)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    asm volatile(
        "mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 { %0, %1, %2, %3}, { %4, %5}, { %6}, { %0, %1, %2, %3};"
        : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
        : "r"(a[2 * half]), "r"(a[2 * half + 1]), "r"(half ? b1 : b0));
  }
}
// The host refuses bfloat16 there.
template <>
__device__ inline void mma_16x8x16<bfloat16>(float (&)[4], const uint32_t (&)[4], uint32_t, uint32_t) {
  __trap();
}
#else
#define MMA_16X8X16(T, name) \
  template <> \
  __device__ inline void mma_16x8x16<T>(float (&sum)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) { \
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32." name "." name \
                 ".f32 { %0, %1, %2, %3}, { %4, %5, %6, %7}, { %8, %9}, { %0, %1, %2, %3};" \
                 : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3]) \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1)); \
  }
MMA_16X8X16(float16, "f16")
MMA_16X8X16(bfloat16, "bf16")
#undef MMA_16X8X16
#endif
