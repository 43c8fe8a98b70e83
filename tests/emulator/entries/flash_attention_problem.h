// A problem of flash_attention, from the tests' arguments.

#pragma once

#include "kernel.h"

using namespace flash_attention_kernel;

namespace {

// The view of a contiguous tensor (batch, row, head, dimension).
View view(void* data, int64_t rows, int64_t heads, int64_t dim) {
  return {data, rows * heads * dim, dim, static_cast<int>(heads * dim), static_cast<int>(dim)};
}

struct Shape {
  int64_t batch, heads, kv_heads, queries, keys, dim, value_dim, left, right;
  double scale;
  const float* sinks;

  View of_queries(void* data) const { return view(data, queries, heads, dim); }
  View of_keys(void* data) const { return view(data, keys, kv_heads, dim); }
  View of_values(void* data) const { return view(data, keys, kv_heads, value_dim); }
  View of_outputs(void* data) const { return view(data, queries, heads, value_dim); }
};

Problem problem(const Shape& shape, void* q, void* k, void* v, double softcap) {
  const auto limit = [](int64_t side) { return side < 0 ? 1 << 29 : static_cast<int>(side); };
  Problem p;
  p.q = shape.of_queries(q);
  p.k = shape.of_keys(k);
  p.v = shape.of_values(v);
  p.batch = shape.batch;
  p.heads = shape.heads;
  p.kv_heads = shape.kv_heads;
  p.dim = shape.dim;
  p.mask = {static_cast<int>(shape.queries), static_cast<int>(shape.keys), limit(shape.left), limit(shape.right)};
  p.score = Score(shape.scale, softcap);
  return p;
}

}  // namespace
