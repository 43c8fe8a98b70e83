// linear_activation's activations and their derivatives, as its kernels compute them for results of each type: of n
// values in float32.

#include "activations.h"

using namespace linear_activation_kernel;

template <typename T, typename Activation>
__device__ float value(float z) {
  if constexpr (sizeof(T) == 2) return value_to_round<T, Activation>(z);
  return Activation::value(z);
}

template <typename T, typename Activation>
__global__ void evaluate(const float* z, float* y, float* gradient, int64_t n) {
  for (int64_t i = threadIdx.x; i < n; i += blockDim.x) {
    y[i] = value<T, Activation>(z[i]);
    gradient[i] = Activation::gradient(1.0f, Activation::kSaves == Saves::kOutput ? y[i] : z[i]);
  }
}

template <typename T>
cudaError_t evaluate_activation(int64_t activation, const float* z, float* y, float* gradient, int64_t n) {
  int64_t index = 0;
#define EVALUATE(Activation) \
  if (index++ == activation) evaluate<T, Activation><<<1, 64>>>(z, y, gradient, n);
  ACTIVATIONS(EVALUATE)
  return cudaGetLastError();
}

#define EXPORT(T) \
  extern "C" cudaError_t evaluate_##T(int64_t activation, const float* z, float* y, float* gradient, int64_t n) { \
    return evaluate_activation<T>(activation, z, y, gradient, n); \
  }
EXPORT(float16)
EXPORT(bfloat16)
EXPORT(float32)
