// A ring of stages in shared memory that a producer fills by bulk copies and consumers read, as attention's row
// statistics are. It is right, and compute-sanitizer's racecheck reports a race: it does not see that a named barrier,
// one thread's arrival at an mbarrier and the producer's wait for it put the reads before the next copy.

#include <cuda_runtime.h>

#include <cstdint>

constexpr int kStages = 2, kWords = 256, kProducers = 128, kConsumers = 256, kWarpgroup = 128;

__device__ uint32_t window(const void* p) { return static_cast<uint32_t>(__cvta_generic_to_shared(p)); }

__device__ void wait(uint64_t* barrier, int parity) {
  uint32_t ended;
  do {
    asm volatile(
        "{\n"
        ".reg .pred ended;\n"
        "mbarrier.try_wait.parity.shared::cta.b64 ended, [%1], %2;\n"
        "selp.u32 %0, 1, 0, ended;\n"
        "}"
        : "=r"(ended)
        : "r"(window(barrier)), "r"(parity)
        : "memory");
  } while (!ended);
}

__global__ void ring(const float* in, float* sums, int steps, int early) {
  __shared__ alignas(128) float words[kStages][kWords];
  __shared__ uint64_t full[kStages], empty[kStages];
  if (threadIdx.x == 0) {
    for (int stage = 0; stage < kStages; ++stage) {
      asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(window(&full[stage])) : "memory");
      asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(window(&empty[stage])), "r"(kConsumers / kWarpgroup)
                   : "memory");
    }
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  __syncthreads();
  float sum = 0;
  for (int step = 0; step < steps; ++step) {
    const int stage = step % kStages, parity = step / kStages % 2;
    if (threadIdx.x == 0) {
      wait(&empty[stage], parity ^ 1);
      asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(window(&full[stage])),
                   "r"(int(sizeof(words[stage])))
                   : "memory");
      asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                       window(words[stage])),
                   "l"(in + step * kWords),
                   "r"(int(sizeof(words[stage]))),
                   "r"(window(&full[stage]))
                   : "memory");
    } else if (threadIdx.x >= kProducers) {
      wait(&full[stage], parity);
      // The fault of the test: a stage that is released before it is read.
      const bool releases = threadIdx.x % kWarpgroup == 0;
      if (early && releases) {
        asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(window(&empty[stage])) : "memory");
      }
      sum += words[stage][threadIdx.x - kProducers];
      asm volatile("bar.sync 1, %0;" ::"n"(kConsumers) : "memory");
      if (!early && releases) {
        asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(window(&empty[stage])) : "memory");
      }
    }
  }
  if (threadIdx.x >= kProducers) sums[threadIdx.x - kProducers] = sum;
}

extern "C" cudaError_t sum_by_ring(const float* in, float* sums, int64_t steps, int64_t early) {
  ring<<<1, kProducers + kConsumers>>>(in, sums, int(steps), int(early));
  return cudaDeviceSynchronize();
}

#ifndef EMULATED_CUDA_ARCH
int main(int, char** arguments) {
  constexpr int kSteps = 40;
  float *in, *sums;
  cudaMalloc(&in, kSteps * kWords * sizeof(float));
  cudaMalloc(&sums, kConsumers * sizeof(float));
  cudaMemset(in, 0, kSteps * kWords * sizeof(float));
  // Not a constant: of a loop that the compiler unrolls, racecheck knows the order.
  return sum_by_ring(in, sums, kSteps - (arguments[0] == nullptr), 0);
}
#endif
