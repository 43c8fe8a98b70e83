// Where kernels write gradients of tensors that may have been broadcast. Plain C++.

#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "operand.h"

// The gradient of a tensor: as large as all rows; or, of a vector that the rows have in common, the sums over the rows.
// With `values` as well, the kernel writes these, and they are added up afterwards.
template <typename T>
struct Gradient {
  using Sum = std::conditional_t<std::is_same_v<T, double>, double, float>;

  T* values = nullptr;     // of all rows; null: not wanted
  T* sums = nullptr;       // of all columns; null: not wanted
  Sum* partial = nullptr;  // rows of sums that are not added up yet, `partial_stride` apart
  int64_t partial_stride = 0;
  int64_t partial_rows = 0;

  OPERAND_FUNCTION bool is_summed_by_kernel() const { return partial && !values; }
};

template <typename... Gradients>
bool any_summed_by_kernel(const Gradients&... gradients) {
  return (gradients.is_summed_by_kernel() || ...);
}

// The rows of partial sums that adding up stored values leaves: about a thousand blocks in all.
inline int64_t stored_sum_rows(int64_t rows, int64_t columns) {
  constexpr int64_t kColumns = 16, kBlocks = 1024;  // of a block of sum_columns, and in all
  const int64_t groups = kBlocks / std::max<int64_t>(1, (columns + kColumns - 1) / kColumns);
  return std::clamp<int64_t>(groups, 1, std::max<int64_t>(1, rows / 32));
}

constexpr int kSumThreads = 256;          // of a block of a kernel that adds up rows
constexpr int kSumMultiprocessors = 132;  // that its blocks are for, all of which run at once then

// The threads of a block that share a row of so many accesses.
inline int sum_width(int64_t accesses) {
  int width = 1;
  while (width < 32 && width < accesses) width *= 2;
  return width;
}

// The rows of partial sums that a kernel leaves of which a multiprocessor holds so many blocks at once.
inline int64_t sum_rows(int64_t rows, int64_t accesses, int resident) {
  const int width = sum_width(accesses), height = kSumThreads / width;
  const int64_t tiles = std::max<int64_t>(1, (accesses + width - 1) / width);
  return std::clamp<int64_t>(
      resident * kSumMultiprocessors / tiles, 1, std::max<int64_t>(1, (rows + height - 1) / height));
}

// The same of a kernel over these operands; 0 if they cannot be read by vectors.
template <typename T, typename... Operands>
int64_t summing_rows(int resident, const Rows& rows, const Operands&... operands) {
  constexpr int N = kOperandVector<T>;
  const bool can_sum = rows.dimensions == 1 && all_vectors<N>(rows, operands...);
  return can_sum ? sum_rows(rows.count, rows.n / N, resident) : 0;
}
