// The grids of kernels whose launch decides how threads share rows (row_group.cuh), and their launch.

#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <limits>

#include "row_matrix.h"
#include "tile.cuh"
#include "vector.cuh"

namespace row_norm {

constexpr int kMaxCluster = 8;

// The blocks of a kernel, with blockDim.y groups of blockDim.x threads each. A cluster of blocks is one group; or, with
// `cluster_of_rows`, each of its blocks has groups of its own.
struct Grid {
  dim3 block;
  int64_t blocks = 0;
  int cluster = 1;
  bool cluster_of_rows = false;
};

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
cudaError_t launch(
    void (*kernel)(Parameters...), const Grid& grid, size_t shared, cudaStream_t stream, const Arguments&... arguments) {
  if (grid.blocks == 0) return cudaSuccess;
  if (grid.blocks > std::numeric_limits<int>::max()) return cudaErrorInvalidConfiguration;
  const auto error = allow_shared(kernel, shared);
  if (error != cudaSuccess) return error;
  cudaLaunchAttribute cluster;
  const auto configuration = configure(grid, shared, stream, &cluster);
  return cudaLaunchKernelEx(&configuration, kernel, Parameters(arguments)...);
}

// Whether every row of a matrix starts at a multiple of N elements.
template <int N, typename T>
bool rows_aligned(const RowMatrix<T>& matrix) {
  return !matrix.data || (vector_aligned(matrix.data) && matrix.stride % N == 0);
}

inline int power_of_two_above(int64_t count) {
  int power = 1;
  while (power < count) power *= 2;
  return power;
}

}  // namespace row_norm
