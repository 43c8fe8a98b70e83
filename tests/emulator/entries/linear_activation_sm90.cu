// Tiles and clusters of every kind that sm90/forward.cu supports, whatever its defaults are.
#define INSTANCE_T float16
#define INSTANCE_GROUP(Instantiate, Activation)

#include "sm90/forward.cu"

using namespace linear_activation_kernel::sm90;
using linear_activation_kernel::Gelu;

#include "product_values.h"

template <typename Values>
struct Swapped : Values {
  static constexpr bool swapped = true;
};

#define ENTRY(name, ...) \
  extern "C" cudaError_t name( \
      const float16* x, const float16* weight, const float16* bias, float16* y, float16* z, int64_t m, int64_t n, int64_t k) { \
    int count = 0; \
    RETURN_IF_FAILED(cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, 0)); \
    const Gpu gpu{count, count / 4, count / 8}; \
    return launch<float16, Gelu, Tile<__VA_ARGS__>>({x, weight, bias, y, z, m, n, k}, gpu, nullptr); \
  }
#define FORWARD(name, ...) ENTRY(name, Values<__VA_ARGS__>)
#define SWAPPED(name, ...) ENTRY(name, Swapped<Values<__VA_ARGS__>>)
FORWARD(one_consumer, 64, 64, 3, 1, false, 1, 1)
FORWARD(beside, 64, 128, 3, 1, false, 1, 2)
FORWARD(four_beside, 128, 64, 2, 2, false, 1, 4)
FORWARD(four_below, 64, 128, 2, 1, false, 4, 1)
FORWARD(below_and_beside, 64, 64, 3, 1, false, 2, 2)
FORWARD(wide, 128, 256, 2, 2, false, 2, 1)
FORWARD(ping_pong, 64, 64, 3, 2, true, 2, 1)
FORWARD(ping_pong_beside, 128, 64, 2, 2, true, 1, 2)
FORWARD(narrow, 128, 160, 2, 2, false, 2, 1)
FORWARD(ping_pong_narrow, 128, 96, 2, 2, true, 1, 2)
FORWARD(halves, 128, 128, 2, 2, false, 1, 1, 2)
FORWARD(quarters, 64, 64, 3, 1, false, 1, 1, 4)
SWAPPED(swapped, 128, 112, 3, 2, false, 2, 1)
SWAPPED(swapped_beside, 192, 88, 2, 3, false, 1, 2)
SWAPPED(swapped_alone, 256, 176, 2, 2, false, 1, 1)
SWAPPED(swapped_one_consumer, 64, 48, 3, 1, false, 2, 1)
SWAPPED(swapped_ping_pong, 128, 144, 2, 2, true, 1, 1)
SWAPPED(swapped_below_and_beside, 128, 64, 2, 2, false, 4, 2)
SWAPPED(swapped_halves, 128, 128, 2, 2, false, 1, 1, 2)
SWAPPED(swapped_quarters, 64, 64, 3, 1, false, 1, 1, 4)
SWAPPED(swapped_uneven_quarters, 64, 96, 3, 1, false, 1, 1, 4)
SWAPPED(swapped_eighths, 64, 64, 3, 1, false, 1, 1, 8)
SWAPPED(swapped_halves_below, 64, 64, 3, 1, false, 2, 1, 2)
SWAPPED(swapped_halves_below_and_beside, 128, 96, 2, 2, false, 2, 2, 2)
FORWARD(quarters_beside, 64, 64, 3, 1, false, 1, 2, 4)
FORWARD(one_strip_halves, 64, 64, 3, 1, false, 1, 1, 2)
FORWARD(halves_below, 128, 128, 2, 2, false, 2, 1, 2)
