// The k largest of each row, in order, with their columns: a bitonic sort of the row in dynamic shared memory.

#include <cstdint>

#define SORT_THREADS 256

struct Entry {
  float key;
  int column;
};

__device__ inline bool comes_first(const Entry& a, const Entry& b) {
  return a.key > b.key || (a.key == b.key && a.column < b.column);
}

__global__ void topk_bitonic(const float* in, float* values, int* columns, int n, int padded, int k) {
  extern __shared__ Entry entries[];
  const float* row = in + (int64_t)blockIdx.x * n;

  for (int i = threadIdx.x; i < padded; i += blockDim.x) {
    entries[i].key = i < n ? row[i] : -INFINITY;
    entries[i].column = i;
  }
  __syncthreads();

  for (int size = 2; size <= padded; size <<= 1) {
    for (int stride = size >> 1; stride > 0; stride >>= 1) {
      for (int pair = threadIdx.x; pair < padded / 2; pair += blockDim.x) {
        const int low = 2 * pair - (pair & (stride - 1));
        const int high = low + stride;
        const bool descending = (low & size) == 0;
        const Entry a = entries[low], b = entries[high];
        if (comes_first(b, a) == descending) {
          entries[low] = b;
          entries[high] = a;
        }
      }
      __syncthreads();
    }
  }
  for (int i = threadIdx.x; i < k; i += blockDim.x) {
    values[(int64_t)blockIdx.x * k + i] = entries[i].key;
    columns[(int64_t)blockIdx.x * k + i] = entries[i].column;
  }
}

extern "C" cudaError_t run_topk_bitonic(
    const float* in, float* values, int* columns, int64_t rows, int64_t n, int64_t k) {
  if (k > n) return cudaErrorInvalidValue;
  int padded = 2;
  while (padded < n) padded *= 2;
  const int bytes = padded * (int)sizeof(Entry);
  if (bytes > 48 * 1024) {
    const cudaError_t error = cudaFuncSetAttribute(topk_bitonic, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
    if (error != cudaSuccess) return error;
  }
  topk_bitonic<<<(unsigned)rows, SORT_THREADS, bytes>>>(in, values, columns, (int)n, padded, (int)k);
  return cudaGetLastError();
}
