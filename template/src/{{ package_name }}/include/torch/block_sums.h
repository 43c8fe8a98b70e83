// Sums over blocks of rows: of these the gradient of a vector that all rows have in common is added up.

#pragma once

#include <algorithm>
#include <cstdint>

#include "clones.h"
#include "gradient.h"

// The rows of a block, which one thread adds up in their order. It depends on the rows alone, so that the sums are the
// same whatever the threads; and sums of few rows lose no more than the rounding of one number does.
inline int64_t rows_of_block(int64_t rows) {
  return std::clamp<int64_t>(rows / 16, 1, 64);
}

inline int64_t blocks_of_rows(int64_t rows) {
  const int64_t size = rows_of_block(rows);
  return (rows + size - 1) / size;
}

template <typename Number>
CPU_APART CPU_CLONES void add_numbers(const Number* numbers, int64_t count, Number* sums) {
  CPU_INDEPENDENT
  for (int64_t i = 0; i < count; ++i) sums[i] += numbers[i];
}

// Adds numbers of a row, from column `first` on, to the sums of its block; its first row begins them.
template <typename T>
void add_to_block(
    const Gradient<T>& gradient,
    const Rows& rows,
    int64_t row,
    int64_t first,
    const typename Gradient<T>::Sum* numbers,
    int64_t count) {
  const int64_t size = rows_of_block(rows.count);
  auto* const sums = gradient.partial + row / size * gradient.partial_stride + first;
  if (row % size == 0) {
    std::copy(numbers, numbers + count, sums);
    return;
  }
  add_numbers(numbers, count, sums);
}

// Adds up rows of sums, `stride` apart, for so many columns: neighbours first, then such pairs, so that rounding errors
// grow with the logarithm of their number. Overwrites the rows.
template <typename T>
CPU_APART CPU_CLONES void add_rows(
    typename Gradient<T>::Sum* sums, int64_t rows, int64_t stride, int64_t columns, T* result) {
  for (int64_t step = 1; step < rows; step *= 2) {
    for (int64_t row = 0; row + step < rows; row += 2 * step) {
      const auto* const added = sums + (row + step) * stride;
      auto* const sum = sums + row * stride;
      CPU_INDEPENDENT
      for (int64_t i = 0; i < columns; ++i) sum[i] += added[i];
    }
  }
  CPU_INDEPENDENT
  for (int64_t i = 0; i < columns; ++i) result[i] = static_cast<T>(sums[i]);
}
