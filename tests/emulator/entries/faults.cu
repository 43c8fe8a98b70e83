// Kernels with a fault that an argument turns on.

#include <cuda_pipeline.h>

#include "cluster.cuh"
#include "cp_async.cuh"
#include "mma.cuh"
#include "reduce.cuh"
#include "swizzle.cuh"
#include "tma.cuh"
#include "tma.h"
#include "warpgroup.cuh"
#include "wgmma.cuh"

namespace {

constexpr int kThreads = 128;

// ---- Races: each kernel copies kThreads numbers ---------------------------------------------------------------

__global__ void without_barrier(const int* in, int* out, bool faulty) {
  __shared__ int buffer[kThreads];
  const int other = (threadIdx.x + 32) % kThreads;
  buffer[threadIdx.x] = in[threadIdx.x];
  if (!faulty) __syncthreads();
  out[other] = buffer[other];
}

__global__ void without_second_barrier(const int* in, int* out, bool faulty) {
  __shared__ int buffer[kThreads];
  const int other = (threadIdx.x + 64) % kThreads;
  int sum = 0;
  for (int turn = 0; turn < 2; ++turn) {
    buffer[threadIdx.x] = turn == 0 ? in[threadIdx.x] : 0;
    __syncthreads();
    sum += buffer[other];
    if (!faulty) __syncthreads();
  }
  out[other] = sum;
}

__global__ void without_warp_barrier(const int* in, int* out, bool faulty) {
  __shared__ int buffer[kThreads];
  const int other = threadIdx.x ^ 1;
  buffer[threadIdx.x] = in[threadIdx.x];
  if (!faulty) __syncwarp();
  out[other] = buffer[other];
}

__global__ void without_waiting_for_a_copy(const int* in, int* out, bool faulty) {
  extern __shared__ __align__(16) int buffer[];
  if (threadIdx.x < kThreads / 4) cp_async_16(buffer + 4 * threadIdx.x, in + 4 * threadIdx.x, true);
  cp_async_commit();
  if (!faulty) cp_async_wait<0>();
  __syncthreads();
  out[threadIdx.x] = buffer[threadIdx.x];
}

__global__ void without_atomics(const int* in, int* out, bool faulty) {
  // Each of two blocks adds its part of a number; other warps run between the load and the store.
  if (faulty) {
    const int old = out[threadIdx.x];
    __syncthreads();
    out[threadIdx.x] = old + (blockIdx.x ? 0 : in[threadIdx.x]);
  } else {
    atomicAdd(&out[threadIdx.x], blockIdx.x ? 0 : in[threadIdx.x]);
  }
}

__global__ void without_cluster_barrier(const int* in, int* out, bool faulty) {
  __shared__ int buffer[kThreads];
  const int block = cluster::rank(), next = (block + 1) % cluster::size();
  if (!faulty) {
    cluster::arrive();
    cluster::wait();
  }
  cluster::shared_of(next, buffer)[threadIdx.x] = in[threadIdx.x];
  cluster::arrive();
  cluster::wait();
  out[threadIdx.x] = buffer[threadIdx.x];
}

// ---- Faults that the emulator reports -------------------------------------------------------------------------

__global__ void with_a_barrier_for_too_many(const int* in, int* out, bool faulty) {
  if (threadIdx.x < kThreads / 2) named_barrier_sync(1, faulty ? kThreads : kThreads / 2);
  out[threadIdx.x] = in[threadIdx.x];
}

__global__ void with_too_little_shared_memory(const int* in, int* out, bool faulty) {
  extern __shared__ int buffer[];
  buffer[threadIdx.x + (faulty ? 1 : 0)] = in[threadIdx.x];
  __syncthreads();
  out[threadIdx.x] = in[threadIdx.x];
}

__global__ void with_diverging_lanes(const int* in, int* out, bool faulty) {
  int value = in[threadIdx.x];
  if (!faulty || threadIdx.x % 32 < 16) {
    value += __shfl_xor_sync(0xffffffff, 0, 1);
  } else {
    __syncwarp();
  }
  out[threadIdx.x] = value;
}

__global__ void __launch_bounds__(kThreads) with_too_many_threads(const int* in, int* out, bool) {
  if (threadIdx.x < kThreads) out[threadIdx.x] = in[threadIdx.x];
}

__global__ void with_an_uninitialised_barrier(const int* in, int* out, bool faulty) {
  __shared__ MBarrier barrier;
  if (threadIdx.x == 0 && !faulty) barrier.init(kThreads);
  __syncthreads();
  barrier.arrive();
  barrier.wait(0);
  out[threadIdx.x] = in[threadIdx.x];
}

__global__ void with_too_many_arrivals(const int* in, int* out, bool faulty) {
  __shared__ MBarrier barrier;
  if (threadIdx.x == 0) {
    barrier.init(kThreads);
    if (faulty) {
      barrier.arrive_expecting(16);  // So that the phase does not end.
    } else {
      barrier.arrive();
    }
  }
  __syncthreads();
  if (threadIdx.x > 0 || faulty) barrier.arrive();
  out[threadIdx.x] = in[threadIdx.x];
}

__global__ void with_a_wild_pointer(const int* in, int* out, bool faulty) {
  out[threadIdx.x] = faulty ? *reinterpret_cast<const int*>(uintptr_t(threadIdx.x) * 4 + 4096) : in[threadIdx.x];
}

__global__ void with_an_unaligned_vector(const int* in, int* out, bool faulty) {
  const int2 pair = *reinterpret_cast<const int2*>(in + threadIdx.x / 2 * 2 + (faulty ? 1 : 0));
  out[threadIdx.x] = threadIdx.x % 2 ? pair.y : pair.x;
}

__device__ int recurse(const int* in, int depth) {
  int frame[1024];
  for (int i = 0; i < 1024; ++i) frame[i] = in[i % kThreads] + depth;
  return depth == 0 ? in[threadIdx.x] : recurse(frame, depth - 1) - 1;
}

__global__ void with_a_stack_overflow(const int* in, int* out, bool faulty) {
  out[threadIdx.x] = faulty ? recurse(in, 1000) : in[threadIdx.x];
}

__global__ void with_a_wait_that_polls(const int* in, int* out, bool faulty) {
  __shared__ MBarrier barrier;
  if (threadIdx.x == 0) barrier.init(faulty ? 2 : 1);
  __syncthreads();
  if (threadIdx.x == 32) barrier.arrive();
  uint32_t ended = 0;
  while (threadIdx.x < 32 && !ended) {
    asm volatile("{\n.reg .pred p;\nmbarrier.test_wait.parity.shared::cta.b64 p, [%1], 0;\nselp.u32 %0, 1, 0, p;\n}"
                 : "=r"(ended)
                 : "r"(shared_address(&barrier)));
  }
  out[threadIdx.x] = in[threadIdx.x];
}

__global__ void with_an_unknown_instruction(const int* in, int* out, bool faulty) {
  if (faulty) asm volatile("brkpt;");
  out[threadIdx.x] = in[threadIdx.x];
}

// ---- The copy engine: a tile of 64x64 elements is copied ------------------------------------------------------

struct Maps {
  CUtensorMap in, out;
};

enum TileFault {
  kNone,
  kNoWait,
  kTooManyBytes,
  kTooFewBytes,
  kNoFence,
  kNoBarrier,
  kNoStoreWait,
  kWrongPlace,
  kNoInitFence
};

__global__ void copy_tile(const __grid_constant__ Maps maps, TileFault fault) {
  extern __shared__ __align__(1024) char shared[];
  __shared__ MBarrier barrier;
  constexpr int kBytes = 64 * kSwizzleRow;
  char* result = shared + kBytes;
  if (threadIdx.x == 0) {
    barrier.init(1);
    if (fault != kNoInitFence) fence_mbarrier_init();
    const int surplus = fault == kTooManyBytes ? 16 : fault == kTooFewBytes ? -16 : 0;
    barrier.arrive_expecting(kBytes + surplus);
    tma_load(shared + (fault == kWrongPlace ? 64 : 0), maps.in, 0, 0, barrier);
  }
  __syncthreads();
  if (fault != kNoWait) barrier.wait(0);
  for (int i = threadIdx.x; i < kBytes / 16; i += kThreads) {
    reinterpret_cast<uint4*>(result)[i] = reinterpret_cast<const uint4*>(shared)[i];
  }
  if (fault != kNoFence) fence_async_shared();
  if (fault != kNoBarrier) __syncthreads();
  if (threadIdx.x == 0) {
    tma_store(maps.out, result, 0, 0);
    tma_store_commit();
    if (fault != kNoStoreWait) tma_store_wait_read<0>();
  }
}

// ---- wgmma: the sum of each row of a tile of 64x64 ------------------------------------------------------------

enum ProductFault { kRight, kNoProductFence, kNoProductWait, kNoProductCommit, kStillReading, kOneWarpLess };

__global__ void multiply_by_ones(const float16* in, float* out, ProductFault fault) {
  extern __shared__ __align__(1024) char shared[];
  char* ones = shared + 64 * kSwizzleRow;
  for (int i = threadIdx.x; i < 64 * 64; i += kThreads) {
    const int row = i / 64, chunk = i % 64 / 8, place = swizzled(row, chunk) + i % 8 * 2;
    *reinterpret_cast<float16*>(shared + place) = in[i];
    if (row < 16) *reinterpret_cast<float16*>(ones + place) = __float2half(1.0f);
  }
  fence_async_shared();
  __syncthreads();
  float sums[8] = {};
  if (fault != kOneWarpLess || threadIdx.x >= 32) {
    if (fault != kNoProductFence) wgmma_fence();
    for (int step = 0; step < 4; ++step) {
      wgmma<float16>(sums, wgmma_operand(shared) + 2 * step, wgmma_operand(ones) + 2 * step);
    }
    if (fault != kNoProductCommit) wgmma_commit();
    if (fault == kStillReading) {
      for (int i = threadIdx.x; i < 64 * 64; i += kThreads) reinterpret_cast<float16*>(shared)[i] = __float2half(0.0f);
      fence_async_shared();
    }
    if (fault != kNoProductWait) wgmma_wait<0>();
  }
  const int lane = threadIdx.x % 32, row = threadIdx.x / 32 * 16 + lane / 4;
  if (lane % 4 == 0) {
    out[row] = sums[0];
    out[row + 8] = sums[2];
  }
}

cudaError_t launch_cluster(const int* in, int* out, bool faulty) {
  cudaLaunchAttribute cluster;
  cluster.id = cudaLaunchAttributeClusterDimension;
  cluster.val.clusterDim = {2, 1, 1};
  cudaLaunchConfig_t config = {};
  config.gridDim = 2;
  config.blockDim = kThreads;
  config.attrs = &cluster;
  config.numAttrs = 1;
  return cudaLaunchKernelEx(&config, without_cluster_barrier, in, out, faulty);
}

}  // namespace

