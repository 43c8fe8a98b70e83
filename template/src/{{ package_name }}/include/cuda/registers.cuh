// How much a thread holds in registers. ptxas allocates them for each generation of GPUs anew: what fits on Hopper,
// where the kernels were timed, spills on others. There a thread holds less.

#pragma once

// Whether it does. For device code only, since host code is the same for all GPUs.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ / 100 != 9
constexpr bool kHoldsLess = true;
#else
constexpr bool kHoldsLess = false;
#endif

// The second launch bound of a kernel whose blocks are independent: how many a multiprocessor has registers for, a
// quarter fewer (one at least) where a thread would spill. Each has so many loads in flight that the others still keep
// memory busy. It is not for persistent kernels, of which the host launches as many blocks as are resident.
constexpr int resident_blocks(int on_hopper) {
  if (!kHoldsLess || on_hopper == 1) return on_hopper;
  return on_hopper - (on_hopper < 8 ? 1 : on_hopper / 4);
}

// Makes the compiler compute again what follows from these values, such as the addresses of a thread's accesses. It
// would compute that before a loop, and keep it in registers.
template <typename... Values>
__device__ void compute_again_from(Values&... values) {
  (..., [](auto& value) { asm volatile("" : "+r"(value)); }(values));
}

// Whether ptxas keeps so many addresses that a kernel which fills its registers would spill: for 10.0 and later.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 1000
constexpr bool kComputesAgain = true;
#else
constexpr bool kComputesAgain = false;
#endif

// The index of the thread in its block; if `kAgain`, where kComputesAgain, what follows from it is computed again.
template <bool kAgain>
__device__ unsigned thread_index() {
  unsigned index = threadIdx.x;
  if constexpr (kComputesAgain && kAgain) compute_again_from(index);
  return index;
}
