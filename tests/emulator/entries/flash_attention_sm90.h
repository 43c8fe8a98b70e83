// What the entries of sm90/ share: functions by type and head dimension. An entry includes a backward and
// says by run_backward<T, D> how it is called.

#pragma once

#include "flash_attention_problem.h"
#include "sm90/forward.cu"

#define EXPORT_FORWARD_SM90(name, T, D) \
  extern "C" cudaError_t forward_##name##_##D( \
      const Shape* shape, void* q, void* k, void* v, double softcap, void* out, float* lse) { \
    static int counter; \
    Forward p{problem(*shape, q, k, v, softcap), shape->of_outputs(out), lse}; \
    p.sinks = shape->sinks; \
    p.tile_counter = &counter; \
    return sm90::forward<T, D>(p, nullptr); \
  }

#define EXPORT_BACKWARD_SM90(name, T, D) \
  extern "C" int backward_rows_##D() { \
    return sm90::visit_backward_tile<D, BackwardKind::kOrdinary>(Problem(), [](auto tile) { return tile.kRows; }); \
  } \
  extern "C" int group_splits_##D(const Shape* shape, int multiprocessors) { \
    const Problem p = problem(*shape, nullptr, nullptr, nullptr, 0); \
    return sm90::visit_backward_tile<D, BackwardKind::kOrdinary>(p, [&](auto tile) { \
      return sm90::group_splits<decltype(tile)>(p, multiprocessors); \
    }); \
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
      int* progress, \
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
        progress, \
        int(group_splits), \
        split_sums}; \
    return run_backward<T, D>(p); \
  }

#define EXPORT_SM90(name, T, D) \
  EXPORT_FORWARD_SM90(name, T, D) \
  EXPORT_BACKWARD_SM90(name, T, D)
