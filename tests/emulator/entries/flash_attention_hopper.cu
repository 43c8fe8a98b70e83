#include "flash_attention_problem.h"
#include "hopper_backward.cuh"
#include "hopper_forward.cuh"

#define EXPORT_HOPPER(name, T, D) \
  extern "C" int hopper_rows_##D() { \
    return visit_hopper_backward<D>([](auto tile) { return tile.kRows; }); \
  } \
  extern "C" cudaError_t hopper_forward_##name##_##D( \
      const Shape* shape, void* q, void* k, void* v, double softcap, void* out, float* lse) { \
    static int taken; \
    Forward p{problem(*shape, q, k, v, softcap), shape->of_queries(out), lse}; \
    if (!p.mask.is_even()) p.tiles_taken = &taken; \
    return forward_hopper<T, D>(p, nullptr); \
  } \
  extern "C" cudaError_t hopper_backward_##name##_##D( \
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
      float* numbers, \
      float* sums) { \
    return backward_hopper<T, D>( \
        {problem(*shape, q, k, v, softcap), \
         shape->of_queries(out), \
         shape->of_queries(grad), \
         shape->of_queries(grad_q), \
         shape->of_keys(grad_k), \
         shape->of_keys(grad_v), \
         lse, \
         grad_lse, \
         numbers, \
         sums}, \
        nullptr); \
  }
EXPORT_HOPPER(float16, __half, 64)
EXPORT_HOPPER(bfloat16, __nv_bfloat16, 128)

// The forward for float16 and heads of 64, of tensors with strides of their own: batch, row, head.
extern "C" cudaError_t hopper_forward_strided(
    const Shape* shape, void* q, void* k, void* v, const int64_t (*strides)[3], void* out, float* lse) {
  Forward p{problem(*shape, q, k, v, 0), shape->of_queries(out), lse};
  View* const views[] = {&p.q, &p.k, &p.v};
  for (int i = 0; i < 3; ++i) {
    views[i]->batch = strides[i][0];
    views[i]->row = static_cast<int>(strides[i][1]);
    views[i]->head = strides[i][2];
  }
  return forward_hopper<__half, 64>(p, nullptr);
}
