// Attention on the CPU, and its gradient.
//
// Blocks fit the caches. The forward iterates over blocks of keys for a block of queries, with an online softmax; the
// backward does the same for the gradient of queries, and iterates over queries for those of keys and values. A block
// is one task, whose sums have a fixed order: results are the same to the bit for any number of threads.

#pragma once

#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <type_traits>
#include <utility>
#include <vector>

#include "exponential.h"
#include "mask.h"
#include "pairwise.h"

namespace cpu_attention {

using attention::Mask;
using torch::stable::Tensor;

constexpr int kBlock = 64;  // Queries, or keys, of a block.
constexpr int kDims = 256;  // Of a head, at most.

// The type of scores and accumulators. The relative error of exp(score) is the absolute error of the score, so that
// float32 inputs need float64.
template <typename T>
using sum_t = std::conditional_t<sizeof(T) == 2, float, double>;

// Tensors of heads in any layout: (sequence, row, head, dimension) where all sequences have the same length; (row,
// head, dimension), with each sequence's first row, where they follow each other.
template <typename T>
struct View {
  T* data;
  int64_t sequence = 0, row, head, dim;  // Strides.
  const int64_t* first_rows = nullptr;

  explicit View(const Tensor& tensor)
      : data(static_cast<T*>(const_cast<void*>(tensor.const_data_ptr()))),
        sequence(tensor.stride(0)),
        row(tensor.stride(1)),
        head(tensor.stride(2)),
        dim(tensor.stride(3)) {}
  View(const Tensor& tensor, const std::vector<int64_t>& first_rows)
      : data(static_cast<T*>(const_cast<void*>(tensor.const_data_ptr()))),
        row(tensor.stride(0)),
        head(tensor.stride(1)),
        dim(tensor.stride(2)),
        first_rows(first_rows.data()) {}

  T& at(int64_t s, int64_t r, int64_t h, int64_t d) const {
    return data[s * sequence + (r + (first_rows ? first_rows[s] : 0)) * row + h * head + d * dim];
  }
};

// Tensors of heads in pages, (page, row, head, dimension), with the numbers of each sequence's pages.
template <typename T>
struct PagedView {
  T* data;
  int64_t page, row, head, dim;  // Strides.
  int64_t page_size;
  const int32_t* numbers;
  int64_t columns;

  PagedView(const Tensor& pages, const Tensor& page_table)
      : data(static_cast<T*>(const_cast<void*>(pages.const_data_ptr()))),
        page(pages.stride(0)),
        row(pages.stride(1)),
        head(pages.stride(2)),
        dim(pages.stride(3)),
        page_size(pages.size(1)),
        numbers(static_cast<const int32_t*>(page_table.const_data_ptr())),
        columns(page_table.size(1)) {}

  T& at(int64_t s, int64_t r, int64_t h, int64_t d) const {
    return data[numbers[s * columns + r / page_size] * page + r % page_size * row + h * head + d * dim];
  }
};

// Rows of a head of so many dimensions, converted to Sum: stored by rows or, transposed, by dimensions.
template <typename Sum>
struct Block {
  int dims;
  std::vector<Sum> values = std::vector<Sum>(kBlock * dims);

  Sum* row(int i) { return values.data() + i * dims; }
  Sum* dimension(int i) { return values.data() + i * kBlock; }
};

template <typename Sum, typename View>
void load_rows(Block<Sum>& block, const View& view, int64_t sequence, int64_t first, int64_t head, int rows) {
  for (int i = 0; i < rows; ++i) {
    for (int d = 0; d < block.dims; ++d) block.row(i)[d] = static_cast<Sum>(view.at(sequence, first + i, head, d));
  }
}

template <typename Sum, typename View>
void load_dimensions(Block<Sum>& block, const View& view, int64_t sequence, int64_t first, int64_t head, int rows) {
  std::fill(block.values.begin(), block.values.end(), Sum(0));
  for (int i = 0; i < rows; ++i) {
    for (int d = 0; d < block.dims; ++d) {
      block.dimension(d)[i] = static_cast<Sum>(view.at(sequence, first + i, head, d));
    }
  }
}

// products[j] = the product of a row and row j of a block that is stored by dimensions.
template <typename Sum>
void multiply(Sum* products, const Sum* row, Block<Sum>& block) {
  std::fill(products, products + kBlock, Sum(0));
  for (int d = 0; d < block.dims; ++d) {
    const Sum factor = row[d], *column = block.dimension(d);
    for (int j = 0; j < kBlock; ++j) products[j] += factor * column[j];
  }
}

template <typename Sum>
void add_scaled(Sum* target, Sum factor, const Sum* row, int dims) {
  for (int d = 0; d < dims; ++d) target[d] += factor * row[d];
}

// The keys [begin, end) of a block.
struct Range {
  int begin, end;
};

// The online softmax of a row.
template <typename Sum>
struct Softmax {
  Sum max = -std::numeric_limits<Sum>::infinity();  // The row max so far,
  Sum sum = 0;                                      // and the row sum relative to it.

