// Atomic functions, of every type and scope, and locks made of them.

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <stdint.h>
#include <cuda/atomic>

namespace {

using ull = unsigned long long;

// Each thread applies its number to every cell.
__global__ void integers(const int* in, int* s, unsigned* u, long long* sl, ull* ul) {
  const int x = in[blockIdx.x * blockDim.x + threadIdx.x];
  atomicAdd(&s[0], x);
  atomicSub(&s[1], x);
  atomicMin(&s[2], x);
  atomicMax(&s[3], x);
  atomicAnd(&s[4], ~(1 << (x & 31)));
  atomicOr(&s[5], 1 << (x & 31));
  atomicXor(&s[6], x);
  atomicAdd_block(&s[7 + blockIdx.x], x);
  atomicAdd_system(&s[9], 1);
  atomicAdd(&u[0], unsigned(x));
  atomicSub(&u[1], unsigned(x));
  atomicMin(&u[2], unsigned(x));
  atomicMax(&u[3], unsigned(x));
  atomicInc(&u[4], 100);
  atomicDec(&u[5], 50);
  atomicMin(&sl[0], static_cast<long long>(x) << 33);
  atomicMax(&sl[1], static_cast<long long>(x) << 33);
  atomicAdd(&ul[0], ull(x) << 20);
  atomicOr(&ul[1], 1ull << (x & 63));
  atomicMax(&ul[2], ull(x));
  atomicXor(&ul[3], ull(x) << 32);
}

__global__ void floats(
    const float* in, float* f, double* d, __half* h, __half2* h2, __nv_bfloat16* b, __nv_bfloat162* b2) {
  const float x = in[threadIdx.x];
  atomicAdd(f, x);
  atomicAdd(d, double(x));
  atomicAdd(h, __float2half(x));
  atomicAdd(h2, __floats2half2_rn(x, -x));
  atomicAdd(b, __float2bfloat16(x));
  atomicAdd(b2, __floats2bfloat162_rn(x, -x));
#if __CUDA_ARCH__ >= 900
  atomicAdd(reinterpret_cast<float2*>(f + 2), make_float2(x, 2 * x));
  atomicAdd(reinterpret_cast<float4*>(f + 4), make_float4(x, 2 * x, 3 * x, 4 * x));
#endif
}

// What each operation returns: the tickets are all different.
__global__ void tickets(int* counter, int* out, ull* cas, unsigned short* small) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  out[i] = atomicAdd(counter, 1);
  ull old = *reinterpret_cast<volatile ull*>(cas), expected;
  do {
    expected = old;
    old = atomicCAS(cas, expected, expected * 3 + 1);
  } while (old != expected);
  unsigned short seen = 0;
  for (unsigned short next; (next = atomicCAS(small, seen, static_cast<unsigned short>(seen + 1))) != seen;)
    seen = next;
}

__global__ void lock_and_add(int* lock, double* sum, const float* in) {
  __shared__ int unused;
  if (threadIdx.x == 0) {
    unused = 0;
    while (atomicCAS(lock, 0, 1) != 0) __nanosleep(20);
    __threadfence();
    *sum = *sum * 0.5 + in[blockIdx.x];
    __threadfence();
    atomicExch(lock, 0);
  }
}

// The last block sums what all have written.
__global__ void last_block_sums(const float* in, float* partial, unsigned* arrived, float* out, int n) {
  __shared__ bool is_last;
  float sum = 0;
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) sum += in[i];
  __shared__ float sums[64];
  sums[threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.x == 0) {
    float total = 0;
    for (int i = 0; i < 64; ++i) total += sums[i];
    partial[blockIdx.x] = total;
    __threadfence();
    is_last = atomicInc(arrived, gridDim.x - 1) == gridDim.x - 1;
  }
  __syncthreads();
  if (is_last && threadIdx.x == 0) {
    __threadfence();
    float total = 0;
    for (unsigned i = 0; i < gridDim.x; ++i) total += reinterpret_cast<volatile float*>(partial)[i];
    *out = total;
  }
}

