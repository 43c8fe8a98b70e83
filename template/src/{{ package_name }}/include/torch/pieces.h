// Rows cut into pieces, for the CPU's threads.

#pragma once

#include <torch/csrc/stable/ops.h>

#include <algorithm>

#include "clones.h"
#include "numbers.h"
#include "operand.h"

// The buffers of so many elements lie in a core's first cache, whichever formula they are of.
constexpr int64_t kPiece = 1 << 10;

// Calls f(buffers, row, first, count) for pieces of each row, in parallel; `elements` are worth a thread of their own.
// Each thread has buffers of its own.
template <typename Buffers, typename F>
void for_each_piece(const Rows& rows, int64_t elements, const F& f) {
  const int64_t size = std::min({rows.n, elements, kPiece});
  const int64_t pieces = (rows.n + size - 1) / size;
  const int64_t grain = std::max<int64_t>(1, elements / size);
  const auto visit = [&](int64_t begin, int64_t end) {
    Buffers buffers;
    for (int64_t i = begin; i < end; ++i) {
      const int64_t first = i % pieces * size;
      f(buffers, i / pieces, first, std::min(size, rows.n - first));
    }
  };
  const auto call = [&](int64_t begin, int64_t end) { call_cloned(visit, begin, end); };
  torch::stable::parallel_for(0, rows.count * pieces, grain, call);
}

// Elements of a row, from `first` on, as numbers.
template <typename T>
const typename Numbers<T>::Number* load(
    Numbers<T>& buffer, const Operand<T>& operand, const RowIndex& index, int64_t first, int64_t count) {
  return buffer.load(operand.row(index) + first * operand.step, operand.step, count);
}

// Where the element `first` of a row of results is; null where `results` is, which nobody needs.
template <typename T>
T* row_of(T* results, const Rows& rows, int64_t row, int64_t first) {
  return results ? results + row * rows.n + first : nullptr;
}
