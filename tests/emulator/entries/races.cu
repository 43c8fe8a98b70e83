// Kernels that order their threads' accesses, each with faults that an argument turns on. All copy kThreads numbers, or
// add them up.

#include <cuda_pipeline.h>

#include "cluster.cuh"
#include "cp_async.cuh"
#include "named_barrier.cuh"
#include "reduce.cuh"
#include "tma.cuh"
#include "tma.h"

namespace {

constexpr int kThreads = 128, kBlocks = 4;

// ---- A block --------------------------------------------------------------------------------------------------

__global__ void handed_to_the_next_warp(const int* in, int* out, int fault) {
  __shared__ int buffer[kThreads];
  buffer[threadIdx.x] = in[threadIdx.x];
  if (fault == 0) __syncthreads();
  if (fault == 1) __syncwarp();
  if (fault == 2) __shfl_sync(0xffffffff, 0, 0);
  const int other = (threadIdx.x + (fault == 2 ? 1 : 32)) % kThreads;
  if (fault == 2 && threadIdx.x % 32 == 31) return;
  out[other] = buffer[other];
}

__global__ void tree_of_sums(const int* in, int* out, int fault) {
  __shared__ int sums[kThreads];
  sums[threadIdx.x] = in[threadIdx.x];
  __syncthreads();
  for (int half = kThreads / 2; half > 0; half /= 2) {
    if (threadIdx.x < half) sums[threadIdx.x] += sums[threadIdx.x + half];
    // Within a warp another barrier will do.
    if (fault == 1 && half <= 32) continue;
    if (half > 32) {
      __syncthreads();
    } else {
      __syncwarp();
    }
  }
  if (threadIdx.x == 0) out[0] = sums[0];
}

// A producer warp and a consumer warp, with the buffer handed over and back.
__global__ void named_barriers(const int* in, int* out, int fault) {
  __shared__ int buffer[32];
  const int lane = threadIdx.x % 32;
  if (threadIdx.x < 32) {
    for (int i = 0; i < 4; ++i) {
      if (i > 0 && fault != 1) named_barrier_sync(2, 64);
      buffer[lane] = in[32 * i + lane];
      if (fault == 2) continue;
      named_barrier_arrive(1, 64);
    }
  } else if (threadIdx.x < 64) {
    for (int i = 0; i < 4; ++i) {
      if (fault != 2) named_barrier_sync(1, 64);
      out[32 * i + lane] = buffer[lane ^ 1];
      if (i < 3 && fault == 0) named_barrier_arrive(2, 64);
    }
  }
}

__global__ void flag_in_shared_memory(const int* in, int* out, int fault) {
  __shared__ int buffer[32];
  __shared__ volatile int flag;
  __shared__ int plain_flag;
  if (threadIdx.x == 0) flag = plain_flag = 0;
  __syncthreads();
  if (threadIdx.x < 32) {
    buffer[threadIdx.x] = in[threadIdx.x];
    __syncwarp();
    if (fault != 1) __threadfence_block();
    if (threadIdx.x == 0) {
      if (fault == 3) plain_flag = 1;
      flag = 1;
    }
  } else if (threadIdx.x < 64) {
    while (flag == 0) {
    }
    if (fault != 2) __threadfence_block();
    if (fault == 3 && plain_flag == 0) return;
    out[threadIdx.x - 32] = buffer[threadIdx.x - 32];
  }
}

__global__ void same_value(const int* in, int* out, int fault) {
  __shared__ int total, any;
  if (threadIdx.x % 2) any = fault == 1 ? in[threadIdx.x] : 1;
  if (threadIdx.x >= 32) total = fault == 2 && threadIdx.x == 100 ? 3 : 7;
  __syncthreads();
  out[threadIdx.x] = total + any;
}

__global__ void early_exit(const int* in, int* out, int fault) {
  __shared__ int buffer[kThreads];
  buffer[threadIdx.x] = in[threadIdx.x];
  if (threadIdx.x >= 64) return;
  if (fault == 0) __syncthreads();
  out[threadIdx.x] = buffer[threadIdx.x];
  out[threadIdx.x + 64] = buffer[threadIdx.x + 64];
}

__global__ void diverging_barriers(const int* in, int* out, int fault) {
  __shared__ int buffer[kThreads];
  buffer[threadIdx.x] = in[threadIdx.x];
  if (fault == 1 && threadIdx.x < 64) {
    __syncthreads();
  } else if (fault == 2 && threadIdx.x < 64) {
  } else {
    __syncthreads();
  }
  if (fault == 2) named_barrier_sync(1, kThreads);
  out[threadIdx.x] = buffer[threadIdx.x ^ 32];
}

// ---- Blocks ---------------------------------------------------------------------------------------------------

__device__ unsigned tickets;

// The last block to come adds up what all have written.
__global__ void last_block_adds(const int* in, int* out, int* partial, int fault) {
  __shared__ bool is_last;
  int sum = in[(blockIdx.x * kThreads + threadIdx.x) % kThreads];
  for (int i = 0; i < 2; ++i) partial[blockIdx.x * kThreads + threadIdx.x] = sum;
  if (fault == 2) __threadfence_block();
  if (fault == 0 || fault >= 3) __threadfence();
  if (fault != 3) __syncthreads();
  if (threadIdx.x == 0) is_last = atomicAdd(&tickets, 1u) == kBlocks - 1;
  __syncthreads();
  if (is_last) {
    if (fault != 4) __threadfence();
    int total = 0;
    for (int block = 0; block < kBlocks; ++block) total += partial[block * kThreads + (threadIdx.x ^ 1)];
    out[threadIdx.x ^ 1] = total / kBlocks;
    if (threadIdx.x == 0) tickets = 0;
  }
}

__device__ int lock_word;

__global__ void spin_lock(const int* in, int* out, int fault) {
  if (threadIdx.x % 32 == 0) {
    while (atomicCAS(&lock_word, 0, 1) != 0) {
    }
    if (fault != 1) __threadfence();
    for (int i = 0; i < 32; ++i) out[i] += 1;
    if (fault != 2) __threadfence();
    atomicExch(&lock_word, 0);
  }
}

__global__ void histogram(const int* in, int* out, int fault) {
  const int bin = in[threadIdx.x] % 8;
  if (fault == 1 && blockIdx.x == 1) {
    out[bin] += 1;
  } else {
    atomicAdd(&out[bin], 1);
  }
  if (fault == 2 && threadIdx.x == 0) out[100] = out[0];
}

__global__ void blocks_write_the_same_place(const int* in, int* out, int fault) {
  out[threadIdx.x] = in[threadIdx.x] + (fault ? blockIdx.x : 0);
}

// ---- Clusters -------------------------------------------------------------------------------------------------

__global__ void shared_by_a_cluster(const int* in, int* out, int fault) {
  __shared__ int buffer[kThreads];
  buffer[threadIdx.x] = in[threadIdx.x];
  if (fault == 1) {
    cluster::arrive_relaxed();
  } else if (fault != 2) {
    cluster::arrive();
  }
  if (fault != 2) cluster::wait();
  const int next = cluster::rank() ^ 1;
  const int value = cluster::shared_of(next, buffer)[threadIdx.x ^ 1];
  if (fault != 3) {
    cluster::arrive();
    cluster::wait();
  }
  if (blockIdx.x == 0) out[threadIdx.x ^ 1] = value;
}

// ---- Asynchronous copies --------------------------------------------------------------------------------------

__global__ void copied_by_others(const int* in, int* out, int fault) {
  extern __shared__ __align__(16) int buffer[];
  const int chunk = threadIdx.x;
  if (chunk < kThreads / 4) cp_async_16(buffer + 4 * chunk, in + 4 * chunk, true);
  cp_async_commit();
  if (fault == 1) __syncthreads();
  cp_async_wait<0>();
  if (fault == 3 && chunk < kThreads / 4) {
    for (int i = 0; i < 4; ++i) out[4 * chunk + i] = buffer[4 * chunk + i];  // Its own: right.
    return;
  }
  if (fault == 0) __syncthreads();
  if (fault == 3) return;
  out[threadIdx.x] = buffer[threadIdx.x];
}

__global__ void overwritten_while_copied(int* in, int* out, int fault) {
  extern __shared__ __align__(16) int buffer[];
  const int chunk = threadIdx.x;
  if (chunk < kThreads / 4) cp_async_16(buffer + 4 * chunk, in + 4 * chunk, true);
  cp_async_commit();
  if (fault == 1) __syncthreads();
  if (fault == 1) in[threadIdx.x] = out[threadIdx.x];
  if (fault == 2 && chunk < kThreads / 4) cp_async_16(buffer + 4 * chunk, in, true);
  cp_async_wait<0>();
  __syncthreads();
  if (fault == 0) out[threadIdx.x] = buffer[threadIdx.x];
}

__global__ void loaded_by_the_copy_engine(const int* in, int* out, int fault) {
  extern __shared__ __align__(128) int buffer[];
  __shared__ MBarrier full, empty;
  if (threadIdx.x == 0) {
    full.init(1);
    empty.init(fault == 4 ? kThreads - 32 : kThreads);
    fence_mbarrier_init();
  }
  if (fault != 3) __syncthreads();
  for (int turn = 0; turn < 3; ++turn) {
    if (threadIdx.x == 0) {
      if (turn > 0 && fault != 2) empty.wait((turn + 1) % 2);
      full.arrive_expecting(kThreads * 4);
      tma_load_bytes(buffer, in, kThreads * 4, full);
    }
    // One thread waits for all, and a barrier passes that on; or every thread waits.
    if (fault == 5 || fault == 6) {
      if (threadIdx.x == 0) full.wait(turn % 2);
      if (fault == 6) __syncthreads();
    } else if (fault != 1) {
      full.wait(turn % 2);
    }
    out[threadIdx.x] = buffer[threadIdx.x];
    if (fault != 4 || threadIdx.x < kThreads - 32) empty.arrive();
  }
}

__global__ void stored_by_the_copy_engine(const int* in, int* out, int fault) {
  extern __shared__ __align__(128) int buffer[];
  for (int turn = 0; turn < 2; ++turn) {
    buffer[threadIdx.x] = in[threadIdx.x] + turn - 1;
    if (fault != 2 && fault != 4) fence_async_shared();
    if (fault != 3) __syncthreads();
    if (threadIdx.x == 0) {
      if (fault == 4) fence_async_shared();  // After the barrier one thread's fence is for all: right.
      asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(out),
                   "r"(shared_address(buffer)),
                   "r"(kThreads * 4)
                   : "memory");
      tma_store_commit();
      if (fault != 1) {
        asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
      } else if (turn == 1) {
        tma_store_wait_read<0>();
      }
    }
    __syncthreads();
  }
}