__global__ void library_atomics(const int* in, int* cells, float* real, unsigned* flag, int* message, int* received) {
  const int x = in[threadIdx.x];
  cuda::atomic_ref<int, cuda::thread_scope_device> first(cells[0]);
  first.fetch_add(x, cuda::memory_order_relaxed);
  cuda::atomic_ref<int, cuda::thread_scope_block>(cells[1]).fetch_max(x);
  cuda::atomic_ref<int, cuda::thread_scope_system>(cells[2]).fetch_xor(x);
  cuda::atomic_ref<float, cuda::thread_scope_device>(*real).fetch_add(float(x));
  cuda::atomic_ref<int, cuda::thread_scope_device> third(cells[3]);
  int old = third.load();
  while (!third.compare_exchange_weak(old, old + 2 * x)) {
  }
  // A message by release and acquire.
  cuda::atomic_ref<unsigned, cuda::thread_scope_device> ready(*flag);
  if (threadIdx.x == 40) {
    *message = 17;
    ready.store(1, cuda::memory_order_release);
  } else if (threadIdx.x == 3) {
    while (ready.load(cuda::memory_order_acquire) == 0) {
    }
    *received = *message;
  }
}

__device__ cuda::atomic<int, cuda::thread_scope_device> global_count;

__global__ void count_globally(int* out) {
  __shared__ cuda::atomic<int, cuda::thread_scope_block> count;
  if (threadIdx.x == 0) count.store(0);
  __syncthreads();
  count.fetch_add(2);
  global_count++;
  __syncthreads();
  if (threadIdx.x == 0) out[0] = count.load();
}

__global__ void read_count(int* out) {
  out[1] = global_count.exchange(0);
}

__global__ void exchange_16_bytes(uint4* place, uint4* out) {
#if __CUDA_ARCH__ >= 900
  const unsigned i = threadIdx.x;
  uint4 old = atomicExch(place, make_uint4(i, i + 1, i + 2, i + 3));
  out[i] = old;
#endif
}

// A maximum of floats, as the programming guide writes atomics that CUDA lacks; but its first read is plain.
__global__ void maximum(const float* in, float* out, bool is_plain) {
  int* const cell = reinterpret_cast<int*>(out);
  int old = *static_cast<volatile int*>(cell), assumed;
  if (is_plain) old = *cell;
  do {
    assumed = old;
    old = atomicCAS(cell, assumed, __float_as_int(fmaxf(in[threadIdx.x], __int_as_float(assumed))));
  } while (assumed != old);
}

}  // namespace

extern "C" {

cudaError_t integer_atomics(const int* in, int* s, unsigned* u, long long* sl, ull* ul) {
  integers<<<2, 64>>>(in, s, u, sl, ul);
  return cudaGetLastError();
}
cudaError_t float_atomics(
    const float* in, float* f, double* d, __half* h, __half2* h2, __nv_bfloat16* b, __nv_bfloat162* b2) {
  floats<<<1, 64>>>(in, f, d, h, h2, b, b2);
  return cudaGetLastError();
}
cudaError_t take_tickets(int* counter, int* out, ull* cas, unsigned short* small) {
  tickets<<<3, 32>>>(counter, out, cas, small);
  return cudaGetLastError();
}
cudaError_t sum_under_lock(int* lock, double* sum, const float* in) {
  lock_and_add<<<9, 32>>>(lock, sum, in);
  return cudaGetLastError();
}
cudaError_t sum_in_last_block(const float* in, float* partial, unsigned* arrived, float* out, int64_t n) {
  last_block_sums<<<5, 64>>>(in, partial, arrived, out, int(n));
  return cudaGetLastError();
}
cudaError_t libcudacxx_atomics(const int* in, int* cells, float* real, unsigned* flag, int* message, int* received) {
  library_atomics<<<1, 64>>>(in, cells, real, flag, message, received);
  return cudaGetLastError();
}
cudaError_t libcudacxx_counters(int* out) {
  count_globally<<<1, 96>>>(out);
  read_count<<<1, 1>>>(out);
  return cudaGetLastError();
}
cudaError_t wide_exchange(uint4* place, uint4* out) {
  exchange_16_bytes<<<1, 64>>>(place, out);
  return cudaGetLastError();
}
cudaError_t maximum_by_exchanges(const float* in, float* out, int64_t is_plain) {
  maximum<<<1, 64>>>(in, out, is_plain);
  return cudaGetLastError();
}
}
