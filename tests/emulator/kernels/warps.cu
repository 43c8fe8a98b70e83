// What the lanes of a warp do together. Each function writes, for each thread, a row of results.

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <stdint.h>

namespace {

constexpr unsigned kAll = 0xffffffff;

template <int kWidth>
__global__ void shuffles(const int* in, const int* sources, int* out) {
  const int i = threadIdx.x, x = in[i], s = sources[i];
  int* row = out + 8 * i;
  row[0] = __shfl_sync(kAll, x, s, kWidth);
  row[1] = __shfl_up_sync(kAll, x, 3, kWidth);
  row[2] = __shfl_down_sync(kAll, x, 5, kWidth);
  row[3] = __shfl_xor_sync(kAll, x, 6, kWidth);
  row[4] = int(__shfl_sync(kAll, static_cast<unsigned long long>(x) << 32 | 7u, s, kWidth) >> 32);
  row[5] = __float_as_int(__shfl_xor_sync(kAll, float(x), 1, kWidth));
  row[6] = int(__shfl_down_sync(kAll, double(x), 2, kWidth));
  row[7] = int(__shfl_up_sync(kAll, static_cast<long long>(x), 1, kWidth));
}

__global__ void shuffle_halves(const float* in, float* out) {
  const int i = threadIdx.x;
  const float x = in[i];
  float* row = out + 6 * i;
  row[0] = __half2float(__shfl_xor_sync(kAll, __float2half(x), 3));
  row[1] = __bfloat162float(__shfl_down_sync(kAll, __float2bfloat16(x), 2));
  const __half2 h = __shfl_sync(kAll, __floats2half2_rn(x, -x), 7);
  row[2] = __low2float(h);
  row[3] = __high2float(h);
  const __nv_bfloat162 b = __shfl_up_sync(kAll, __floats2bfloat162_rn(x, 2 * x), 1);
  row[4] = __low2float(b);
  row[5] = __high2float(b);
}

__global__ void votes(const int* in, unsigned* out) {
  const int i = threadIdx.x, x = in[i];
  unsigned* row = out + 12 * i;
  row[0] = __ballot_sync(kAll, x & 1);
  row[1] = __any_sync(kAll, x > 90);
  row[2] = __all_sync(kAll, x >= 0);
  row[3] = __match_any_sync(kAll, x % 5);
  int same = 0;
  row[4] = __match_all_sync(kAll, x / 1000, &same);
  row[5] = unsigned(same);
  row[6] = __syncthreads_count(x & 1);
  row[7] = __syncthreads_and(x >= 0);
  row[8] = __syncthreads_or(x > 98);
  row[9] = __match_any_sync(kAll, static_cast<unsigned long long>(x % 3) << 40);
  // Half of the warp: the even lanes.
  row[10] = i % 2 == 0 ? __ballot_sync(0x55555555, x > 50) : 0;
  row[11] = __uni_sync(kAll, x >= 0);
}

__global__ void reductions(const int* in, int* out) {
  const int i = threadIdx.x, x = in[i];
  int* row = out + 8 * i;
#if __CUDA_ARCH__ >= 800
  row[0] = __reduce_add_sync(kAll, x);
  row[1] = __reduce_min_sync(kAll, x);
  row[2] = __reduce_max_sync(kAll, x);
  row[3] = int(__reduce_and_sync(kAll, unsigned(x)));
  row[4] = int(__reduce_or_sync(kAll, unsigned(x)));
  row[5] = int(__reduce_xor_sync(kAll, unsigned(x)));
  row[6] = int(__reduce_max_sync(kAll, unsigned(x)));
  row[7] = i % 32 < 16 ? __reduce_add_sync(0xffff, x) : __reduce_min_sync(0xffff0000, x);
#endif
}

// Threads that a branch keeps together count themselves.
__global__ void active(const int* in, unsigned* out) {
  const int i = threadIdx.x;
  unsigned mask;
  if (in[i] & 1) {
    mask = __activemask();
  } else {
    mask = __activemask();
  }
  out[i] = __popc(mask & ((1u << (i % 32)) - 1));
}

// One atomic for each group of equal keys.
__global__ void counts_by_key(const int* in, int* counts) {
  const int key = in[threadIdx.x];
  const unsigned peers = __match_any_sync(__activemask(), key);
  if (__ffs(peers) - 1 == int(threadIdx.x % 32)) atomicAdd(&counts[key], __popc(peers));
  __syncwarp();
}

__global__ void warp_exchange_by_memory(const int* in, int* out) {
  __shared__ int values[64];
  const int i = threadIdx.x, lane = i % 32, base = i - lane;
  values[i] = in[i];
  __syncwarp();
  const int other = values[base + 31 - lane];
  __syncwarp();
  values[i] = other;
  __syncwarp();
  out[i] = values[base + (lane + 1) % 32];
}

}  // namespace

extern "C" {

cudaError_t shuffle_32(const int* in, const int* sources, int* out) {
  shuffles<32><<<1, 64>>>(in, sources, out);
  return cudaGetLastError();
}
cudaError_t shuffle_8(const int* in, const int* sources, int* out) {
  shuffles<8><<<1, 64>>>(in, sources, out);
  return cudaGetLastError();
}
cudaError_t shuffle_16_bits(const float* in, float* out) {
  shuffle_halves<<<1, 32>>>(in, out);
  return cudaGetLastError();
}
cudaError_t vote(const int* in, unsigned* out) {
  votes<<<1, 96>>>(in, out);
  return cudaGetLastError();
}
cudaError_t reduce(const int* in, int* out) {
  reductions<<<1, 64>>>(in, out);
  return cudaGetLastError();
}
cudaError_t active_lanes(const int* in, unsigned* out) {
  active<<<1, 64>>>(in, out);
  return cudaGetLastError();
}
cudaError_t count_keys(const int* in, int* counts) {
  counts_by_key<<<1, 256>>>(in, counts);
  return cudaGetLastError();
}
cudaError_t exchange(const int* in, int* out) {
  warp_exchange_by_memory<<<1, 64>>>(in, out);
  return cudaGetLastError();
}
}
