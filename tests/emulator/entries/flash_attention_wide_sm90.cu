// The forward and the backward of sm90/ for heads of 192, with values of 192 or 128, and of 256.
#define INSTANCE_T float16
#define INSTANCE_D 192

#include "flash_attention_problem.h"
#include "sm90/backward_wide.cu"
#include "sm90/forward.cu"

#define EXPORT(name, T, D) \
  extern "C" cudaError_t forward_##name##_##D( \
      const Shape* shape, void* q, void* k, void* v, double softcap, void* out, float* lse) { \
    static int counter; \
    Forward p{problem(*shape, q, k, v, softcap), shape->of_outputs(out), lse}; \
    p.sinks = shape->sinks; \
    p.tile_counter = &counter; \
    return sm90::forward<T, D>(p, nullptr); \
  } \
  extern "C" int group_splits_##D(const Shape* shape, int multiprocessors) { \
    const Problem p = problem(*shape, nullptr, nullptr, nullptr, 0); \
    return sm90::visit_wide_backward_tile<D>( \
        p, [&](auto tile) { return sm90::group_splits<decltype(tile)>(p, multiprocessors); }); \
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
      float* stats, \
      float* accum, \
      int64_t group_splits, \
      float* split_sums) { \
    const Backward p{ \
        problem(*shape, q, k, v, softcap), \
        shape->of_outputs(out), \
        shape->of_outputs(grad), \
        shape->of_queries(grad_q), \
        shape->of_keys(grad_k), \
        shape->of_values(grad_v), \
        lse, \
        grad_lse, \
        stats, \
        accum, \
        nullptr, \
        int(group_splits), \
        split_sums}; \
    return sm90::backward_wide<T, D>(p, nullptr); \
  }
EXPORT(float16, float16, 192)
EXPORT(float16, float16, 256)
