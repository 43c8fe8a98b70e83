// Barriers and pipelines of libcu++: the toolkit's own headers.

#include <cooperative_groups.h>
#include <stdint.h>
#include <cuda/annotated_ptr>
#include <cuda/barrier>
#include <cuda/pipeline>
#include <cuda/ptx>
#include <cuda/std/array>
#include <cuda/std/utility>

namespace cg = cooperative_groups;
using BlockBarrier = cuda::barrier<cuda::thread_scope_block>;

namespace {

// Rounds of writing and reading, with a barrier between; arriving and waiting apart.
__global__ void rounds(const int* in, int* out, int count) {
#pragma nv_diag_suppress static_var_with_dynamic_init
  __shared__ BlockBarrier barrier;
  __shared__ int values[2][96];
  const int i = threadIdx.x;
  if (i == 0) init(&barrier, blockDim.x);
  __syncthreads();
  int x = in[i];
  for (int round = 0; round < count; ++round) {
    values[round % 2][i] = x;
    auto token = barrier.arrive();
    const int own = x * 3;
    barrier.wait(cuda::std::move(token));
    x = (own + values[round % 2][(i + 1) % blockDim.x]) % 1009;
  }
  barrier.arrive_and_wait();
  out[i] = x;
}

// A producer and consumers, with two barriers for each of two buffers.
__global__ void handed_over(const int* in, int* out, int count) {
  __shared__ BlockBarrier ready[2], filled[2];
  __shared__ int buffer[2][32];
  const int i = threadIdx.x;
  if (i < 2) {
    init(&ready[i], blockDim.x);
    init(&filled[i], blockDim.x);
  }
  __syncthreads();
  if (i < 32) {
    for (int n = 0; n < count; ++n) {
      ready[n % 2].arrive_and_wait();
      buffer[n % 2][i] = in[n * 32 + i];
      BlockBarrier::arrival_token token = filled[n % 2].arrive();
      (void)token;
    }
  } else {
    BlockBarrier::arrival_token first = ready[0].arrive(), second = ready[1].arrive();
    (void)first, (void)second;
    for (int n = 0; n < count; ++n) {
      filled[n % 2].arrive_and_wait();
      if (i < 64) out[n * 32 + i - 32] = buffer[n % 2][63 - i] + 1;
      BlockBarrier::arrival_token token = ready[n % 2].arrive();
      (void)token;
    }
  }
}

__global__ void copied_by_barrier(const float* in, float* out, int n) {
  __shared__ BlockBarrier barrier;
  extern __shared__ __align__(16) float staged[];
  auto block = cg::this_thread_block();
  if (block.thread_rank() == 0) init(&barrier, block.size());
  block.sync();
  cuda::memcpy_async(block, staged, in, cuda::aligned_size_t<16>(sizeof(float) * n), barrier);
  barrier.arrive_and_wait();
  for (int i = int(block.thread_rank()); i < n; i += int(block.size())) out[i] = staged[n - 1 - i];
}

// The stages of a pipeline that all threads fill and drain.
template <int kStages>
__global__ void staged_sums(const float* in, float* out, int batches) {
  __shared__ cuda::pipeline_shared_state<cuda::thread_scope_block, kStages> state;
  __shared__ float buffer[kStages][64];
  auto block = cg::this_thread_block();
  auto pipeline = cuda::make_pipeline(block, &state);
  const int i = int(block.thread_rank());
  float sum = 0;
  for (int compute = 0, fetch = 0; compute < batches; ++compute) {
    for (; fetch < batches && fetch < compute + kStages; ++fetch) {
      pipeline.producer_acquire();
      cuda::memcpy_async(block, buffer[fetch % kStages], in + 64 * fetch, sizeof(float) * 64, pipeline);
      pipeline.producer_commit();
    }
    pipeline.consumer_wait();
    sum += buffer[compute % kStages][63 - i];
    pipeline.consumer_release();
  }
  out[i] = sum;
}

// Half of the threads produce, half consume.
template <int kStages>
__global__ void specialised(const float* in, float* out, int batches) {
  __shared__ cuda::pipeline_shared_state<cuda::thread_scope_block, kStages> state;
  __shared__ float buffer[kStages][64];
  auto block = cg::this_thread_block();
  const auto role = block.thread_rank() < 64 ? cuda::pipeline_role::producer : cuda::pipeline_role::consumer;
  auto pipeline = cuda::make_pipeline(block, &state, role);
  const int i = int(block.thread_rank()) % 64;
  if (role == cuda::pipeline_role::producer) {
    for (int batch = 0; batch < batches; ++batch) {
      pipeline.producer_acquire();
      cuda::memcpy_async(&buffer[batch % kStages][i], in + 64 * batch + i, sizeof(float), pipeline);
      pipeline.producer_commit();
    }
  } else {
    float sum = 0;
    for (int batch = 0; batch < batches; ++batch) {
      pipeline.consumer_wait();
      sum += buffer[batch % kStages][63 - i];
      pipeline.consumer_release();
    }
    out[i] = sum;
  }
}

__global__ void own_pipeline(const float* in, float* out, int batches) {
  __shared__ float buffer[2][64];
  cuda::pipeline<cuda::thread_scope_thread> pipeline = cuda::make_pipeline();
  const int i = threadIdx.x;
  float sum = 0;
  const auto fetch = [&](int batch) {
    pipeline.producer_acquire();
    if (batch < batches) cuda::memcpy_async(&buffer[batch % 2][i], in + 64 * batch + i, sizeof(float), pipeline);
    pipeline.producer_commit();
  };
  fetch(0);
  for (int batch = 0; batch < batches; ++batch) {
    fetch(batch + 1);
    cuda::pipeline_consumer_wait_prior<1>(pipeline);
    sum += buffer[batch % 2][i];
    pipeline.consumer_release();
  }
  out[i] = sum;
}

#if __CUDA_ARCH__ >= 900 || !defined(__CUDA_ARCH__)
// As in the programming guide: a bulk copy that a barrier of libcu++ counts, and back.
__global__ void bulk(const int* in, int* out) {
  namespace ptx = cuda::ptx;
  __shared__ alignas(16) int buffer[256];
  __shared__ BlockBarrier barrier;
  const int i = threadIdx.x;
  if (i == 0) {
    init(&barrier, blockDim.x);
    ptx::fence_proxy_async(ptx::space_shared);
  }
  __syncthreads();
  BlockBarrier::arrival_token token;
  if (i == 0) {
    cuda::memcpy_async(buffer, in, cuda::aligned_size_t<16>(sizeof(buffer)), barrier);
    token = cuda::device::barrier_arrive_tx(barrier, 1, 0);
  } else {
    token = barrier.arrive();
  }
  barrier.wait(cuda::std::move(token));
  for (int k = i; k < 256; k += blockDim.x) buffer[k] += k;
  ptx::fence_proxy_async(ptx::space_shared);
  __syncthreads();
  if (i == 0) {
    ptx::cp_async_bulk(ptx::space_global, ptx::space_shared, out, buffer, sizeof(buffer));
    ptx::cp_async_bulk_commit_group();
    ptx::cp_async_bulk_wait_group_read(ptx::n32_t<0>());
  }
}

__global__ void bulk_native(const int* in, int* out) {
  namespace ptx = cuda::ptx;
  __shared__ alignas(16) int buffer[128];
  __shared__ uint64_t barrier;
  if (threadIdx.x == 0) {
    ptx::mbarrier_init(&barrier, 1);
    ptx::fence_mbarrier_init(ptx::sem_release, ptx::scope_cluster);
    ptx::fence_proxy_async(ptx::space_shared);
    ptx::cp_async_bulk(ptx::space_cluster, ptx::space_global, buffer, in, sizeof(buffer), &barrier);
    ptx::mbarrier_arrive_expect_tx(ptx::sem_release, ptx::scope_cta, ptx::space_shared, &barrier, sizeof(buffer));
  }
  __syncthreads();
  while (!ptx::mbarrier_try_wait_parity(&barrier, 0)) {
  }
  out[threadIdx.x] = buffer[127 - threadIdx.x];
}
#endif

}  // namespace

