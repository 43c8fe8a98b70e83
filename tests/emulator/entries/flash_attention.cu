// The kernels of sm80/, whose files instantiate themselves for this type and head dimension.
#define INSTANCE_T float16
#define INSTANCE_D 64

#include "flash_attention_problem.h"
#include "sm80/backward_delta.cu"
#include "sm80/backward_keys.cu"
#include "sm80/backward_queries.cu"
#include "sm80/combine.cu"
#include "sm80/decode.cu"
#include "sm80/forward.cu"

namespace {

using namespace sm80;

template <typename T, int D>
cudaError_t run_forward(const Forward& problem) {
  const cudaError_t error = sm80::forward<T, D>(problem, nullptr);
  return error != cudaSuccess || problem.splits == 1 ? error : forward_combine<T, D>(problem, nullptr);
}

template <typename T, int D>
cudaError_t run_decode(const Forward& problem, int warps) {
  const cudaError_t error = forward_decode<T, D>(problem, warps, nullptr);
  return error != cudaSuccess || problem.splits == 1 ? error : forward_combine<T, D>(problem, nullptr);
}

template <typename T, int D>
cudaError_t run_backward(const Backward& problem) {
  if (const cudaError_t error = backward_delta<T>(problem, nullptr); error != cudaSuccess) return error;
  if (const cudaError_t error = backward_keys<T, D>(problem, nullptr); error != cudaSuccess) return error;
  return problem.grad_q_accum ? backward_convert<T, D>(problem, nullptr) : backward_queries<T, D>(problem, nullptr);
}

}  // namespace

// decode_warps is 0 for the forward that processes tiles; partial_out and partial_softmax are used if splits > 1;
// accum is null for the deterministic backward.
#define EXPORT(name, T, D) \
  extern "C" cudaError_t forward_##name##_##D( \
      const Shape* shape, \
      void* q, \
      void* k, \
      void* v, \
      double softcap, \
      void* out, \
      float* lse, \
      int64_t splits, \
      float* partial_out, \
      float* partial_softmax, \
      int64_t decode_warps) { \
    Forward p{problem(*shape, q, k, v, softcap), shape->of_queries(out), lse}; \
    p.sinks = shape->sinks; \
    p.splits = splits; \
    p.partial_out = partial_out; \
    p.partial_softmax = reinterpret_cast<PartialSoftmax*>(partial_softmax); \
    return decode_warps ? run_decode<T, D>(p, decode_warps) : run_forward<T, D>(p); \
  } \
  extern "C" cudaError_t backward_##name##_##D( \
      const Shape* shape, \
      void* q, \
      void* k, \
      void* v, \
      double softcap, \
      void* out, \
      float* lse, \
      void* grad, \
      float* grad_lse, \
      void* grad_q, \
      void* grad_k, \
      void* grad_v, \
      float* delta, \
      float* accum) { \
    return run_backward<T, D>( \
        {problem(*shape, q, k, v, softcap), \
         shape->of_queries(out), \
         shape->of_queries(grad), \
         shape->of_queries(grad_q), \
         shape->of_keys(grad_k), \
         shape->of_keys(grad_v), \
         lse, \
         grad_lse, \
         delta, \
         accum}); \
  }
EXPORT(float16, float16, 64)
#if EMULATED_CUDA_ARCH < 800
EXPORT(float16, float16, 128)
#else
EXPORT(bfloat16, bfloat16, 128)
#endif
