// The forward of a normalisation of peeled rows (peeled_row.cuh): of any length, alignment and stride. A group of
// threads holds a row in registers from the load to the store. The mathematics is the op's; it gives functions of a
// single element.

#pragma once

#include <cuda_runtime_api.h>

#include <algorithm>

#include "accumulate.cuh"
#include "cache_hints.cuh"
#include "norm_tensors.cuh"
#include "peeled_row.cuh"
#include "registers.cuh"
#include "row_grid.cuh"
#include "row_group.cuh"
#include "row_matrix.h"
#include "tile.cuh"
#include "vector.cuh"
#include "widen.cuh"

// Its accesses are aligned in the output.
template <typename T>
__device__ PeeledRow<kVectorLength<T>> peeled_norm_row(const NormTensors<T>& tensors, int64_t row) {
  constexpr int N = kVectorLength<T>;
  const int offset = tensors.output.template offset<N>(row);
  const auto shifted = [&](const RowMatrix<const T>& matrix) {
    return matrix.data && matrix.template offset<N>(row) != offset;
  };
  const bool any =
      shifted(tensors.input) || shifted(tensors.residual) || shifted(tensors.weight) || shifted(tensors.bias);
  return PeeledRow<N>(tensors.n, offset, any);
}

// The row of a group of threads. A thread holds kAccesses accesses, where neighbouring threads access neighbouring
// memory, and 32 threads an element of the row's edges besides.
template <typename T, int kAccesses, typename Group = RowGroup<false>>
class PeeledNormRow {
 public:
  using Sum = accumulate_t<T>;
  static constexpr int N = kVectorLength<T>;

  // Loads the input, and adds the residual.
  __device__ explicit PeeledNormRow(const NormTensors<T>& tensors) : PeeledNormRow(tensors, Group(), tensors.input) {
    if (tensors.residual.data) add();
  }

  // The sum of f(element) over the row.
  template <typename F>
  __device__ Sum sum(F f) {
    Sum total = 0;
#pragma unroll
    for (int access = 0; access < kAccesses; ++access) {
      if (!has(access)) continue;
      const auto values = widen(held_[access]);
#pragma unroll
      for (int k = 0; k < N; ++k) {
        total += f(values[k]);
      }
    }
    if (has_edge()) total += f(widen(edge_));
    return group_.sum(total);
  }

  // Writes a number of the row.
  __device__ void write_number(Sum* out, Sum number) const {
    if (group_.rank() == 0 && row_ < tensors_.rows) out[row_] = number;
  }

  // Writes f(element, weight, bias) to the output.
  template <bool kBias, typename F>
  __device__ void write(F f) {
    constexpr int kFew = kBias || kAccesses < 2 ? 1 : 2;  // Accesses whose parameters are in registers at once.
#pragma unroll
    for (int begin = 0; begin < kAccesses; begin += kFew) {
      // All loads of parameters are in flight before the first is used, if there are registers for those of a bias.
      Pair weights[kFew], biases[kFew];
#pragma unroll
      for (int i = 0; i < kFew; ++i) {
        weights[i] = load_pair(tensors_.weight, begin + i);
        if constexpr (kBias && !kHoldsLess) biases[i] = load_pair(tensors_.bias, begin + i);
      }
#pragma unroll
      for (int i = 0; i < kFew; ++i) {
        if (!has(begin + i)) continue;
        auto values = widen(held_[begin + i]);
        const auto factors = widen(joined(tensors_.weight, weights[i], 1));
        Vector<Sum, N> shifts{};
        if constexpr (kBias) {
          if constexpr (kHoldsLess) biases[i] = load_pair(tensors_.bias, begin + i);
          shifts = widen(joined(tensors_.bias, biases[i], 0));
        }
#pragma unroll
        for (int k = 0; k < N; ++k) {
          values[k] = f(values[k], factors[k], shifts[k]);
        }
        store_evict_last(vectors_of(tensors_.output), index(begin + i), narrow<T>(values));
      }
    }
    if (has_edge()) {
      const Sum factor = tensors_.weight.data ? widen(tensors_.weight.data[edge_index_]) : Sum(1);
      const Sum shift = kBias && tensors_.bias.data ? widen(tensors_.bias.data[edge_index_]) : Sum(0);
      tensors_.output.row(row_)[edge_index_] = static_cast<T>(f(widen(edge_), factor, shift));
    }
  }

