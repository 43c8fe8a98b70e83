#include "kernel.h"

using namespace linear_activation_kernel;

#define FORWARD(path, name, T, Activation) \
  extern "C" cudaError_t path##_##name( \
      const T* x, const T* weight, const T* bias, T* y, T* z, int64_t m, int64_t n, int64_t k) { \
    return forward_##path<T, Activation>({x, weight, bias, y, z, m, n, k}, nullptr); \
  }
FORWARD(plain, float32, float, GeluTanh)
FORWARD(plain, bfloat16, __nv_bfloat16, GeluTanh)
FORWARD(portable, float16, __half, GeluTanh)
FORWARD(hopper, bfloat16, __nv_bfloat16, GeluTanh)

extern "C" cudaError_t backward_float16(
    const __half* grad,
    const __half* saved,
    __half* grad_z,
    __half* grad_bias,
    void* partial,
    int64_t partial_length,
    int64_t m,
    int64_t n) {
  if (partial_sums(m, n) * n > partial_length) return cudaErrorMemoryAllocation;
  return backward<__half, GeluTanh>({grad, saved, grad_z, grad_bias, partial, m, n}, nullptr);
}
