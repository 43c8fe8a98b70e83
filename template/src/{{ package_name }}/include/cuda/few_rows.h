// When rows are few. Plain C++: the host's sources use it too.

#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

// Rows of so many bytes are wide: all blocks of the GPU share them (wide_gradient.cuh), where they are few.
constexpr int64_t kLeastWideBytes = 64 * 1024;

// Whether a kernel whose groups of threads loop over rows would leave most of the GPU idle: fewer rows than four for
// each multiprocessor, and so few bytes that reading them a second time, from the L2 cache, costs little. Of wide rows
// the gradient reads two tensors twice.
inline bool are_few_rows(int64_t rows, int64_t bytes_of_row) {
  constexpr int64_t kRows = 4, kBytes = 48 * 1024;  // For each multiprocessor.
  int device = 0, multiprocessors = 0, cache = 0;
  cudaGetDevice(&device);
  cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device);
  if (rows >= kRows * multiprocessors) return false;
  if (rows * bytes_of_row <= kBytes * multiprocessors) return true;
  cudaDeviceGetAttribute(&cache, cudaDevAttrL2CacheSize, device);
  return bytes_of_row >= kLeastWideBytes && 2 * rows * bytes_of_row <= cache;
}
