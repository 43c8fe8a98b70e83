// The grids of kernels whose launch decides how many threads share a row (row_group.cuh), and their launch.

#pragma once

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdint>
#include <limits>

#include "row_group.cuh"
#include "tile.cuh"

namespace row_norm {

// The blocks of a kernel, with blockDim.y groups of blockDim.x threads each; a cluster of blocks is one group.
struct Grid {
  dim3 block;
  int64_t blocks = 0;
  int cluster = 1;
};

// Finds the block, or the cluster from compute capability 9.0 on, whose threads hold a row of so many vectors with so
// many accesses each, in blocks of at most `most` threads; false if there is none.
inline bool hold_in_blocks(int64_t vectors, int accesses, int most, int64_t rows, Grid* grid) {
  constexpr int kMaxCluster = 8;
  int blocks = 1;
  while (blocks < kMaxCluster && int64_t(blocks) * most * accesses < vectors) blocks *= 2;
  const int threads = std::max(kWarp, threads_for(vectors, int64_t(blocks) * accesses));
  *grid = Grid{dim3(threads), rows * blocks, blocks};
  if (threads > most || blocks * threads > RowGroup<false>::kMaxWarps * kWarp) return false;
  return blocks == 1 || attribute(cudaDevAttrComputeCapabilityMajor) >= 9;
}

// The launch configuration of a kernel; it refers to `cluster`.
inline cudaLaunchConfig_t configure(
    const Grid& grid, size_t shared, cudaStream_t stream, cudaLaunchAttribute* cluster) {
  cluster->id = cudaLaunchAttributeClusterDimension;
  cluster->val.clusterDim = {static_cast<unsigned>(grid.cluster), 1, 1};
  cudaLaunchConfig_t configuration = {};
  configuration.gridDim = static_cast<unsigned>(grid.blocks);
  configuration.blockDim = grid.block;
  configuration.dynamicSmemBytes = shared;
  configuration.stream = stream;
  configuration.attrs = cluster;
  configuration.numAttrs = grid.cluster > 1;
  return configuration;
}

// Launches a kernel with `shared` bytes of dynamic shared memory.
template <typename... Parameters, typename... Arguments>
cudaError_t launch_grid(
    void (*kernel)(Parameters...),
    const Grid& grid,
    size_t shared,
    cudaStream_t stream,
    const Arguments&... arguments) {
  if (grid.blocks == 0) return cudaSuccess;
  if (grid.blocks > std::numeric_limits<int>::max()) return cudaErrorInvalidConfiguration;
  const auto error = allow_shared(kernel, shared);
  if (error != cudaSuccess) return error;
  cudaLaunchAttribute cluster;
  const auto configuration = configure(grid, shared, stream, &cluster);
  return cudaLaunchKernelEx(&configuration, kernel, Parameters(arguments)...);
}

}  // namespace row_norm
