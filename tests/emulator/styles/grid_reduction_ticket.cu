// The sum and the largest element of an array in one launch: the last block to finish adds up what all blocks left.

#include <cstdint>

#define BLOCK_DIM 128
#define MAX_BLOCKS 64

__device__ unsigned int retirement_count = 0;

struct Partial {
  float sum;
  float largest;
};

__device__ Partial combine(Partial a, Partial b) {
  Partial c;
  c.sum = a.sum + b.sum;
  c.largest = a.largest > b.largest ? a.largest : b.largest;
  return c;
}

// The result is in thread 0.
__device__ Partial reduce_block(Partial mine, Partial* sdata) {
  const unsigned int tid = threadIdx.x;
  sdata[tid] = mine;
  __syncthreads();
  for (unsigned int s = BLOCK_DIM / 2; s >= 32; s >>= 1) {
    if (tid < s) sdata[tid] = mine = combine(mine, sdata[tid + s]);
    __syncthreads();
  }
  if (tid < 32) {
    for (int offset = 16; offset > 0; offset >>= 1) {
      Partial other;
      other.sum = __shfl_down_sync(0xffffffff, mine.sum, offset);
      other.largest = __shfl_down_sync(0xffffffff, mine.largest, offset);
      mine = combine(mine, other);
    }
  }
  return mine;
}

__global__ void reduce_single_pass(const float* g_idata, Partial* g_partials, Partial* g_odata, unsigned int n) {
  __shared__ Partial sdata[BLOCK_DIM];
  __shared__ bool am_last;
  const unsigned int tid = threadIdx.x;

  Partial mine = {0.0f, -3.402823466e+38f};
  for (unsigned int i = blockIdx.x * BLOCK_DIM + tid; i < n; i += gridDim.x * BLOCK_DIM) {
    Partial next = {g_idata[i], g_idata[i]};
    mine = combine(mine, next);
  }
  mine = reduce_block(mine, sdata);

  if (tid == 0) {
    g_partials[blockIdx.x] = mine;
    __threadfence();  // The partial result is visible before the ticket is.
    const unsigned int ticket = atomicInc(&retirement_count, gridDim.x - 1);
    __threadfence();  // What other blocks did before their tickets is visible after this.
    am_last = ticket == gridDim.x - 1;
  }
  __syncthreads();
  if (!am_last) return;

  Partial total = {0.0f, -3.402823466e+38f};
  for (unsigned int i = tid; i < gridDim.x; i += BLOCK_DIM) total = combine(total, g_partials[i]);
  total = reduce_block(total, sdata);
  if (tid == 0) *g_odata = total;
}

extern "C" cudaError_t run_grid_reduction_ticket(
    const float* g_idata, Partial* g_partials, Partial* g_odata, int64_t n, int64_t blocks) {
  if (blocks < 1 || blocks > MAX_BLOCKS) return cudaErrorInvalidValue;
  reduce_single_pass<<<(unsigned)blocks, BLOCK_DIM>>>(g_idata, g_partials, g_odata, (unsigned)n);
  return cudaGetLastError();
}
