// Orders between threads that few kernels use; with a fault, an order is missing.

#include <cooperative_groups.h>

#include <cstdint>

namespace cg = cooperative_groups;

namespace {

// Each block adds its neighbour's numbers.
__global__ void grid_barrier(int* a, int* b, bool faulty) {
  auto grid = cg::this_grid();
  const int i = int(grid.thread_rank()), n = int(grid.size());
  b[i] = a[i];
  if (!faulty) grid.sync();
  a[i] = b[(i + blockDim.x) % n];
}

__global__ void grid_barrier_in_two_parts(int* a, int* b, bool faulty) {
  auto grid = cg::this_grid();
  const int i = int(grid.thread_rank()), n = int(grid.size());
  b[i] = a[i];
  auto token = grid.barrier_arrive();
  if (!faulty) grid.barrier_wait(std::move(token));
  a[i] = b[(i + blockDim.x) % n];
}

// A barrier of the grid by hand: one thread of each block counts, and waits until all are counted.
__global__ void counted_blocks(int* a, int* b, int* count, bool faulty) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x, n = gridDim.x * blockDim.x;
  b[i] = a[i];
  __syncthreads();
  if (threadIdx.x == 0) {
    if (!faulty) __threadfence();
    atomicAdd(count, 1);
    while (*static_cast<volatile int*>(count) < int(gridDim.x)) {
    }
    __threadfence();
  }
  __syncthreads();
  a[i] = b[(i + blockDim.x) % n];
}

__device__ uint32_t address_of(const void* pointer) {
  return uint32_t(__cvta_generic_to_shared(pointer));
}

__device__ void wait(uint64_t* barrier, int parity) {
  asm volatile(
      "{\n"
      ".reg .pred done;\n"
      "AGAIN:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "@!done bra AGAIN;\n"
      "}" ::"r"(address_of(barrier)),
      "r"(parity)
      : "memory");
}

// One warp copies by cp.async, and the barrier counts the copies; another reads. With `adds` the barrier counts them
// besides the arrivals that it was initialised for.
__global__ void counted_copies(const int* in, int* out, bool adds, int fault) {
  __shared__ int buffer[32];
  __shared__ uint64_t barrier;
  if (threadIdx.x == 0) asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(address_of(&barrier)), "r"(32));
  __syncthreads();
  const int lane = threadIdx.x % 32;
  if (threadIdx.x < 32) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(address_of(buffer + lane)), "l"(in + lane));
    if (adds) {
      if (fault != 1) asm volatile("cp.async.mbarrier.arrive.shared::cta.b64 [%0];" ::"r"(address_of(&barrier)));
      // The arrivals that the barrier expects are those of the other warp.
    } else if (fault != 1) {
      asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(address_of(&barrier)));
    } else {
      asm volatile("{\n.reg .b64 state;\nmbarrier.arrive.shared::cta.b64 state, [%0];\n}" ::"r"(address_of(&barrier)));
    }
    asm volatile("bar.arrive 1, 64;" ::: "memory");
    return;
  }
  if (adds) {
    asm volatile("bar.sync 1, 64;" ::: "memory");
    asm volatile("{\n.reg .b64 state;\nmbarrier.arrive.shared::cta.b64 state, [%0];\n}" ::"r"(address_of(&barrier)));
  }
  if (fault != 2) wait(&barrier, 0);
  out[lane] = buffer[31 - lane];
}

template <typename Kernel>
cudaError_t launch_cooperative(Kernel* kernel, int* a, int* b, int64_t fault) {
  bool faulty = fault != 0;
  void* arguments[] = {&a, &b, &faulty};
  return cudaLaunchCooperativeKernel(kernel, dim3(4), dim3(64), arguments, 0, nullptr);
}

}  // namespace

extern "C" {

cudaError_t run_grid_barrier(int* a, int* b, int64_t fault) {
  return launch_cooperative(grid_barrier, a, b, fault);
}

cudaError_t run_grid_barrier_in_two_parts(int* a, int* b, int64_t fault) {
  return launch_cooperative(grid_barrier_in_two_parts, a, b, fault);
}

cudaError_t run_counted_blocks(int* a, int* b, int64_t fault) {
  int* count = b + 256;
  bool faulty = fault != 0;
  void* arguments[] = {&a, &b, &count, &faulty};
  return cudaLaunchCooperativeKernel(counted_blocks, dim3(4), dim3(64), arguments, 0, nullptr);
}

cudaError_t run_counted_copies(int* a, int* b, int64_t fault) {
  counted_copies<<<1, 64>>>(b, a, false, int(fault));
  return cudaGetLastError();
}

cudaError_t run_added_copies(int* a, int* b, int64_t fault) {
  counted_copies<<<1, 64>>>(b, a, true, int(fault));
  return cudaGetLastError();
}
}
