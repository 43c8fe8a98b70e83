// A histogram and its density in one cooperative launch: shared bins, tile reductions, a barrier of the grid.

#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>

#include <cstdint>

namespace cg = cooperative_groups;

constexpr int kBins = 48;
constexpr int kBlocks = 3;
constexpr int kThreadsPerBlock = 96;

__global__ void histogram(const int* values, int n, unsigned int* counts, unsigned int* outside, float* density) {
  __shared__ unsigned int bins[kBins];

  cg::grid_group grid = cg::this_grid();
  cg::thread_block block = cg::this_thread_block();
  cg::thread_block_tile<32> warp = cg::tiled_partition<32>(block);

  for (unsigned int bin = block.thread_rank(); bin < kBins; bin += block.size()) bins[bin] = 0;
  block.sync();

  unsigned int rejected = 0;
  for (unsigned long long i = grid.thread_rank(); i < n; i += grid.size()) {
    const int value = values[i];
    if (value >= 0 && value < kBins) {
      atomicAdd(&bins[value], 1u);
    } else {
      ++rejected;
    }
  }
  rejected = cg::reduce(warp, rejected, cg::plus<unsigned int>());
  if (warp.thread_rank() == 0) atomicAdd(outside, rejected);
  block.sync();

  for (unsigned int bin = block.thread_rank(); bin < kBins; bin += block.size()) {
    if (bins[bin] > 0) atomicAdd(&counts[bin], bins[bin]);
  }
  grid.sync();

  const float inside = static_cast<float>(n - *outside);
  for (unsigned long long bin = grid.thread_rank(); bin < kBins; bin += grid.size()) {
    density[bin] = static_cast<float>(counts[bin]) / inside;
  }
}

extern "C" cudaError_t run_histogram_cg(
    const int* values, int64_t n, unsigned int* counts, unsigned int* outside, float* density) {
  cudaError_t status = cudaMemsetAsync(counts, 0, kBins * sizeof(unsigned int), 0);
  if (status == cudaSuccess) status = cudaMemsetAsync(outside, 0, sizeof(unsigned int), 0);
  if (status != cudaSuccess) return status;
  int count = static_cast<int>(n);
  void* arguments[] = {&values, &count, &counts, &outside, &density};
  return cudaLaunchCooperativeKernel(
      reinterpret_cast<void*>(histogram), dim3(kBlocks), dim3(kThreadsPerBlock), arguments, 0, 0);
}
