// Tensors whose neighbours are read: the element at a place is the one some lines and columns further. Plain C++: the
// CPU's kernels use it too.

#pragma once

#include "operand.h"

// An operand that is read kLines_ lines and kColumns_ columns away from each place: 0 where the tensor has no element
// there; with kWraps, the last line or column is followed by the first.
template <typename T, int kLines_, int kColumns_, bool kWraps = false>
struct Shifted : Operand<T> {
  using Element = T;
  static constexpr int kLines = kLines_, kColumns = kColumns_;

  int64_t lines = 0, columns = 0;          // of the tensor, along its last two dimensions
  int64_t line_step = 0, column_step = 0;  // to what is read; 0 or more with kWraps

  // What is read at a line, or a column; the tensor may have none there.
  OPERAND_FUNCTION int64_t line(int64_t place) const { return moved(place, line_step, lines); }
  OPERAND_FUNCTION int64_t column(int64_t place) const { return moved(place, column_step, columns); }

  OPERAND_FUNCTION bool has_line(int64_t line) const { return line >= 0 && line < lines; }
  OPERAND_FUNCTION bool has_column(int64_t column) const { return column >= 0 && column < columns; }

  void set_sizes(int64_t line_count, int64_t column_count) {
    lines = line_count;
    columns = column_count;
    line_step = step_of(kLines, lines);
    column_step = step_of(kColumns, columns);
  }

 private:
  static int64_t step_of(int64_t distance, int64_t size) {
    if (!kWraps || size == 0) return distance;
    const int64_t rest = distance % size;
    return rest < 0 ? rest + size : rest;
  }

  OPERAND_FUNCTION static int64_t moved(int64_t place, int64_t by, int64_t size) {
    int64_t other = place + by;
    if constexpr (kWraps) {
      if (by != 0 && other >= size) other -= size;
      if (by != 0 && other >= size) other %= size;  // Results may be larger than the tensor.
    }
    return other;
  }
};
