// out = x * w + bias over chunks: a producer warp fills stages by bulk copies, consumer warps compute, and a bulk copy
// takes each result away. Barriers and copies are inline PTX (sm_90).

#include <cstdint>

namespace pipeline {

static constexpr int STAGES = 3;
static constexpr int CHUNK = 512;  // Elements.
static constexpr int CONSUMER_WARPS = 4;
static constexpr int CONSUMERS = CONSUMER_WARPS * 32;
static constexpr int BLOCK = CONSUMERS + 32;  // The last warp produces.

struct alignas(128) SharedStorage {
  float x[STAGES][CHUNK];
  float w[STAGES][CHUNK];
  float out[CHUNK];
  uint64_t full[STAGES];
  uint64_t empty[STAGES];
};

__device__ __forceinline__ uint32_t smem_u32(const void* p) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(p));
}

__device__ __forceinline__ void mbar_init(uint64_t* bar, uint32_t count) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(smem_u32(bar)), "r"(count) : "memory");
}

__device__ __forceinline__ void mbar_expect_tx(uint64_t* bar, uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(smem_u32(bar)), "r"(bytes) : "memory");
}

__device__ __forceinline__ void mbar_arrive(uint64_t* bar) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(smem_u32(bar)) : "memory");
}

__device__ __forceinline__ bool mbar_try_wait(uint64_t* bar, uint32_t parity) {
  uint32_t done;
  asm volatile(
      "{\n\t"
      ".reg .pred p;\n\t"
      "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n\t"
      "selp.b32 %0, 1, 0, p;\n\t"
      "}"
      : "=r"(done)
      : "r"(smem_u32(bar)), "r"(parity)
      : "memory");
  return done;
}

__device__ __forceinline__ void mbar_wait(uint64_t* bar, uint32_t parity) {
  while (!mbar_try_wait(bar, parity)) {
  }
}

__device__ __forceinline__ void bulk_load(void* dst, const void* src, uint32_t bytes, uint64_t* bar) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::"
      "bytes [%0], [%1], %2, [%3];" ::"r"(smem_u32(dst)),
      "l"(src),
      "r"(bytes),
      "r"(smem_u32(bar))
      : "memory");
}

__device__ __forceinline__ void bulk_store(void* dst, const void* src, uint32_t bytes) {
  asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(dst), "r"(smem_u32(src)), "r"(bytes)
               : "memory");
}

__device__ __forceinline__ void consumers_sync() {
  asm volatile("bar.sync 1, %0;" ::"n"(CONSUMERS) : "memory");
}

__global__ void __launch_bounds__(BLOCK) fma_kernel(
    const float* __restrict__ x, const float* __restrict__ w, float bias, float* __restrict__ out, int64_t n) {
  extern __shared__ char raw[];
  SharedStorage& smem = *reinterpret_cast<SharedStorage*>((reinterpret_cast<uintptr_t>(raw) + 127) / 128 * 128);
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int64_t chunks = (n + CHUNK - 1) / CHUNK;

  if (threadIdx.x == 0) {
    for (int s = 0; s < STAGES; ++s) {
      mbar_init(&smem.full[s], 1);
      mbar_init(&smem.empty[s], CONSUMER_WARPS);
    }
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  __syncthreads();

  int stage = 0;
  uint32_t phase = 0;
  if (warp == CONSUMER_WARPS) {
    if (lane == 0) {
      for (int64_t chunk = blockIdx.x; chunk < chunks; chunk += gridDim.x) {
        const int64_t begin = chunk * CHUNK;
        const uint32_t count = n - begin < CHUNK ? n - begin : CHUNK;
        const uint32_t bytes = count * sizeof(float);
        mbar_wait(&smem.empty[stage], phase ^ 1);
        mbar_expect_tx(&smem.full[stage], 2 * bytes);
        bulk_load(smem.x[stage], x + begin, bytes, &smem.full[stage]);
        bulk_load(smem.w[stage], w + begin, bytes, &smem.full[stage]);
        if (++stage == STAGES) stage = 0, phase ^= 1;
      }
    }
    return;
  }
  for (int64_t chunk = blockIdx.x; chunk < chunks; chunk += gridDim.x) {
    const int64_t begin = chunk * CHUNK;
    const int count = n - begin < CHUNK ? n - begin : CHUNK;
    mbar_wait(&smem.full[stage], phase);
    if (threadIdx.x == 0) asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
    consumers_sync();  // The result before this has left smem.out.
    for (int i = threadIdx.x; i < count; i += CONSUMERS) smem.out[i] = smem.x[stage][i] * smem.w[stage][i] + bias;
    __syncwarp();
    if (lane == 0) mbar_arrive(&smem.empty[stage]);
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    consumers_sync();  // All of smem.out is written.
    if (threadIdx.x == 0) {
      bulk_store(out + begin, smem.out, count * sizeof(float));
      asm volatile("cp.async.bulk.commit_group;" ::: "memory");
    }
    if (++stage == STAGES) stage = 0, phase ^= 1;
  }
  if (threadIdx.x == 0) asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
}

}  // namespace pipeline

extern "C" cudaError_t run_fma_pipeline_sm90(
    const float* x, const float* w, double bias, float* out, int64_t n, int64_t blocks) {
  if (n % 4) return cudaErrorInvalidValue;  // Bulk copies move multiples of 16 bytes.
  const size_t bytes = sizeof(pipeline::SharedStorage) + 128;
  pipeline::fma_kernel<<<blocks, pipeline::BLOCK, bytes>>>(x, w, static_cast<float>(bias), out, n);
  return cudaGetLastError();
}
