// The kernel of sm90/, whose file instantiates itself for this head dimension.
#define INSTANCE_D 64

#include "sm90/forward.cu"

using namespace flash_attention_fp8_kernel;

namespace {

// The view of a contiguous tensor (batch, row, head, dimension), and its scales (batch, rows of scales, head).
View view(const void* data, int64_t rows, int64_t heads, int64_t dim) {
  return {const_cast<void*>(data), rows * heads * dim, dim, static_cast<int>(heads * dim)};
}
Scales scales(const float* data, int64_t rows, int64_t heads) {
  return {data, rows * heads, heads, 1};
}

}  // namespace

#define EXPORT(D) \
  extern "C" cudaError_t forward_##D( \
      const uint8_t* q, \
      const float* q_scales, \
      const uint8_t* k, \
      const float* k_scales, \
      const uint8_t* v, \
      const float* v_scales, \
      void* out, \
      int64_t batch, \
      int64_t heads, \
      int64_t kv_heads, \
      int64_t queries, \
      int64_t keys, \
      int64_t dim, \
      int64_t causal) { \
    static int counter; \
    const int64_t blocks = ceil_div(keys, kScaleKeys); \
    const int all = static_cast<int>(queries + keys); \
    const Problem p{ \
        view(q, queries, heads, dim), \
        view(k, keys, kv_heads, dim), \
        view(v, keys, kv_heads, dim), \
        scales(q_scales, queries, heads), \
        scales(k_scales, blocks, kv_heads), \
        scales(v_scales, blocks, kv_heads), \
        view(out, queries, heads, dim), \
        static_cast<int>(batch), \
        static_cast<int>(heads), \
        static_cast<int>(kv_heads), \
        static_cast<int>(dim), \
        {static_cast<int>(queries), static_cast<int>(keys), all, causal ? 0 : all}, \
        Score(0.125, 0), \
        &counter}; \
    return sm90::forward<D>(p, nullptr); \
  }
EXPORT(64)
EXPORT(128)
