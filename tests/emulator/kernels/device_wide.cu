// An algorithm of CUB over a whole array: host code that launches the toolkit's kernels.

#include <stdint.h>
#include <cub/device/device_reduce.cuh>

extern "C" cudaError_t sum_array(const float* in, float* out, int64_t n) {
  void* storage = nullptr;
  size_t bytes = 0;
  cub::DeviceReduce::Sum(storage, bytes, in, out, int(n));
  cudaMalloc(&storage, bytes);
  const cudaError_t error = cub::DeviceReduce::Sum(storage, bytes, in, out, int(n));
  cudaFree(storage);
  return error;
}
