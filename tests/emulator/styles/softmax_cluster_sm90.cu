// Softmax of long rows: a cluster of blocks takes a row, each block a slice of it, and the blocks read each other's
// maxima and sums in distributed shared memory (sm_90).

#include <cooperative_groups.h>

#include <cstdint>

namespace cg = cooperative_groups;

static constexpr int kClusterSize = 4;
static constexpr int kThreads = 64;

template <typename Op>
__device__ float block_reduce(float value, float* scratch, Op op) {
  for (int offset = 16; offset > 0; offset /= 2) value = op(value, __shfl_xor_sync(0xffffffffu, value, offset));
  if (threadIdx.x % 32 == 0) scratch[threadIdx.x / 32] = value;
  __syncthreads();
  value = scratch[0];
  for (int warp = 1; warp < kThreads / 32; ++warp) value = op(value, scratch[warp]);
  return value;
}

__global__ void cluster_softmax(const float* __restrict__ x, float* __restrict__ y, int columns) {
  extern __shared__ float slice[];
  __shared__ float scratch[2][kThreads / 32];
  __shared__ float block_max, block_sum;

  cg::cluster_group cluster = cg::this_cluster();
  const unsigned int rank = cluster.block_rank();
  const int width = (columns + kClusterSize - 1) / kClusterSize;
  const int begin = rank * width;
  const int count = max(0, min(width, columns - begin));
  const size_t offset = size_t(blockIdx.x / kClusterSize) * columns + begin;

  float m = -INFINITY;
  for (int i = threadIdx.x; i < count; i += kThreads) {
    slice[i] = x[offset + i];
    m = fmaxf(m, slice[i]);
  }
  m = block_reduce(m, scratch[0], [](float a, float b) { return fmaxf(a, b); });
  if (threadIdx.x == 0) block_max = m;
  cluster.sync();  // The maxima of all blocks are known.
  for (int other = 0; other < kClusterSize; ++other) m = fmaxf(m, *cluster.map_shared_rank(&block_max, other));

  float sum = 0.f;
  for (int i = threadIdx.x; i < count; i += kThreads) {
    slice[i] = __expf(slice[i] - m);
    sum += slice[i];
  }
  sum = block_reduce(sum, scratch[1], [](float a, float b) { return a + b; });
  if (threadIdx.x == 0) block_sum = sum;
  cluster.sync();  // The sums of all blocks are known.
  sum = 0.f;
  for (int other = 0; other < kClusterSize; ++other) sum += *cluster.map_shared_rank(&block_sum, other);
  for (int i = threadIdx.x; i < count; i += kThreads) y[offset + i] = slice[i] / sum;
  cluster.sync();  // No block leaves while another reads its shared memory.
}

extern "C" cudaError_t run_softmax_cluster_sm90(const float* x, float* y, int64_t rows, int64_t columns) {
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(static_cast<unsigned>(rows * kClusterSize));
  config.blockDim = dim3(kThreads);
  config.dynamicSmemBytes = (columns + kClusterSize - 1) / kClusterSize * sizeof(float);
  cudaLaunchAttribute attribute[1];
  attribute[0].id = cudaLaunchAttributeClusterDimension;
  attribute[0].val.clusterDim.x = kClusterSize;
  attribute[0].val.clusterDim.y = 1;
  attribute[0].val.clusterDim.z = 1;
  config.attrs = attribute;
  config.numAttrs = 1;
  return cudaLaunchKernelEx(&config, cluster_softmax, x, y, static_cast<int>(columns));
}
