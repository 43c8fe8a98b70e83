// Structs that a call copies straight from memory.

struct Tile {
  float values[8];
};

__device__ __noinline__ float sum(Tile tile) {
  float total = 0;
  for (float value : tile.values) total += value;
  return total;
}

using Sum = float (*)(Tile);
__device__ volatile Sum chosen_sum = sum;

// The block's first warp reads what its second has written: `fault` leaves out the barrier between them.
template <bool kByPointer>
__global__ void summed(const float* in, float* out, bool fault) {
  __shared__ Tile tiles[64];
  for (float& value : tiles[threadIdx.x].values) value = in[threadIdx.x];
  if (!fault) __syncthreads();
  const Tile* const tile = &tiles[threadIdx.x ^ 32];
  if (threadIdx.x < 32) out[threadIdx.x] = kByPointer ? chosen_sum(*tile) : sum(*tile);
}

extern "C" cudaError_t run_summed(const float* in, float* out, int64_t fault) {
#ifdef BY_POINTER
  summed<true><<<1, 64>>>(in, out, fault);
#else
  summed<false><<<1, 64>>>(in, out, fault);
#endif
  return cudaDeviceSynchronize();
}
