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
    p.tiles_taken = &taken; \
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
  static int taken;
  Forward p{problem(*shape, q, k, v, 0), shape->of_queries(out), lse};
  p.tiles_taken = &taken;
  View* const views[] = {&p.q, &p.k, &p.v};
  for (int i = 0; i < 3; ++i) {
    views[i]->batch = strides[i][0];
    views[i]->row = static_cast<int>(strides[i][1]);
    views[i]->head = strides[i][2];
  }
  return forward_hopper<__half, 64>(p, nullptr);
}

// What Schedule says of every tile: batch, head, number.
__global__ void put_places(const __grid_constant__ hopper::Schedule schedule, int* places) {
  const auto at = schedule.place_of(blockIdx.x);
  places[3 * blockIdx.x] = at.batch;
  places[3 * blockIdx.x + 1] = at.head;
  places[3 * blockIdx.x + 2] = at.tile;
}
extern "C" cudaError_t hopper_places(
    int64_t tiles_of_head,
    int64_t late,
    int64_t batch,
    int64_t heads,
    int64_t group,
    int64_t groups_of_section,
    int64_t backwards,
    int* places) {
  hopper::Schedule schedule(tiles_of_head, late, batch, heads, group, 100, 100 * groups_of_section + 99);
  schedule.backwards = backwards;
  put_places<<<schedule.tiles, 1>>>(schedule, places);
  return cudaGetLastError();
}
