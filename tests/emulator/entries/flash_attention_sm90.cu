// The kernels of sm90/, whose files instantiate themselves for this type and head dimension.
#define INSTANCE_T float16
#define INSTANCE_D 64
#define INSTANCE_KIND kOrdinary

#include "flash_attention_sm90.h"
#include "sm80/combine.cu"
#include "sm90/backward.cu"
#include "sm90/packed.cu"

template <typename T, int D>
cudaError_t run_backward(const Backward& p) {
  if (!p.grad_q_accum) return sm90::backward<T, D, BackwardKind::kSingle>(p, nullptr);
  return p.progress ? sm90::backward<T, D, BackwardKind::kOrdered>(p, nullptr)
                    : sm90::backward<T, D, BackwardKind::kOrdinary>(p, nullptr);
}

#define EXPORT_PACKED(name, T, D) \
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
  }

EXPORT_SM90(float16, float16, 64)
EXPORT_SM90(float16, float16, 96)
EXPORT_SM90(bfloat16, bfloat16, 128)
EXPORT_PACKED(float16, float16, 64)
EXPORT_PACKED(bfloat16, bfloat16, 128)

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