  // Turns scores into weights relative to the row max, and returns what earlier weights are to be multiplied by.
  Sum update(Sum* scores, const Range& range) {
    const Sum old_max = max;
    for (int j = range.begin; j < range.end; ++j) max = std::max(max, scores[j]);
    const Sum rescale = weight(old_max);
    sum *= rescale;
    for (int j = range.begin; j < range.end; ++j) sum += scores[j] = weight(scores[j]);
    return rescale;
  }
  // Lets a sink join the row sum, and returns what weights are to be multiplied by.
  Sum join(Sum sink) { return update(&sink, {0, 1}); }
  Sum weight(Sum score) const {
    // While every score is -inf, any finite number keeps the difference from becoming NaN.
    return exponential(score - (max == -std::numeric_limits<Sum>::infinity() ? 0 : max));
  }
};

// The problem, as every task needs it. Keys is the view of keys and values.
template <typename T, typename Keys = View<const T>>
struct Attention {
  using Sum = sum_t<T>;
  View<const T> q;
  Keys k, v;
  std::vector<Mask> masks;          // Of each sequence.
  std::vector<int64_t> first_sums;  // Where the LSE of each sequence's first query is, in the first head;
  int64_t sums_of_head;             // how far heads are apart.
  Sum scale, softcap;               // 0: none
  int64_t heads, kv_heads;
  int dims, value_dims;                    // Of queries and keys; of values and outputs.
  const accumulate_t<T>* sinks = nullptr;  // Of each head, which join its rows' softmax; nullptr: none

  int64_t kv_head(int64_t head) const { return head / (heads / kv_heads); }
  int64_t sums_row(int64_t sequence, int64_t head, int64_t query) const {
    return first_sums[sequence] + head * sums_of_head + query;
  }

  // Turns products into scores, and returns the keys that the mask allows.
  Range score(const Mask& mask, Sum* products, int query, int first_key) const {
    const int begin = std::clamp(mask.begin(query) - first_key, 0, kBlock);
    const int end = std::clamp(mask.end(query) - first_key, begin, kBlock);
    for (int j = begin; j < end; ++j) {
      products[j] *= scale;
      if (softcap != 0) products[j] = softcap * std::tanh(products[j] / softcap);
    }
    return {begin, end};
  }

  // The gradient of a product of a query and a key.
  Sum product_gradient(Sum score, Sum weight, Sum grad_weight, Sum delta) const {
    const Sum gradient = weight * (grad_weight - delta) * scale;
    return softcap == 0 ? gradient : gradient * (1 - score / softcap * (score / softcap));
  }

  // Calls f(sequence, head, first, rows) for the blocks of all sequences, of Mask::queries or Mask::keys rows.
  template <typename F>
  void for_each_block(int Mask::* length, int64_t count_of_heads, const F& f) const {
    std::vector<std::pair<int64_t, int>> blocks;  // Sequences and first rows.
    for (size_t i = 0; i < masks.size(); ++i) {
      for (int first = 0; first < masks[i].*length; first += kBlock) blocks.emplace_back(i, first);
    }
    const int64_t tasks = int64_t(blocks.size()) * count_of_heads;
    torch::stable::parallel_for(0, tasks, 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const auto [sequence, first] = blocks[i / count_of_heads];
        f(sequence, i % count_of_heads, first, std::min(kBlock, masks[sequence].*length - first));
      }
    });
  }
};