__global__ void bytes_that_nobody_waits_for(const int* in, int* out, int fault) {
  __shared__ MBarrier full;
  if (threadIdx.x == 0) {
    full.init(2);
    fence_mbarrier_init();
    full.arrive_expecting(fault ? 16 : 0);
  }
  out[threadIdx.x] = in[threadIdx.x];
}

template <typename Kernel, typename... Arguments>
cudaError_t launch_clusters(Kernel kernel, int blocks, Arguments... arguments) {
  cudaLaunchAttribute cluster;
  cluster.id = cudaLaunchAttributeClusterDimension;
  cluster.val.clusterDim = {2, 1, 1};
  cudaLaunchConfig_t config = {};
  config.gridDim = blocks;
  config.blockDim = kThreads;
  config.attrs = &cluster;
  config.numAttrs = 1;
  return cudaLaunchKernelEx(&config, kernel, arguments...);
}

}  // namespace

#define EXPORT(kernel, blocks, shared) \
  extern "C" cudaError_t run_##kernel(int* in, int* out, int64_t fault) { \
    kernel<<<blocks, kThreads, shared, nullptr>>>(in, out, fault); \
    return cudaGetLastError(); \
  }
EXPORT(handed_to_the_next_warp, 1, 0)
EXPORT(tree_of_sums, 2, 0)
EXPORT(named_barriers, 1, 0)
EXPORT(flag_in_shared_memory, 1, 0)
EXPORT(same_value, 1, 0)
EXPORT(early_exit, 1, 0)
EXPORT(diverging_barriers, 1, 0)
EXPORT(histogram, kBlocks, 0)
EXPORT(blocks_write_the_same_place, kBlocks, 0)
EXPORT(copied_by_others, 1, kThreads * 4)
EXPORT(overwritten_while_copied, 1, kThreads * 4)
EXPORT(loaded_by_the_copy_engine, 1, kThreads * 4)
EXPORT(stored_by_the_copy_engine, 1, kThreads * 4)
EXPORT(bytes_that_nobody_waits_for, 1, 0)

extern "C" cudaError_t run_last_block_adds(int* in, int* out, int64_t fault) {
  static int partial[kBlocks * kThreads];
  tickets = 0;
  last_block_adds<<<kBlocks, kThreads, 0, nullptr>>>(in, out, partial, fault);
  return cudaGetLastError();
}
extern "C" cudaError_t run_spin_lock(int* in, int* out, int64_t fault) {
  lock_word = 0;
  spin_lock<<<kBlocks, kThreads, 0, nullptr>>>(in, out, fault);
  return cudaGetLastError();
}
extern "C" cudaError_t run_shared_by_a_cluster(int* in, int* out, int64_t fault) {
  return launch_clusters(shared_by_a_cluster, 2, in, out, int(fault));
}