extern "C" {

cudaError_t barrier_rounds(const int* in, int* out, int64_t count) {
  rounds<<<1, 96>>>(in, out, int(count));
  return cudaGetLastError();
}
cudaError_t hand_over(const int* in, int* out, int64_t count) {
  handed_over<<<1, 96>>>(in, out, int(count));
  return cudaGetLastError();
}
cudaError_t copy_by_barrier(const float* in, float* out, int64_t n) {
  copied_by_barrier<<<1, 64, n * sizeof(float)>>>(in, out, int(n));
  return cudaGetLastError();
}
cudaError_t sum_stages(const float* in, float* out, int64_t batches) {
  staged_sums<3><<<1, 64>>>(in, out, int(batches));
  return cudaGetLastError();
}
cudaError_t sum_roles(const float* in, float* out, int64_t batches) {
  specialised<2><<<1, 128>>>(in, out, int(batches));
  return cudaGetLastError();
}
cudaError_t sum_own(const float* in, float* out, int64_t batches) {
  own_pipeline<<<1, 64>>>(in, out, int(batches));
  return cudaGetLastError();
}
cudaError_t bulk_copy(const int* in, int* out, int64_t native) {
  if (native) {
    bulk_native<<<1, 128>>>(in, out);
  } else {
    bulk<<<1, 64>>>(in, out);
  }
  return cudaGetLastError();
}
}
