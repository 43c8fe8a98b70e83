// The gradient of sm90/ where sequences differ in length, in float16. A file of it instantiates itself for this. With
// WIDE, a library of heads of more than 128 dimensions.
#define INSTANCE_T float16
#define INSTANCE_D 64
#define INSTANCE_ORDERED true

#include "sm90/backward.cu"

using namespace flash_attention_varlen_kernel;

struct Shape {
  int64_t queries, keys, sequences, heads, kv_heads, dim, value_dim, left, right, group_splits;

  View view(void* data, int64_t heads, int64_t dim) const { return {data, 0, dim, int(heads * dim), int(dim)}; }
  Problem problem(const int* query_starts, const int* key_starts) const {
    Problem p{};
    p.queries = {query_starts, int(sequences), int(queries)};
    p.keys = {key_starts, int(sequences), int(keys)};
    p.heads = heads;
    p.kv_heads = kv_heads;
    p.dim = dim;
    p.v.dims = value_dim;
    p.left = left;
    p.right = right;
    p.score = Score(1 / 8.0, 0);
    return p;
  }
};

// Calls visitor(width, ordered) for the instantiation of a shape.
template <typename Visitor>
auto visit_instantiation(const Shape& shape, int64_t ordered, const Visitor& visitor) {
  const auto with_order = [&](auto width) {
    return ordered ? visitor(width, std::true_type()) : visitor(width, std::false_type());
  };
#if WIDE
  if (shape.dim > 192) return with_order(std::integral_constant<int, 256>());
  return with_order(std::integral_constant<int, 192>());
#else
  if (shape.dim == 96) return visitor(std::integral_constant<int, 96>(), std::true_type());
  if (shape.dim == 128) return visitor(std::integral_constant<int, 128>(), std::true_type());
  return with_order(std::integral_constant<int, 64>());
#endif
}

// The elements of scratch: rows of whole tiles of queries, and of keys; tiles of queries; and Backward::tile_lists.
extern "C" int scratch_sizes(const Shape* shape, int64_t ordered, int64_t* sizes) {
  const Problem p = shape->problem(nullptr, nullptr);
  return visit_instantiation(*shape, ordered, [&](auto width, auto in_order) {
    return sm90::visit_backward_tile<width(), in_order()>(p, [&](auto tile) {
      using Tile = decltype(tile);
      sizes[0] = sm90::padded_rows<Tile>(p);
      sizes[1] = sm90::padded_keys<Tile>(p);
      sizes[2] = sizes[0] / Tile::kRows;
      sizes[3] = sm90::tile_list_ints<Tile>(p);
      return 0;
    });
  });
}

extern "C" cudaError_t backward(
    const Shape* shape,
    int64_t ordered,
    const int* query_starts,
    const int* key_starts,
    void* q,
    void* k,
    void* v,
    void* out,
    float* lse,
    void* grad,
    void* grad_q,
    void* grad_k,
    void* grad_v,
    float* stats,
    float* accum,
    float* sums,
    int* progress,
    int* tile_lists) {
  Backward p{};
  static_cast<Problem&>(p) = shape->problem(query_starts, key_starts);
  p.q = shape->view(q, p.heads, p.dim);
  p.k = shape->view(k, p.kv_heads, p.dim);
  p.v = shape->view(v, p.kv_heads, p.v.dims);
  p.out = shape->view(out, p.heads, p.v.dims);
  p.grad = shape->view(grad, p.heads, p.v.dims);
  p.grad_q = shape->view(grad_q, p.heads, p.dim);
  p.grad_k = shape->view(grad_k, p.kv_heads, p.dim);
  p.grad_v = shape->view(grad_v, p.kv_heads, p.v.dims);
  p.lse = lse;
  p.delta = stats;
  p.grad_q_accum = accum;
  p.group_splits = shape->group_splits;
  p.split_sums = sums;
  p.progress = progress;
  p.tile_lists = tile_lists;
  return visit_instantiation(*shape, ordered, [&](auto width, auto in_order) {
    return sm90::backward<float16, width(), in_order()>(p, nullptr);
  });
}
