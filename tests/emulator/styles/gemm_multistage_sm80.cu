// C = A * B^T in half precision with sums in float32: a ring of stages filled by cp.async, ldmatrix, mma.sync (sm_80).

#include <cuda_fp16.h>

#include <cstdint>

constexpr int BM = 64, BN = 64, BK = 32, STAGES = 3, WARPS = 4;
constexpr int LD = BK + 8;  // Padded, against bank conflicts.

__device__ inline void cp_async16(void* smem, const void* gmem, bool inside) {
  const unsigned dst = (unsigned)__cvta_generic_to_shared(smem);
  const int src_bytes = inside ? 16 : 0;
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;\n" ::"r"(dst), "l"(gmem), "r"(src_bytes));
}

__device__ inline void cp_async_commit() {
  asm volatile("cp.async.commit_group;\n" ::);
}

template <int N>
__device__ inline void cp_async_wait() {
  asm volatile("cp.async.wait_group %0;\n" ::"n"(N));
}

__device__ inline void ldsm_x4(unsigned (&r)[4], const half* p) {
  const unsigned src = (unsigned)__cvta_generic_to_shared(p);
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];\n"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(src));
}

__device__ inline void mma16816(float (&c)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
      "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};\n"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

struct __align__(16) Stage {
  half a[BM * LD];
  half b[BN * LD];
};

// Loads rows [row0, row0 + 64) and columns [k0, k0 + BK) of a row-major matrix; zeros outside it.
__device__ inline void load_tile(half* smem, const half* gmem, int row0, int rows, int k0, int k) {
  for (int chunk = threadIdx.x; chunk < 64 * BK / 8; chunk += WARPS * 32) {
    const int r = chunk / (BK / 8), c = chunk % (BK / 8) * 8;
    const bool inside = row0 + r < rows && k0 + c < k;
    const half* src = inside ? gmem + (size_t)(row0 + r) * k + k0 + c : gmem;
    cp_async16(smem + r * LD + c, src, inside);
  }
}

__global__ void __launch_bounds__(WARPS * 32)
    gemm_multistage(const half* A, const half* B, float* C, int M, int N, int K) {
  extern __shared__ __align__(16) unsigned char smem_raw[];
  Stage* ring = reinterpret_cast<Stage*>(smem_raw);
  const int m0 = blockIdx.y * BM, n0 = blockIdx.x * BN;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int wm = warp / 2 * 32, wn = warp % 2 * 32;
  const int steps = (K + BK - 1) / BK;

  float acc[2][4][4];
#pragma unroll
  for (int i = 0; i < 2; ++i)
    for (int j = 0; j < 4; ++j)
      for (int e = 0; e < 4; ++e) acc[i][j][e] = 0.f;

  for (int s = 0; s < STAGES - 1; ++s) {
    if (s < steps) {
      load_tile(ring[s].a, A, m0, M, s * BK, K);
      load_tile(ring[s].b, B, n0, N, s * BK, K);
    }
    cp_async_commit();
  }
  for (int step = 0; step < steps; ++step) {
    cp_async_wait<STAGES - 2>();
    __syncthreads();  // This step's stage has arrived, and all have left the
                      // stage that is filled next.
    const int next = step + STAGES - 1;
    if (next < steps) {
      Stage& stage = ring[next % STAGES];
      load_tile(stage.a, A, m0, M, next * BK, K);
      load_tile(stage.b, B, n0, N, next * BK, K);
    }
    cp_async_commit();

    const Stage& tile = ring[step % STAGES];
#pragma unroll
    for (int kk = 0; kk < BK; kk += 16) {
      unsigned a[2][4], b[2][4];
      for (int i = 0; i < 2; ++i) ldsm_x4(a[i], &tile.a[(wm + i * 16 + lane % 16) * LD + kk + lane / 16 * 8]);
      for (int j = 0; j < 2; ++j) ldsm_x4(b[j], &tile.b[(wn + j * 16 + lane % 16) * LD + kk + lane / 16 * 8]);
      for (int i = 0; i < 2; ++i)
        for (int j = 0; j < 4; ++j) mma16816(acc[i][j], a[i], b[j / 2][j % 2], b[j / 2][j % 2 + 2]);
    }
  }
#pragma unroll
  for (int i = 0; i < 2; ++i)
    for (int j = 0; j < 4; ++j)
      for (int e = 0; e < 4; ++e) {
        const int row = m0 + wm + i * 16 + lane / 4 + e / 2 * 8;
        const int col = n0 + wn + j * 8 + lane % 4 * 2 + e % 2;
        if (row < M && col < N) C[(size_t)row * N + col] = acc[i][j][e];
      }
}

extern "C" cudaError_t run_gemm_multistage_sm80(
    const half* A, const half* B, float* C, int64_t M, int64_t N, int64_t K) {
  if (K % 8) return cudaErrorInvalidValue;
  const dim3 grid((N + BN - 1) / BN, (M + BM - 1) / BM);
  gemm_multistage<<<grid, WARPS * 32, STAGES * sizeof(Stage)>>>(A, B, C, (int)M, (int)N, (int)K);
  return cudaGetLastError();
}
