// The sources' explicit instantiations; EXPORT instantiates the other types. `stride` is that of the rows that are read.
#define INSTANCE_T float32
#define INSTANCE_ROWS kAligned
#include "backward.cu"
#include "forward.cu"

using namespace layer_norm_kernel;

// The objects of other rows have these.
template int64_t layer_norm_kernel::scratch_size<float32, Rows::kOther>(const Backward<float32>&);
template int64_t layer_norm_kernel::scratch_size<float32, Rows::kOther>(const Forward<float32>&);
template cudaError_t layer_norm_kernel::backward<float32, Rows::kOther>(const Backward<float32>&, float*, cudaStream_t);
template cudaError_t layer_norm_kernel::forward<float32, Rows::kOther>(const Forward<float32>&, float*, cudaStream_t);

#define EXPORT(T) \
  extern "C" cudaError_t forward_##T( \
      const T* input, \
      const T* residual, \
      const T* weight, \
      const T* bias, \
      T* output, \
      T* sum, \
      float* mean, \
      float* rstd, \
      float* scratch, \
      int64_t scratch_length, \
      int64_t rows, \
      int64_t n, \
      int64_t stride) { \
    const Forward<T> arguments{{input, stride}, {residual, stride}, weight, bias, output, sum, mean, rstd, rows, n, 1e-5}; \
    if (scratch_size(arguments) > scratch_length) return cudaErrorMemoryAllocation; \
    return forward(arguments, scratch, nullptr); \
  } \
  extern "C" cudaError_t backward_##T( \
      const T* grad, \
      const T* grad_sum, \
      const T* input, \
      const T* weight, \
      const float* mean, \
      const float* rstd, \
      T* grad_input, \
      T* grad_weight, \
      T* grad_bias, \
      float* scratch, \
      int64_t scratch_length, \
      int64_t rows, \
      int64_t n, \
      int64_t stride) { \
    const Backward<T> arguments{\
        {grad, stride}, {grad_sum, stride}, {input, stride}, weight, mean, rstd, grad_input, grad_weight, grad_bias, rows, n}; \
    if (scratch_size(arguments) > scratch_length) return cudaErrorMemoryAllocation; \
    return backward(arguments, scratch, nullptr); \
  }
EXPORT(float32)
EXPORT(bfloat16)
