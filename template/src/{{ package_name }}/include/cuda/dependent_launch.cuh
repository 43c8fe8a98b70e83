// Programmatic dependent launch (from compute capability 9.0 on): a kernel starts while the one before it in its stream
// still runs. That hides its launch, and its blocks start as multiprocessors become free.
//
// The earlier kernel triggers the launch. The later one waits, before it touches memory, until the earlier one has
// ended and its writes are visible. Older GPUs run the two one after the other.

#pragma once

#include <cuda_runtime_api.h>

#include "compute_capability.h"

// In the earlier kernel: the next one may start once every block has called this or has ended. All blocks of this
// kernel are resident by then, so the next kernel's blocks delay none of them.
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

// Launches a kernel that calls wait_for_kernel_before, with so much dynamic shared memory or none.
template <typename... Parameters, typename... Arguments>
cudaError_t launch_dependent(
    void (*kernel)(Parameters...),
    dim3 blocks,
    dim3 threads,
    size_t shared_bytes,
    cudaStream_t stream,
    const Arguments&... arguments) {
  cudaLaunchAttribute early;
  early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  early.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t configuration = {};
  configuration.gridDim = blocks;
  configuration.blockDim = threads;
  configuration.dynamicSmemBytes = shared_bytes;
  configuration.stream = stream;
  configuration.attrs = &early;
  configuration.numAttrs = compute_capability() >= 90;
  return cudaLaunchKernelEx(&configuration, kernel, Parameters(arguments)...);
}

template <typename... Parameters, typename... Arguments>
cudaError_t launch_dependent(
    void (*kernel)(Parameters...), dim3 blocks, dim3 threads, cudaStream_t stream, const Arguments&... arguments) {
  return launch_dependent(kernel, blocks, threads, size_t(0), stream, arguments...);
}
