// Moves each value to the list of its bucket. Lanes with the same bucket reserve their places by one atomic operation.

#include <cstdint>

__device__ __forceinline__ unsigned lanemask_lt() {
  unsigned mask;
  asm("mov.u32 %0, %%lanemask_lt;" : "=r"(mask));
  return mask;
}

// Values whose bucket is negative are dropped.
__global__ void partition_by_bucket(
    const float* __restrict__ values,
    const int* __restrict__ buckets,
    int n,
    int capacity,
    int* __restrict__ counts,
    float* __restrict__ lists) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  const int bucket = i < n ? buckets[i] : -1;
  const unsigned active = __ballot_sync(0xffffffffu, bucket >= 0);
  if (bucket < 0) return;

  const unsigned peers = __match_any_sync(active, bucket);
  const int leader = __ffs(peers) - 1;
  const int rank = __popc(peers & lanemask_lt());
  int base = 0;
  if (rank == 0) base = atomicAdd(&counts[bucket], __popc(peers));
  base = __shfl_sync(peers, base, leader);
  const int place = base + rank;
  if (place < capacity) lists[(size_t)bucket * capacity + place] = values[i];
}

extern "C" cudaError_t run_partition_match(
    const float* values, const int* buckets, int* counts, float* lists, int64_t n, int64_t number, int64_t capacity) {
  const cudaError_t error = cudaMemsetAsync(counts, 0, number * sizeof(int), nullptr);
  if (error != cudaSuccess || n == 0) return error;
  const int threads = 96;
  partition_by_bucket<<<(n + threads - 1) / threads, threads>>>(values, buckets, (int)n, (int)capacity, counts, lists);
  return cudaGetLastError();
}