 protected:
  // Loads the row from `input`, which may also be the sum of input and residual.
  __device__ PeeledNormRow(const NormTensors<T>& tensors, const Group& group, const RowMatrix<const T>& input)
      : group_(group), tensors_(tensors), row_(group_.first()) {
    const int rank = group_.rank();
    first_ = rank / kWarp * kWarp * kAccesses + rank % kWarp;
    const auto peeled = peeled_norm_row(tensors, row_);
    const bool valid = row_ < tensors.rows;
    begin_ = static_cast<int>(peeled.begin);
    vectors_ = valid ? static_cast<int>(peeled.vectors) : 0;
    edge_index_ = valid && rank < peeled.edges() ? peeled.edge(rank) : -1;
#pragma unroll
    for (int begin = 0; begin < kAccesses; begin += kBatch) {
      load<kBatch>(input, begin, &held_[begin]);
    }
    edge_ = has_edge() ? input.row(row_)[edge_index_] : T(0.0f);
  }

  // Adds the residual, rounds to T, and stores the result in `sum` as well.
  __device__ void add() {
    constexpr int kFew =
        kAccesses < 2 ? kAccesses : 2;  // The residual's loads in flight, beside the input in registers.
#pragma unroll
    for (int begin = 0; begin < kAccesses; begin += kFew) {
      Vector<T, N> others[kFew];
      load<kFew>(tensors_.residual, begin, others);
#pragma unroll
      for (int i = 0; i < kFew; ++i) {
        auto& held = held_[begin + i];
        auto sum = widen(held);
        sum += widen(others[i]);
        held = narrow<T>(sum);
        if (has(begin + i)) store_evict_last(vectors_of(tensors_.sum), index(begin + i), held);
      }
    }
    if (has_edge()) {
      edge_ = static_cast<T>(widen(edge_) + widen(tensors_.residual.row(row_)[edge_index_]));
      tensors_.sum.row(row_)[edge_index_] = edge_;
    }
  }

  Group group_;
  const NormTensors<T>& tensors_;
  int64_t row_;
  int vectors_;

 private:
  static constexpr int kBatch = kAccesses < 4 ? kAccesses : 4;  // Loads in flight: more would take too many registers.

  __device__ int index(int access) const { return first_ + access * kWarp; }
  __device__ bool has(int access) const { return index(access) < vectors_; }
  __device__ bool has_edge() const { return edge_index_ >= 0; }

  // By how many elements a tensor's vectors lie past aligned ones.
  template <typename U>
  __device__ int shift(const RowMatrix<U>& matrix) const {
    return (matrix.template offset<N>(row_) + begin_) % N;
  }

  // The address of the row's first vector, or of the aligned one in which that starts.
  template <typename U>
  __device__ U* vectors_of(const RowMatrix<U>& matrix) const {
    return matrix.row(row_) + (begin_ - shift(matrix));
  }

