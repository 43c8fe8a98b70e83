// The kernels of sm80/, whose files instantiate themselves for INSTANCE_T and INSTANCE_D, and what tests call of them.

#pragma once

// As the build says of code for 9.0a.
#define HAS_SM_90A (EMULATED_CUDA_ARCH == 900)

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
  if (error != cudaSuccess || problem.splits == 1) return error;
  return visit_values<D>(
      problem, [&](auto width) { return forward_combine<T, decltype(width)::value>(problem, nullptr); });
}

template <typename T, int D>
cudaError_t run_decode(const Forward& problem, int warps) {
  constexpr int kWidth = D == 96 ? 128 : D;
  const auto tiles = decode_tile_count(problem);
  // Blocks that stay take a tile or two.
  const int blocks = static_cast<int>(attention::sm80::decode_blocks_stay(kWidth) ? ceil_div(tiles, 2) : tiles);
  const cudaError_t error = forward_decode<T, kWidth>(problem, {warps, problem.splits, blocks}, nullptr);
  return error != cudaSuccess || problem.splits == 1 ? error : forward_combine<T, kWidth>(problem, nullptr);
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
    Forward p{problem(*shape, q, k, v, softcap), shape->of_outputs(out), lse}; \
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
         shape->of_outputs(out), \
         shape->of_outputs(grad), \
         shape->of_queries(grad_q), \
         shape->of_keys(grad_k), \
         shape->of_values(grad_v), \
         lse, \
         grad_lse, \
         delta, \
         accum}); \
  }
