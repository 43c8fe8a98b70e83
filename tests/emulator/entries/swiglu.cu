#include "kernel.cuh"

using namespace swiglu_kernel;

// A row of `gate` and `up` begins `stride` elements after the one before.
#define EXPORT(name, T) \
  extern "C" cudaError_t forward_##name( \
      const T* gate, const T* up, int64_t stride, T* output, int64_t rows, int64_t n) { \
    return forward<T>({gate, stride}, {up, stride}, {output, n}, rows, n, nullptr); \
  } \
  extern "C" cudaError_t backward_##name( \
      const T* grad, const T* gate, const T* up, int64_t stride, T* grad_gate, T* grad_up, int64_t rows, int64_t n) { \
    return backward<T>( \
        {grad, n}, {gate, stride}, {up, stride}, {grad_gate, stride}, {grad_up, stride}, rows, n, nullptr); \
  }
EXPORT(float32, float)
EXPORT(float16, __half)
