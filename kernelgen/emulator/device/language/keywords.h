// What nvcc defines before a source: its macros, and CUDA's keywords.

#pragma once

#undef __host__
#undef __device__
#undef __global__
#undef __shared__
#undef __constant__
#undef __managed__
#undef __launch_bounds__
#undef __maxnreg__
#undef __cluster_dims__
#undef __block_size__
#undef __grid_constant__
#undef __align__
#undef __forceinline__
#undef __noinline__

// The architecture that sources are compiled for, as in -arch=sm_90a; 900 is sm_90a.
#ifndef EMULATED_CUDA_ARCH
#define EMULATED_CUDA_ARCH 900
#endif

#define __NVCC__ 1
#define __CUDACC__ 1
#define __CUDA_ARCH__ EMULATED_CUDA_ARCH
#define __CUDA_ARCH_LIST__ EMULATED_CUDA_ARCH
#define __CUDACC_EXTENDED_LAMBDA__ 1
#define __CUDACC_RELAXED_CONSTEXPR__ 1
#if EMULATED_CUDA_ARCH == 900
#define __CUDA_ARCH_FEAT_SM90_ALL 1
#endif
#if CUDART_VERSION >= 13000
#define __CUDACC_VER_MAJOR__ 13
#else
#define __CUDACC_VER_MAJOR__ 12
#endif
#define __CUDACC_VER_MINOR__ ((CUDART_VERSION % 1000) / 10)
#define __CUDACC_VER_BUILD__ 0

#define __host__
#define __device__
// All that a kernel calls is inlined, as nvcc does: the compiler calls no hook for a struct that is passed by value
// from memory. compile.py takes this away where no call does that.
#define __global__ __attribute__((flatten))
#define __constant__
#define __managed__
#define __grid_constant__
#define __maxnreg__(...)
#define __align__(bytes) __attribute__((aligned(bytes)))
#define __forceinline__ inline __attribute__((always_inline))
// __noinline__ is no macro, since the C++ library has an attribute of this name: rewrite.py removes it.
#define __nv_pure__

#define __assume(condition) static_cast<void>(0)
#define __builtin_assume(condition) static_cast<void>(0)

#define __nv_is_extended_device_lambda_closure_type(type) false
#define __nv_is_extended_host_device_lambda_closure_type(type) false
#define __nv_is_extended_device_lambda_with_preserved_return_type(type) false