template <typename T, typename Keys>
void forward(const Attention<T, Keys>& a, const View<T>& out, accumulate_t<T>* lse) {
  using Sum = sum_t<T>;
  a.for_each_block(&Mask::queries, a.heads, [&](int64_t sequence, int64_t head, int first, int rows) {
    const Mask& mask = a.masks[sequence];
    Block<Sum> q{a.dims}, keys{a.dims}, values{a.value_dims}, sums{a.value_dims};
    std::vector<Softmax<Sum>> softmax(rows);
    load_rows(q, a.q, sequence, first, head, rows);
    const int end = mask.end(first + rows - 1);
    for (int key = mask.begin(first) / kBlock * kBlock; key < end; key += kBlock) {
      const int count = std::min(kBlock, mask.keys - key);
      load_dimensions(keys, a.k, sequence, key, a.kv_head(head), count);
      load_rows(values, a.v, sequence, key, a.kv_head(head), count);
      for (int i = 0; i < rows; ++i) {
        Sum scores[kBlock];
        multiply(scores, q.row(i), keys);
        const Range range = a.score(mask, scores, first + i, key);
        const Sum rescale = softmax[i].update(scores, range);
        for (int d = 0; d < a.value_dims; ++d) sums.row(i)[d] *= rescale;
        for (int j = range.begin; j < range.end; ++j) add_scaled(sums.row(i), scores[j], values.row(j), a.value_dims);
      }
    }
    for (int i = 0; i < rows; ++i) {
      const Sum rescale = a.sinks ? softmax[i].join(a.sinks[head]) : 1;
      // A query that attends to no key gets zeros; scores that are all -inf give 0 / 0, as softmax does.
      const bool empty = softmax[i].sum == 0 && mask.begin(first + i) == mask.end(first + i);
      const Sum factor = empty ? 0 : rescale / softmax[i].sum;
      lse[a.sums_row(sequence, head, first + i)] =
          empty ? -std::numeric_limits<Sum>::infinity() : softmax[i].max + std::log(softmax[i].sum);
      for (int d = 0; d < a.value_dims; ++d) {
        out.at(sequence, first + i, head, d) = static_cast<T>(sums.row(i)[d] * factor);
      }
    }
  });
}

// A row's softmax and its delta, the sum of weight * (grad * value) less the gradient of lse. The forward's lse and out
// would give both, but rounded: where one key has nearly all of the weight, dS is a small difference between them.
template <typename Sum>
struct Row {
  Softmax<Sum> softmax;
  Sum delta = 0;

  Sum weight(Sum score) const { return softmax.weight(score) / softmax.sum; }
};

// What the backward reads in addition. backward_queries fills `rows`, backward_keys reads them.
template <typename T>
struct BackwardInputs {
  View<const T> grad;
  const accumulate_t<T>* grad_lse;
  Row<sum_t<T>>* rows;
};

// Calls f(query, scores, grad_weights, range, keys) for each query of a block with each block of keys: the scores of q
// and the keys, the products of grad and the values, the keys that the mask allows, and the keys by rows.
template <typename T, typename F>
void for_each_step(
    const Attention<T>& a,
    const BackwardInputs<T>& inputs,
    int64_t sequence,
    int64_t head,
    int first,
    int rows,
    const F& f) {
  using Sum = sum_t<T>;
  const Mask& mask = a.masks[sequence];
  Block<Sum> q{a.dims}, grad{a.value_dims}, keys{a.dims}, key_rows{a.dims}, values{a.value_dims};
  load_rows(q, a.q, sequence, first, head, rows);
  load_rows(grad, inputs.grad, sequence, first, head, rows);
  const int end = mask.end(first + rows - 1);
  for (int key = mask.begin(first) / kBlock * kBlock; key < end; key += kBlock) {
    const int count = std::min(kBlock, mask.keys - key);
    load_dimensions(keys, a.k, sequence, key, a.kv_head(head), count);
    load_rows(key_rows, a.k, sequence, key, a.kv_head(head), count);
    load_dimensions(values, a.v, sequence, key, a.kv_head(head), count);
    for (int i = 0; i < rows; ++i) {
      Sum scores[kBlock], grad_weights[kBlock];
      multiply(scores, q.row(i), keys);
      multiply(grad_weights, grad.row(i), values);
      f(i, scores, grad_weights, a.score(mask, scores, first + i, key), key_rows);
    }
  }
}

