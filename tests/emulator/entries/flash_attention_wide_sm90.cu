// The forward of sm90/ for heads of 192, with values of 192 or 128, and of 256.
#define INSTANCE_T float16
#define INSTANCE_D 192

#include "flash_attention_problem.h"
#include "sm90/forward.cu"

#define EXPORT(name, T, D) \
  extern "C" cudaError_t forward_##name##_##D( \
      const Shape* shape, void* q, void* k, void* v, double softcap, void* out, float* lse) { \
    static int counter; \
    Forward p{problem(*shape, q, k, v, softcap), shape->of_outputs(out), lse}; \
    p.sinks = shape->sinks; \
    p.tile_counter = &counter; \
    return sm90::forward<T, D>(p, nullptr); \
  }
EXPORT(float16, float16, 192)
EXPORT(float16, float16, 256)
