// kernel.cu's explicit instantiation; EXPORT instantiates the other types.
#define INSTANCE_T float32
#include "kernel.cu"

using namespace swiglu_kernel;

// The rows of `gate` and `up` are `stride` elements apart.
#define EXPORT(T) \
  extern "C" cudaError_t forward_##T(const T* gate, const T* up, int64_t stride, T* output, int64_t rows, int64_t n) { \
    return forward<T>({gate, stride}, {up, stride}, {output, n}, rows, n, nullptr); \
  } \
  extern "C" cudaError_t backward_##T( \
      const T* grad, const T* gate, const T* up, int64_t stride, T* grad_gate, T* grad_up, int64_t rows, int64_t n) { \
    return backward<T>( \
        {grad, n}, {gate, stride}, {up, stride}, {grad_gate, stride}, {grad_up, stride}, rows, n, nullptr); \
  }
EXPORT(float32)
EXPORT(float16)
