#include "backward_keys.cuh"
#include "backward_queries.cuh"
#include "decode.cuh"
#include "flash_attention_problem.h"
#include "forward.cuh"

namespace {

template <typename T, int D>
cudaError_t run_forward(const Forward& problem) {
  const cudaError_t error = forward<T, D>(problem, nullptr);
  return error != cudaSuccess || problem.splits == 1 ? error : combine<T, D>(problem, nullptr);
}

template <typename T, int D>
cudaError_t run_decode(const Forward& problem, int warps) {
  const cudaError_t error = forward_decode<T, D>(problem, warps, nullptr);
  return error != cudaSuccess || problem.splits == 1 ? error : combine<T, D>(problem, nullptr);
}

template <typename T, int D>
cudaError_t run_backward(const Backward& problem) {
  if (const cudaError_t error = backward_delta<T>(problem, nullptr); error != cudaSuccess) return error;
  if (const cudaError_t error = backward_keys<T, D>(problem, nullptr); error != cudaSuccess) return error;
  return problem.grad_q_sums ? backward_finish_queries<T, D>(problem, nullptr)
                             : backward_queries<T, D>(problem, nullptr);
}

}  // namespace

// Warps to decode with, or none; `partial` is there if the keys are split; `sums` if grad_q may be added up by atomics.
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
      float* partial_lse, \
      int64_t decode_warps) { \
    Forward p{problem(*shape, q, k, v, softcap), shape->of_queries(out), lse}; \
    p.splits = splits; \
    p.partial_out = partial_out; \
    p.partial_lse = partial_lse; \
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
      float* sums) { \
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
         sums}); \
  }
EXPORT(float16, __half, 64)
EXPORT(bfloat16, __nv_bfloat16, 128)