  // Accesses begin to begin + kCount - 1, zeros where there are none.
  template <int kCount>
  __device__ void load(const RowMatrix<const T>& matrix, int begin, Vector<T, N>* to) const {
    const T* const from = vectors_of(matrix);
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      to[i] = load_evict_last<N>(from, index(begin + i), has(begin + i) && matrix.data);
    }
    const int by = shift(matrix);
    if (by == 0) return;
    Vector<T, N> next[kCount];
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      next[i] = load_evict_last<N>(from, index(begin + i) + 1, has(begin + i) && matrix.data);
    }
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      to[i] = shifted(to[i], next[i], by);
    }
  }

  // The aligned vectors that hold one of a parameter, and that one: a vector of `otherwise` where there is no
  // parameter. Predicates, not branches: where a branch around a load ended, the thread would wait for it.
  struct Pair {
    Vector<T, N> first, next;
  };

  __device__ Pair load_pair(const RowMatrix<const T>& matrix, int access) const {
    const T* const from = vectors_of(matrix);
    const bool valid = has(access) && matrix.data;
    return {
        load_evict_last<N>(from, index(access), valid),
        load_evict_last<N>(from, index(access) + 1, valid && shift(matrix) != 0)};
  }

  __device__ Vector<T, N> joined(const RowMatrix<const T>& matrix, const Pair& pair, float otherwise) const {
    auto values = pair.first;
    if (const int by = shift(matrix)) values = shifted(pair.first, pair.next, by);
#pragma unroll
    for (int k = 0; k < N; ++k) {
      values[k] = matrix.data ? values[k] : T(otherwise);
    }
    return values;
  }

  int first_;  // The thread's first access.
  int begin_;
  int64_t edge_index_;
  T edge_;
  Vector<T, N> held_[kAccesses];
};

// Calls f(x) with the row of the thread's group. A warp that could hold its row with half of the accesses does so: the
// others would be instructions for nothing. Rows of wider elements are seldom peeled that short.
template <typename Config, typename T, typename F>
__device__ void visit_peeled_row(const NormTensors<T>& tensors, const F& f) {
  constexpr int kAccesses = Config::kAccesses, kHalf = kAccesses / 2;
  if constexpr (sizeof(T) == 2 && kHalf > 0) {
    if (blockDim.x == kWarp && tensors.n <= kHalf * kWarp * kVectorLength<T>) {
      PeeledNormRow<T, kHalf> x(tensors);
      return f(x);
    }
  }
  PeeledNormRow<T, kAccesses> x(tensors);
  f(x);
}

namespace row_norm {

// What the kernel for peeled rows is compiled for: the accesses that a thread holds, and its launch bounds.
template <typename Tuned, int kAccesses_>
struct PeeledForwardConfig {
  static constexpr int kAccesses = kAccesses_;
  static constexpr int kThreads = Tuned::forward_threads;
  // More accesses take more registers.
  static constexpr int kBlocks = std::max(1, Tuned::forward_resident_threads / kThreads / (kAccesses > 4 ? 2 : 1));
};

// Calls visit(config, grid): a group a row. Config::kAccesses is 0 for rows that are too long for registers.
template <typename Tuned, typename T, typename Visit>
cudaError_t visit_peeled_forward(const NormTensors<T>& tensors, const Visit& visit) {
  constexpr int kAccesses = std::min(4, Tuned::forward_accesses), kMost = Tuned::forward_threads;
  const int64_t vectors = tensors.n / kVectorLength<T>, rows = tensors.rows;
  Grid grid;
  if constexpr (sizeof(T) == 8) {
    // Twice as many accesses of rows that would take a cluster otherwise.
    constexpr int kMore = 2 * kAccesses;
    if (vectors > kMost * kAccesses && vectors <= kMost * kMore) {
      hold_in_blocks(vectors, kMore, kMost, rows, &grid);
      return visit(PeeledForwardConfig<Tuned, kMore>(), grid);
    }
  }
  if (vectors <= kWarp * kAccesses) {
    grid.block = dim3(kWarp, kLaneGroupThreads / kWarp);
    grid.blocks = (rows + grid.block.y - 1) / grid.block.y;
  } else if (!hold_in_blocks(vectors, kAccesses, kMost, rows, &grid)) {
    return visit(PeeledForwardConfig<Tuned, 0>(), Grid());
  }
  return visit(PeeledForwardConfig<Tuned, kAccesses>(), grid);
}

}  // namespace row_norm
