// Tiles and clusters of every kind that linear_fp8's sm90/forward.cu supports, whatever its defaults are.
#define INSTANCE_CLASSES NONE
#define CLASSES_OF_NONE

#include "sm90/forward.cu"

using namespace linear_fp8_kernel;
using namespace linear_fp8_kernel::sm90;

#include "product_values.h"

// Scales of groups lie as quantize_fp8 writes them. The bias and the result are float16; with y_scale the bias is bfloat16
// and the result codes. The activation is SiLU or none.
#define FORWARD(name, promotes, ...) FORWARD_OF(e4m3, name, promotes, __VA_ARGS__)
#define FORWARD_OF(Codes, name, promotes, ...) \
  extern "C" cudaError_t name( \
      const uint8_t* x, const float* x_scales, const uint8_t* weight, const float* scales, const uint16_t* bias, const float* y_scale, void* y, int64_t m, int64_t n, int64_t k, int64_t activates) { \
    int count = 0; \
    RETURN_IF_FAILED(cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, 0)); \
    Linear linear{x, weight, {x_scales, 1, promotes ? m : 0}, {}, {}, bias, y_scale, y, m, n, k, activates ? Activation::kSilu : Activation::kNone, !y_scale}; \
    (promotes ? linear.block_scales : linear.row_scales) = {scales, promotes ? (k + 127) / 128 : 1, 1}; \
    return launch<product::Tile<Values<__VA_ARGS__>>, promotes, Codes>(linear, count, nullptr); \
  }
FORWARD(fast_alone, false, 64, 64, 3, 1, false, 1, 1)
FORWARD(fast_ping_pong, false, 128, 64, 3, 2, true, 2, 1)
FORWARD(fast_wide, false, 128, 256, 2, 2, false, 2, 1)
FORWARD(fast_halves, false, 64, 64, 3, 1, false, 1, 1, 2)
FORWARD(promoted_alone, true, 128, 128, 2, 2, false, 1, 1)
FORWARD(promoted_below, true, 128, 128, 3, 2, false, 2, 1)
FORWARD(promoted_broad, true, 128, 192, 2, 2, false, 2, 1)
FORWARD(promoted_high, true, 256, 128, 2, 2, false, 2, 1)
FORWARD(promoted_wide, true, 128, 256, 2, 2, false, 1, 1)
FORWARD(promoted_beside, true, 64, 64, 3, 1, false, 1, 4)
FORWARD(promoted_quarters, true, 64, 64, 2, 1, false, 1, 1, 4)
FORWARD_OF(e5m2_by_e4m3, promoted_e5m2, true, 64, 64, 3, 1, false, 2, 1)
