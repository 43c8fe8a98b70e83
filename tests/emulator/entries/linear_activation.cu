// The kernels of every path, for one activation; before 9.0 those of sm80/ alone, to compile less.
#define INSTANCE_T float16
// No explicit instantiations in sm80/ and sm90/: FORWARD instantiates what it uses.
#define INSTANCE_CLASS Small
#define INSTANCE_GROUP(Instantiate, Activation)

#include "sm80/direct.cu"
#include "sm80/forward.cu"
#if EMULATED_CUDA_ARCH >= 900
#include "backward.cu"
#include "plain.cu"
#include "sm90/forward.cu"
#include "sm90/gpu.cu"
#endif

using namespace linear_activation_kernel;

#define FORWARD(path, T) \
  extern "C" cudaError_t path##_##T( \
      const T* x, const T* weight, const T* bias, T* y, T* z, int64_t m, int64_t n, int64_t k) { \
    return path::forward<T, GeluTanh>({x, weight, bias, y, z, m, n, k}, nullptr); \
  }
FORWARD(sm80, float16)

// By tiles of 16 * high rows of W and 8 * wide rows of x.
#define DIRECT(high, wide, T) \
  extern "C" cudaError_t direct_##high##_##wide##_##T( \
      const T* x, const T* weight, const T* bias, T* y, T* z, int64_t m, int64_t n, int64_t k, int warps) { \
    using Tile = sm80::DirectTile<high, wide>; \
    return sm80::direct_by<T, GeluTanh, Tile>({x, weight, bias, y, z, m, n, k}, warps, nullptr); \
  }
DIRECT(1, 1, float16)
DIRECT(2, 4, float16)
#if EMULATED_CUDA_ARCH >= 900
FORWARD(plain, float32)
FORWARD(plain, bfloat16)
FORWARD(sm90, bfloat16)
DIRECT(2, 2, bfloat16)

extern "C" cudaError_t backward_float16(
    const float16* grad,
    const float16* saved,
    float16* grad_z,
    float16* grad_bias,
    void* partial,
    int64_t partial_length,
    int64_t m,
    int64_t n) {
  if (partial_rows(m, n) * n > partial_length) return cudaErrorMemoryAllocation;
  return backward<float16, GeluTanh>({grad, saved, grad_z, grad_bias, partial, m, n}, nullptr);
}
#endif