template <typename T>
void backward_queries(const Attention<T>& a, const BackwardInputs<T>& inputs, const View<T>& grad_q) {
  using Sum = sum_t<T>;
  a.for_each_block(&Mask::queries, a.heads, [&](int64_t sequence, int64_t head, int first, int rows) {
    const int64_t sums_row = a.sums_row(sequence, head, first);
    Row<Sum>* const row = inputs.rows + sums_row;
    for_each_step(
        a,
        inputs,
        sequence,
        head,
        first,
        rows,
        [&](int i, Sum* scores, const Sum* grad_weights, Range range, Block<Sum>&) {
          row[i].delta *= row[i].softmax.update(scores, range);
          for (int j = range.begin; j < range.end; ++j) row[i].delta += scores[j] * grad_weights[j];
        });
    for (int i = 0; i < rows; ++i) {
      if (a.sinks) row[i].delta *= row[i].softmax.join(a.sinks[head]);
      row[i].delta = row[i].delta / row[i].softmax.sum - (inputs.grad_lse ? inputs.grad_lse[sums_row + i] : 0);
    }
    Block<Sum> sums{a.dims};
    for_each_step(
        a,
        inputs,
        sequence,
        head,
        first,
        rows,
        [&](int i, const Sum* scores, const Sum* grad_weights, Range range, Block<Sum>& keys) {
          for (int j = range.begin; j < range.end; ++j) {
            const Sum weight = row[i].weight(scores[j]);
            add_scaled(
                sums.row(i), a.product_gradient(scores[j], weight, grad_weights[j], row[i].delta), keys.row(j), a.dims);
          }
        });
    for (int i = 0; i < rows; ++i) {
      for (int d = 0; d < a.dims; ++d) grad_q.at(sequence, first + i, head, d) = static_cast<T>(sums.row(i)[d]);
    }
  });
}

template <typename T>
void backward_keys(
    const Attention<T>& a, const BackwardInputs<T>& inputs, const View<T>& grad_k, const View<T>& grad_v) {
  using Sum = sum_t<T>;
  a.for_each_block(&Mask::keys, a.kv_heads, [&](int64_t sequence, int64_t kv_head, int first, int count) {
    const Mask& mask = a.masks[sequence];
    Block<Sum> keys{a.dims}, values{a.value_dims}, key_sums{a.dims}, value_sums{a.value_dims};
    load_dimensions(keys, a.k, sequence, first, kv_head, count);
    load_dimensions(values, a.v, sequence, first, kv_head, count);
    const int64_t group = a.heads / a.kv_heads;
    for (int64_t head = kv_head * group; head < (kv_head + 1) * group; ++head) {
      for (int query = mask.first_query(first); query < mask.end_query(first + count - 1); ++query) {
        Sum q[kDims], grad[kDims], scores[kBlock], grad_weights[kBlock];
        for (int d = 0; d < a.dims; ++d) q[d] = static_cast<Sum>(a.q.at(sequence, query, head, d));
        for (int d = 0; d < a.value_dims; ++d) grad[d] = static_cast<Sum>(inputs.grad.at(sequence, query, head, d));
        multiply(scores, q, keys);
        multiply(grad_weights, grad, values);
        const Range range = a.score(mask, scores, query, first);
        const Row<Sum>& row = inputs.rows[a.sums_row(sequence, head, query)];
        for (int j = range.begin; j < range.end; ++j) {
          const Sum weight = row.weight(scores[j]);
          add_scaled(value_sums.row(j), weight, grad, a.value_dims);
          add_scaled(key_sums.row(j), a.product_gradient(scores[j], weight, grad_weights[j], row.delta), q, a.dims);
        }
      }
    }
    for (int j = 0; j < count; ++j) {
      for (int d = 0; d < a.dims; ++d) {
        grad_k.at(sequence, first + j, kv_head, d) = static_cast<T>(key_sums.row(j)[d]);
      }
      for (int d = 0; d < a.value_dims; ++d) {
        grad_v.at(sequence, first + j, kv_head, d) = static_cast<T>(value_sums.row(j)[d]);
      }
    }
  });
}

// A sink's weight is exp(sink - lse), and no value belongs to it. backward_queries has filled `rows`.
template <typename T>
void backward_sinks(const Attention<T>& a, const Row<sum_t<T>>* rows, accumulate_t<T>* grad_sinks) {
  torch::stable::parallel_for(0, a.heads, 1, [&](int64_t begin, int64_t end) {
    for (int64_t head = begin; head < end; ++head) {
      double sum = 0;
      const bool has_weight = a.sinks[head] != -std::numeric_limits<accumulate_t<T>>::infinity();
      for (size_t sequence = 0; sequence < a.masks.size(); ++sequence) {
        const Mask& mask = a.masks[sequence];
        for (int query = 0; query < mask.queries; ++query) {
          // A sink of -inf has no weight in a row without a key either, but a row that is NaN makes its gradient NaN.
          if (!has_weight && mask.begin(query) == mask.end(query)) continue;
          const auto& row = rows[a.sums_row(sequence, head, query)];
          sum -= row.weight(a.sinks[head]) * row.delta;
        }
      }
      grad_sinks[head] = static_cast<accumulate_t<T>>(sum);
    }
  });
}

}  // namespace cpu_attention
