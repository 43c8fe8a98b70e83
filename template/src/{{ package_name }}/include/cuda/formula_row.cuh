// A row as a formula sees it: sums and maxima over its elements, and a pass that writes its results. cpu/formula_row.h
// offers the same to the CPU.

#pragma once

#include <algorithm>
#include <type_traits>
#include <utility>

#include "functions.cuh"
#include "pointwise.cuh"
#include "row_tensors.h"
#include "thread_group.cuh"

// kHeld: the accesses of a row that a thread keeps in registers, which are all; 0: every pass reads the row again.
template <
    typename Group,
    int N,
    bool kVectors,
    int kHeld,
    typename T,
    int kInputs,
    int kNumbers,
    int kResults,
    int kRowResults>
class FormulaRow {
 public:
  using Number = accumulate_t<T>;
  using Tensors = RowTensors<T, kInputs, kNumbers, kResults, kRowResults>;

  // The group's row number `row`; past the last row it has no elements.
  __device__ FormulaRow(Group& group, const Tensors& tensors, int64_t row)
      : group_(group), tensors_(tensors), row_(row), valid_(row < tensors.rows.count) {
    const RowIndex index(tensors.rows, valid_ ? row : 0);
#pragma unroll
    for (int i = 0; i < kInputs; ++i) {
      rows_[i] = tensors.inputs[i].row(index);
    }
    // All loads are in flight before the first pass.
#pragma unroll
    for (int access = 0; access < kHeld; ++access) {
      read_access(position(access), held_[access]);
    }
  }

  __device__ Number size() const { return static_cast<Number>(tensors_.rows.n); }

  __device__ Number number(int i) const { return valid_ ? widen(tensors_.numbers[i][row_]) : Number(0); }

  template <typename F>
  __device__ Number sum(F term) {
    Number total = 0;
    each([&](int64_t, int, auto... values) { total += term(values...); });
    return group_.sum(total);
  }

  template <typename F>
  __device__ Number max(F term) {
    Number largest = -math::kInfinity<Number>;
    each([&](int64_t, int, auto... values) { largest = math::maximum(largest, term(values...)); });
    return group_.max(largest);
  }

  template <typename F>
  __device__ Number min(F term) {
    return -max([&](auto... values) { return -term(values...); });
  }

  // f(inputs..., results...) for each element.
  template <typename F>
  __device__ void write(F f) {
    write(f, std::make_index_sequence<kResults>());
  }

  __device__ void put(int i, Number value) {
    if (valid_ && group_.rank() == 0 && tensors_.row_results[i]) {
      tensors_.row_results[i][row_] = static_cast<T>(value);
    }
  }

 private:
  __device__ int64_t elements() const { return valid_ ? tensors_.rows.n : 0; }
  __device__ int64_t position(int access) const { return (group_.rank() + int64_t(access) * group_.size()) * N; }

  __device__ void read_access(int64_t first, Vector<T, N> (&vectors)[kInputs]) const {
#pragma unroll
    for (int i = 0; i < kInputs; ++i) {
      vectors[i] = read<N, kVectors, false>(tensors_.inputs[i], rows_[i], first, elements());
    }
  }

  // Calls f(first, k, inputs...) for each element, which is number k of the access from `first` on.
  template <typename F, typename G>
  __device__ void each(F f, G finish) {
    const int64_t n = elements();
    const auto visit = [&](int64_t first, const Vector<T, N>(&vectors)[kInputs]) {
#pragma unroll
      for (int k = 0; k < N; ++k) {
        if (first + k < n) call(f, first, k, vectors, std::make_index_sequence<kInputs>());
      }
      finish(first, n);
    };
    if constexpr (kHeld > 0) {
#pragma unroll
      for (int access = 0; access < kHeld; ++access) {
        if (position(access) < n) visit(position(access), held_[access]);
      }
    } else {
      for (int64_t first = position(0); first < n; first += int64_t(group_.size()) * N) {
        Vector<T, N> vectors[kInputs];
        read_access(first, vectors);
        visit(first, vectors);
      }
    }
  }

  template <typename F>
  __device__ void each(F f) {
    each(f, [](int64_t, int64_t) {});
  }

  template <typename F, size_t... kPlaces>
  __device__ static void call(
      F& f, int64_t first, int k, const Vector<T, N> (&vectors)[kInputs], std::index_sequence<kPlaces...>) {
    f(first, k, widen(vectors[kPlaces][k])...);
  }

  template <typename F, size_t... kPlaces>
  __device__ void write(F f, std::index_sequence<kPlaces...>) {
    Vector<T, N> results[kResults + 1];
    const auto compute = [&](int64_t, int k, auto... values) {
      Number numbers[kResults + 1];
      f(values..., numbers[kPlaces]...);
#pragma unroll
      for (int i = 0; i < kResults; ++i) {
        results[i][k] = static_cast<T>(numbers[i]);
      }
    };
    each(compute, [&](int64_t first, int64_t n) {
#pragma unroll
      for (int i = 0; i < kResults; ++i) {
        T* const row = tensors_.results[i];
        if (row) ::write<N, kVectors, false>(row + row_ * n, first, n, results[i]);
      }
    });
  }

  Group& group_;
  const Tensors& tensors_;
  const int64_t row_;
  const bool valid_;
  const T* rows_[kInputs];
  Vector<T, N> held_[kHeld + 1][kInputs];
};

constexpr int64_t kMostRowBlocks = 1 << 20;

// Calls visit(group, vectors, held, blocks) with the threads that take a row, whether all tensors can be read by
// vectors, and how many accesses of a row each thread keeps in registers.
template <int kThreads, typename T, int kInputs, int kNumbers, int kResults, int kRowResults, typename Visit>
cudaError_t visit_rows(const RowTensors<T, kInputs, kNumbers, kResults, kRowResults>& tensors, const Visit& visit) {
  constexpr int N = kOperandVector<T>;
  const Rows& rows = tensors.rows;
  bool vectors = rows.count == 1 || rows.n % N == 0;
  for (const Operand<T>& input : tensors.inputs) {
    vectors = vectors && input.vectors;
  }
  const auto blocks = [&](int64_t groups) {
    return std::clamp<int64_t>((rows.count + groups - 1) / groups, 1, kMostRowBlocks);
  };
  const auto fits = [&](int threads, int held) { return rows.n <= int64_t(threads) * held * N; };
  const std::true_type by_vectors;
  const std::false_type by_elements;
  const std::integral_constant<int, 0> none;
  const std::integral_constant<int, 2> two;
  const std::integral_constant<int, 4> four;
  const std::integral_constant<int, 8> eight;
  const int64_t warps = kThreads / kWarp;
  if (!vectors && fits(kWarp, eight)) return visit(LaneGroup<kWarp>(), by_elements, none, blocks(warps));
  if (!vectors) return visit(BlockGroup(), by_elements, none, blocks(1));
  if (fits(kWarp, two)) return visit(LaneGroup<kWarp>(), by_vectors, two, blocks(warps));
  if (fits(kThreads, two)) return visit(BlockGroup(), by_vectors, two, blocks(1));
  if (fits(kThreads, four)) return visit(BlockGroup(), by_vectors, four, blocks(1));
  if (fits(kThreads, eight)) return visit(BlockGroup(), by_vectors, eight, blocks(1));
  return visit(BlockGroup(), by_vectors, none, blocks(1));
}
