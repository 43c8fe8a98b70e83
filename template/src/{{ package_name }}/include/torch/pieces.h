// Rows cut into pieces, for the CPU's threads.

#pragma once

#include <torch/csrc/stable/ops.h>

#include <algorithm>

#include "block_sums.h"
#include "clones.h"
#include "numbers.h"
#include "operand.h"

// A row's elements for a thread: so many that those of a tensor are mostly read one after the other.
constexpr int64_t kPiece = 1 << 12;

// The elements that buffers hold. So few, that a core reads all tensors at about the same time: a loop over one of them
// waits for memory that others could be read from meanwhile. A constant, so that compilers know how long the loops are.
constexpr int64_t kTile = 64;

// Calls f(buffers, row, first, count) for pieces of each row, tile by tile, in parallel; `elements` are worth a thread
// of their own. Each thread has buffers of its own.
template <typename Buffers, typename F>
void for_each_piece(const Rows& rows, int64_t elements, const F& f) {
  const int64_t size = std::min({rows.n, elements, kPiece});
  const int64_t pieces = (rows.n + size - 1) / size;
  const int64_t block = rows_of_block(rows.count);
  const int64_t grain = std::max<int64_t>(1, elements / (size * block));
  const auto visit = [&](int64_t begin, int64_t end) {
    Buffers buffers;
    for (int64_t i = begin; i < end; ++i) {
      const int64_t first = i % pieces * size, count = std::min(size, rows.n - first);
      const int64_t row = i / pieces * block, last = std::min(row + block, rows.count);
      for (int64_t k = row; k < last; ++k) {
        int64_t done = 0;
        for (; done + kTile <= count; done += kTile) f(buffers, k, first + done, kTile);
        if (done < count) f(buffers, k, first + done, count - done);
      }
    }
  };
  const auto call = [&](int64_t begin, int64_t end) { call_cloned(visit, begin, end); };
  torch::stable::parallel_for(0, blocks_of_rows(rows.count) * pieces, grain, call);
}

// How many bytes ahead a core asks memory for the elements of a tensor. Of several tensors at once CPUs by themselves
// ask so late that the loops wait.
constexpr uintptr_t kAhead = 3072;

// Asks for elements that lie that far ahead, to read them or to write them. Beyond the last nothing is there, which is
// no fault.
template <bool kWrites, typename T>
void prefetch(const T* elements, int64_t count) {
  constexpr int64_t kLine = 64;
  const uintptr_t ahead = reinterpret_cast<uintptr_t>(elements) + kAhead;
  for (int64_t i = 0; i < count * static_cast<int64_t>(sizeof(T)); i += kLine) {
    __builtin_prefetch(reinterpret_cast<const void*>(ahead + i), kWrites, 3);
  }
}

// Elements of a row, from `first` on, as numbers.
template <typename T>
const typename Numbers<T>::Number* load(
    Numbers<T>& buffer, const Operand<T>& operand, const RowIndex& index, int64_t first, int64_t count) {
  const T* const elements = operand.row(index) + first * operand.step;
  if (operand.step == 1) prefetch<false>(elements, count);
  return buffer.load_once(elements, operand.step, count);
}

// Where the element `first` of a row of results is; null where `results` is, which nobody needs.
template <typename T>
T* row_of(T* results, const Rows& rows, int64_t row, int64_t first) {
  if (!results) return nullptr;
  T* const elements = results + row * rows.n + first;
  prefetch<true>(elements, kTile);
  return elements;
}

// Where to write the numbers of a piece of a part: to its elements, if they lie one after the other.
template <typename T>
typename Numbers<T>::Number* room(Numbers<T>& buffer, const ResultPart<T>& part, T* elements, int64_t count) {
  return buffer.room(part.step == 1 ? elements : nullptr, count);
}

// Stores a piece of a part.
template <typename T>
void store(const Numbers<T>& buffer, const ResultPart<T>& part, T* elements, int64_t count) {
  if (part.step == 1) return buffer.store(elements, count);
  buffer.store_parts(elements, part.step, count, 0, count);
}

// Stores a piece of a gradient, or adds it to the sums of its block of rows.
template <typename T>
void store(
    const Numbers<T>& buffer,
    const Gradient<T>& gradient,
    const Rows& rows,
    int64_t row,
    int64_t first,
    int64_t count) {
  if (gradient.partial) return add_to_block(gradient, rows, row, first, buffer.data(), count);
  buffer.store(row_of(gradient.values, rows, row, first), count);
}
