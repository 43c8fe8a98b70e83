// The kernels of sm90/, whose files instantiate themselves for this type and head dimension.
#define INSTANCE_T float16
#define INSTANCE_D 64
#define INSTANCE_KIND kOrdinary

#include "flash_attention_problem.h"
#include "sm80/combine.cu"
#include "sm90/backward.cu"
#include "sm90/forward.cu"

#define EXPORT(name, T, D) \
  extern "C" int backward_rows_##D() { \
    return sm90::visit_backward_tile<D, BackwardKind::kOrdinary>({}, [](auto tile) { return tile.kRows; }); \
  } \
  extern "C" int group_splits_##D(const Shape* shape, int multiprocessors) { \
    const Problem p = problem(*shape, nullptr, nullptr, nullptr, 0); \
    return sm90::visit_backward_tile<D, BackwardKind::kOrdinary>( \
        p, [&](auto tile) { return sm90::group_splits<decltype(tile)>(p, multiprocessors); }); \
  } \
  extern "C" cudaError_t forward_##name##_##D( \
      const Shape* shape, void* q, void* k, void* v, double softcap, void* out, float* lse) { \
    static int counter; \
    Forward p{problem(*shape, q, k, v, softcap), shape->of_queries(out), lse}; \
    p.sinks = shape->sinks; \
    p.tile_counter = &counter; \
    return sm90::forward<T, D>(p, nullptr); \
  } \
  extern "C" cudaError_t forward_packed_##name##_##D( \
      const Shape* shape, \
      void* q, \
      void* k, \
      void* v, \
      double softcap, \
      void* out, \
      float* lse, \
      int64_t packed_heads, \
      int64_t splits, \
      float* partial_out, \
      float* partial_softmax) { \
    static int counter; \
    Forward p{problem(*shape, q, k, v, softcap), shape->of_queries(out), lse}; \
    p.sinks = shape->sinks; \
    p.tile_counter = &counter; \
    p.packed_heads = packed_heads; \
    p.splits = splits; \
    p.partial_out = partial_out; \
    p.partial_softmax = reinterpret_cast<PartialSoftmax*>(partial_softmax); \
    const cudaError_t error = sm90::forward_packed<T, D>(p, nullptr); \
    return error != cudaSuccess || splits == 1 ? error : sm80::forward_combine<T, D>(p, nullptr); \
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
        shape->of_queries(out), \
        shape->of_queries(grad), \
        shape->of_queries(grad_q), \
        shape->of_keys(grad_k), \
        shape->of_keys(grad_v), \
        lse, \
        grad_lse, \
        stats, \
        accum, \
        progress, \
        int(group_splits), \
        split_sums}; \
    if (!accum) return sm90::backward<T, D, BackwardKind::kSingle>(p, nullptr); \
    return progress ? sm90::backward<T, D, BackwardKind::kOrdered>(p, nullptr) \
                    : sm90::backward<T, D, BackwardKind::kOrdinary>(p, nullptr); \
  }
EXPORT(float16, float16, 64)
EXPORT(bfloat16, bfloat16, 128)

// The forward for float16 and heads of 64; `strides` are those of q, k and v: batch, row, head.
extern "C" cudaError_t forward_strided(
    const Shape* shape, void* q, void* k, void* v, const int64_t (*strides)[3], void* out, float* lse) {
  static int counter;
  Forward p{problem(*shape, q, k, v, 0), shape->of_queries(out), lse};
  p.tile_counter = &counter;
  View* const views[] = {&p.q, &p.k, &p.v};
  for (int i = 0; i < 3; ++i) {
    views[i]->batch = strides[i][0];
    views[i]->row = static_cast<int>(strides[i][1]);
    views[i]->head = strides[i][2];
  }
  return sm90::forward<float16, 64>(p, nullptr);
}

// TileScheduler's coordinates of every tile: batch, head, tile.
__global__ void write_coordinates(const __grid_constant__ sm90::TileScheduler scheduler, int* out) {
  const auto coordinates = scheduler.coordinates(blockIdx.x);
  out[3 * blockIdx.x] = coordinates.batch;
  out[3 * blockIdx.x + 1] = coordinates.head;
  out[3 * blockIdx.x + 2] = coordinates.tile;
}
extern "C" cudaError_t scheduled_tiles(
    int64_t head_tiles,
    int64_t late,
    int64_t batch,
    int64_t heads,
    int64_t group,
    int64_t section_groups,
    int64_t descending,
    int* out) {
  sm90::TileScheduler scheduler(head_tiles, late, batch, heads, group, 100, 100 * section_groups + 99);
  scheduler.descending = descending;
  write_coordinates<<<scheduler.tiles, 1>>>(scheduler, out);
  return cudaGetLastError();
}
