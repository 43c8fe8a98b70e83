// The logarithm of the sum of exponentials of each row. A block takes a row; CUB reduces within the block.

#include <cfloat>
#include <cstddef>
#include <cstdint>

#include <cub/block/block_reduce.cuh>

#define THREADS 128

struct MaxOp {
  __device__ __forceinline__ float operator()(float a, float b) const { return a > b ? a : b; }
};

template <int BLOCK_THREADS, bool VECTORS>
__global__ void __launch_bounds__(BLOCK_THREADS)
    RowLogSumExpKernel(const float* __restrict__ d_in, float* __restrict__ d_out, int num_cols) {
  typedef cub::BlockReduce<float, BLOCK_THREADS> BlockReduceT;
  __shared__ typename BlockReduceT::TempStorage temp_storage;
  __shared__ float row_max;

  const float* row = d_in + (size_t)blockIdx.x * num_cols;

  float thread_max = -FLT_MAX;
  if (VECTORS) {
    const float4* row4 = reinterpret_cast<const float4*>(row);
    for (int i = threadIdx.x; i < num_cols / 4; i += BLOCK_THREADS) {
      const float4 v = row4[i];
      thread_max = fmaxf(fmaxf(thread_max, fmaxf(v.x, v.y)), fmaxf(v.z, v.w));
    }
  } else {
    for (int i = threadIdx.x; i < num_cols; i += BLOCK_THREADS) thread_max = fmaxf(thread_max, row[i]);
  }
  const float aggregate_max = BlockReduceT(temp_storage).Reduce(thread_max, MaxOp());
  if (threadIdx.x == 0) row_max = aggregate_max;
  __syncthreads();  // row_max is known; temp_storage may be used again.

  float thread_sum = 0.0f;
  for (int i = threadIdx.x; i < num_cols; i += BLOCK_THREADS) thread_sum += expf(row[i] - row_max);
  const float aggregate_sum = BlockReduceT(temp_storage).Sum(thread_sum);
  if (threadIdx.x == 0) d_out[blockIdx.x] = row_max + logf(aggregate_sum);
}

extern "C" cudaError_t run_row_logsumexp_cub(const float* d_in, float* d_out, int64_t num_rows, int64_t num_cols) {
  if (num_rows == 0) return cudaSuccess;
  const bool aligned = reinterpret_cast<uintptr_t>(d_in) % 16 == 0;
  if (aligned && num_cols % 4 == 0) {
    RowLogSumExpKernel<THREADS, true><<<num_rows, THREADS>>>(d_in, d_out, (int)num_cols);
  } else {
    RowLogSumExpKernel<THREADS, false><<<num_rows, THREADS>>>(d_in, d_out, (int)num_cols);
  }
  return cudaGetLastError();
}
