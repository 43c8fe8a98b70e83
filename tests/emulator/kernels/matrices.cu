// Products of matrices by mma.sync and by nvcuda::wmma. `c` is added; matrices are row-major, but b of mma.sync is
// column-major.

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <mma.h>
#include <stdint.h>

namespace {

// Registers of mma.sync, of elements of kBytes: PTX ISA, "Matrix Fragments for mma".
template <int kBytes, int kRows, int kDepth>
__device__ void load_left(uint32_t* registers, const uint8_t* a) {
  constexpr int kCount = 4 / kBytes;
  const int lane = threadIdx.x;
  for (int i = 0; i < kRows * kDepth / 32 / kCount; ++i) {
    const int row = lane / 4 + i % (kRows / 8) * 8, column = (lane % 4 + i / (kRows / 8) * 4) * kCount;
    memcpy(registers + i, a + (row * kDepth + column) * kBytes, 4);
  }
}

template <int kBytes, int kDepth>
__device__ void load_right(uint32_t* registers, const uint8_t* b) {
  constexpr int kCount = 4 / kBytes;
  const int lane = threadIdx.x;
  for (int i = 0; i < 8 * kDepth / 32 / kCount; ++i) {
    memcpy(registers + i, b + (lane / 4 * kDepth + (lane % 4 + 4 * i) * kCount) * kBytes, 4);
  }
}

__device__ int sum_index(int i) {
  const int lane = threadIdx.x;
  return (lane / 4 + i / 2 * 8) * 8 + lane % 4 * 2 + i % 2;
}

}  // namespace

// With 16 x 8 sums of 32 bits.
#define PRODUCT_32(name, bytes, depth, instruction) \
  __global__ void name##_kernel(const uint8_t* a, const uint8_t* b, const uint32_t* c, uint32_t* d) { \
    uint32_t x[4], y[2], sums[4]; \
    load_left<bytes, 16, depth>(x, a); \
    load_right<bytes, depth>(y, b); \
    asm volatile(instruction " {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%10, %11, %12, %13};" \
                 : "=r"(sums[0]), "=r"(sums[1]), "=r"(sums[2]), "=r"(sums[3]) \
                 : "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3]), "r"(y[0]), "r"(y[1]), "r"(c[sum_index(0)]), \
                   "r"(c[sum_index(1)]), "r"(c[sum_index(2)]), "r"(c[sum_index(3)])); \
    for (int i = 0; i < 4; ++i) d[sum_index(i)] = sums[i]; \
  } \
  extern "C" cudaError_t name(const uint8_t* a, const uint8_t* b, const uint32_t* c, uint32_t* d) { \
    name##_kernel<<<1, 32>>>(a, b, c, d); \
    return cudaDeviceSynchronize(); \
  }

PRODUCT_32(mma_f16, 2, 16, "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32")
PRODUCT_32(mma_bf16, 2, 16, "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32")
PRODUCT_32(mma_tf32, 4, 8, "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32")
PRODUCT_32(mma_e4m3, 1, 32, "mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32")
PRODUCT_32(mma_e5m2, 1, 32, "mma.sync.aligned.m16n8k32.row.col.f32.e5m2.e5m2.f32")
PRODUCT_32(mma_s8, 1, 32, "mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32")
PRODUCT_32(mma_u8, 1, 32, "mma.sync.aligned.m16n8k32.row.col.satfinite.s32.u8.u8.s32")

__global__ void mma_f16_sums_kernel(const uint8_t* a, const uint8_t* b, const __half2* c, uint32_t* d) {
  uint32_t x[4], y[2], sums[2];
  load_left<2, 16, 16>(x, a);
  load_right<2, 16>(y, b);
  const uint32_t* const pairs = reinterpret_cast<const uint32_t*>(c);
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16 {%0, %1}, {%2, %3, %4, %5}, {%6, %7}, {%8, %9};"
      : "=r"(sums[0]), "=r"(sums[1])
      : "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3]), "r"(y[0]), "r"(y[1]), "r"(pairs[sum_index(0) / 2]),
        "r"(pairs[sum_index(2) / 2]));
  d[sum_index(0) / 2] = sums[0];
  d[sum_index(2) / 2] = sums[1];
}
extern "C" cudaError_t mma_f16_sums(const uint8_t* a, const uint8_t* b, const __half2* c, uint32_t* d) {
  mma_f16_sums_kernel<<<1, 32>>>(a, b, c, d);
  return cudaDeviceSynchronize();
}

__global__ void mma_f64_kernel(const double* a, const double* b, const double* c, double* d) {
  const int lane = threadIdx.x, sum = lane / 4 * 8 + lane % 4 * 2;
  asm volatile("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%0, %1}, {%2}, {%3}, {%4, %5};"
               : "=d"(d[sum]), "=d"(d[sum + 1])
               : "d"(a[lane]), "d"(b[lane]), "d"(c[sum]), "d"(c[sum + 1]));
}
extern "C" cudaError_t mma_f64(const double* a, const double* b, const double* c, double* d) {
  mma_f64_kernel<<<1, 32>>>(a, b, c, d);
  return cudaDeviceSynchronize();
}

template <typename T, typename Stored, typename Sum, int kM, int kN, int kK>
__global__ void wmma_kernel(const Stored* a, const Stored* b, const Sum* c, Sum* d) {
  using namespace nvcuda::wmma;
  fragment<matrix_a, kM, kN, kK, T, row_major> left;
  fragment<matrix_b, kM, kN, kK, T, row_major> right;
  fragment<accumulator, kM, kN, kK, Sum> sums;
  load_matrix_sync(left, a, kK);
  load_matrix_sync(right, b, kN);
  load_matrix_sync(sums, c, kN, mem_row_major);
  mma_sync(sums, left, right, sums);
  store_matrix_sync(d, sums, kN, mem_row_major);
}

#define WMMA(name, T, Stored, Sum, m, n, k) \
  extern "C" cudaError_t name(const Stored* a, const Stored* b, const Sum* c, Sum* d) { \
    wmma_kernel<T, Stored, Sum, m, n, k><<<1, 32>>>(a, b, c, d); \
    return cudaDeviceSynchronize(); \
  }
WMMA(wmma_f16, __half, __half, float, 16, 16, 16)
WMMA(wmma_f16_tall, __half, __half, float, 32, 8, 16)
WMMA(wmma_f16_wide, __half, __half, float, 8, 32, 16)
WMMA(wmma_bf16, __nv_bfloat16, __nv_bfloat16, float, 16, 16, 16)
WMMA(wmma_s8, signed char, signed char, int, 16, 16, 16)
WMMA(wmma_tf32, nvcuda::wmma::precision::tf32, float, float, 16, 16, 8)
WMMA(wmma_f64, double, double, double, 8, 8, 4)