#define EXPORT(kernel, blocks, threads, shared) \
  extern "C" cudaError_t run_##kernel(const int* in, int* out, int64_t faulty) { \
    kernel<<<blocks, threads, shared, nullptr>>>(in, out, faulty); \
    return cudaGetLastError(); \
  }
EXPORT(without_barrier, 2, kThreads, 0)
EXPORT(without_second_barrier, 1, kThreads, 0)
EXPORT(without_warp_barrier, 1, kThreads, 0)
EXPORT(without_waiting_for_a_copy, 1, kThreads, kThreads * 4)
EXPORT(without_atomics, 2, kThreads, 0)
EXPORT(with_a_barrier_for_too_many, 1, kThreads, 0)
EXPORT(with_too_little_shared_memory, 1, kThreads, kThreads * 4)
EXPORT(with_diverging_lanes, 1, kThreads, 0)
EXPORT(with_too_many_threads, 1, faulty ? 2 * kThreads : kThreads, 0)
EXPORT(with_an_uninitialised_barrier, 1, kThreads, 0)
EXPORT(with_too_many_arrivals, 1, kThreads, 0)
EXPORT(with_a_wild_pointer, 1, kThreads, 0)
EXPORT(with_an_unaligned_vector, 1, kThreads, 0)
EXPORT(with_a_stack_overflow, 1, kThreads, 0)
EXPORT(with_a_wait_that_polls, 1, kThreads, 0)
EXPORT(with_an_unknown_instruction, 1, kThreads, 0)

extern "C" cudaError_t run_without_cluster_barrier(const int* in, int* out, int64_t faulty) {
  return launch_cluster(in, out, faulty);
}

extern "C" cudaError_t run_copy_tile(const float16* in, float16* out, int64_t fault) {
  Maps maps;
  for (auto [map, data] : {std::pair(&maps.in, in), std::pair(&maps.out, static_cast<const float16*>(out))}) {
    if (const cudaError_t error = tma::describe(*map, data, 64, 64, 64); error != cudaSuccess) return error;
  }
  copy_tile<<<1, kThreads, 2 * 64 * kSwizzleRow, nullptr>>>(maps, TileFault(fault));
  return cudaGetLastError();
}

extern "C" cudaError_t run_multiply_by_ones(const float16* in, float* out, int64_t fault) {
  multiply_by_ones<<<1, kThreads, 80 * kSwizzleRow, nullptr>>>(in, out, ProductFault(fault));
  return cudaGetLastError();
}
