// A kernel that starts while the one before it in its stream still ends (programmatic dependent launch, from compute
// capability 9.0 on): its launch costs no time of its own, and its blocks take the places that become free one by one.
//
// The earlier kernel says from when on the later one may start. The later one waits before it touches memory: until the
// earlier one is over, and what that wrote can be seen. Older GPUs run them one after the other.

#pragma once

#include <cuda_runtime_api.h>

#include "compute_capability.h"

// In the earlier kernel: the next may start once every block has been here or is over. A block that starts then takes
// room that blocks of this kernel do not need: all of them are on the GPU.
__device__ inline void let_next_kernel_start() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

// In the later kernel, by all threads.
__device__ inline void wait_for_kernel_before() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// Launches a kernel that waits for the one before it.
template <typename... Parameters, typename... Arguments>
cudaError_t launch_dependent(
    void (*kernel)(Parameters...), dim3 blocks, dim3 threads, cudaStream_t stream, Arguments... arguments) {
  cudaLaunchAttribute early;
  early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  early.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t configuration = {};
  configuration.gridDim = blocks;
  configuration.blockDim = threads;
  configuration.stream = stream;
  configuration.attrs = &early;
  configuration.numAttrs = compute_capability() >= 90;
  return cudaLaunchKernelEx(&configuration, kernel, Parameters(arguments)...);
}
