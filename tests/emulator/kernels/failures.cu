// Kernels that fail where an argument says so, and launches that are refused.

#include <cassert>
#include <cstdint>

namespace {

__global__ void asserts(const int* in, int limit) {
  assert(in[threadIdx.x] < limit);
}

__global__ void traps(const int* in, int limit) {
  if (in[threadIdx.x] >= limit) __trap();
}

// As libcu++'s functions are.
__device__ void stop() noexcept {
  __trap();
}

__global__ void traps_in_a_function(const int* in, int limit) {
  if (in[threadIdx.x] >= limit) stop();
}

__global__ void divides(const int* in, int* out, int limit) {
  out[threadIdx.x] = 1000 / (in[threadIdx.x] - limit);
}

// The copy engine reads where no memory is.
__global__ void copies_from(const void* source) {
  __shared__ alignas(16) int buffer[4];
  __shared__ uint64_t barrier;
  const auto address = [](const void* pointer) { return uint32_t(__cvta_generic_to_shared(pointer)); };
  if (threadIdx.x == 0) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(address(&barrier)) : "memory");
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], 16;" ::"r"(address(&barrier)) : "memory");
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], 16, [%2];" ::"r"(
            address(buffer)),
        "l"(source),
        "r"(address(&barrier))
        : "memory");
    int done = 0;
    while (!done) {
      asm volatile(
          "{\n.reg .pred done;\nmbarrier.try_wait.parity.shared::cta.b64 done, [%1], 0;\nselp.s32 %0, 1, 0, done;\n}"
          : "=r"(done)
          : "r"(address(&barrier))
          : "memory");
    }
  }
}

template <typename T>
__global__ void uses_shared_memory(T* out, int n) {
  extern __shared__ int buffer[];
  buffer[n - 1 - threadIdx.x] = threadIdx.x;
  out[threadIdx.x] = buffer[n - 1 - threadIdx.x];
}

__global__ void uses_both_kinds(int* out, int n) {
  extern __shared__ int buffer[];
  __shared__ int more[1024];
  more[threadIdx.x] = buffer[n - 1 - threadIdx.x] = threadIdx.x;
  out[threadIdx.x] = more[threadIdx.x];
}

}  // namespace

extern "C" {

cudaError_t run_asserts(const int* in, int*, int64_t limit) {
  asserts<<<1, 64>>>(in, int(limit));
  return cudaGetLastError();
}

cudaError_t run_traps(const int* in, int*, int64_t limit) {
  traps<<<1, 64>>>(in, int(limit));
  return cudaGetLastError();
}

cudaError_t run_traps_in_a_function(const int* in, int*, int64_t limit) {
  traps_in_a_function<<<1, 64>>>(in, int(limit));
  return cudaGetLastError();
}

cudaError_t run_divides(const int* in, int* out, int64_t limit) {
  divides<<<1, 64>>>(in, out, int(limit));
  return cudaGetLastError();
}

cudaError_t run_copies_from(const void* source) {
  copies_from<<<1, 32>>>(source);
  return cudaGetLastError();
}

cudaError_t run_uses_shared_memory(int* out, int64_t bytes, int64_t asks) {
  if (asks) cudaFuncSetAttribute(uses_shared_memory<int>, cudaFuncAttributeMaxDynamicSharedMemorySize, int(bytes));
  uses_shared_memory<int><<<1, 64, bytes>>>(out, int(bytes / 4));
  return cudaGetLastError();
}

cudaError_t run_uses_both_kinds(int* out, int64_t bytes, int64_t asks) {
  if (asks) cudaFuncSetAttribute(uses_both_kinds, cudaFuncAttributeMaxDynamicSharedMemorySize, int(bytes));
  uses_both_kinds<<<1, 64, bytes>>>(out, int(bytes / 4));
  return cudaGetLastError();
}
}
