// How the CPU's kernels read neighbours of elements.

#pragma once

#include "neighbours.h"
#include "pieces.h"

// Elements of a row, from `first` on, as numbers: 0 where the tensor has none.
template <typename T, int kLines, int kColumns, Reading kReading>
const typename Numbers<T>::Number* load(
    Numbers<T>& buffer,
    const Neighbour<T, kLines, kColumns, kReading>& tensor,
    const RowIndex& index,
    int64_t first,
    int64_t count) {
  using Number = typename Numbers<T>::Number;
  const int64_t line = tensor.line(index.places[0]);
  if (!tensor.has_line(line)) return buffer.load_or(Number(), nullptr, count);
  const T* const row = tensor.row(index) + (line - index.places[0]) * tensor.strides[0];
  const int64_t begin = tensor.column(first), last = tensor.column(first + count - 1);
  if (begin >= 0 && last < tensor.columns && last - begin == count - 1) {
    return buffer.load(row + begin * tensor.step, tensor.step, count);
  }
  if (last >= 0 && begin < tensor.columns && begin - last == count - 1) {
    return buffer.load(row + begin * tensor.step, -tensor.step, count);
  }
  return buffer.load_each(count, [&](int64_t i) {
    const int64_t column = tensor.column(first + i);
    return tensor.has_column(column) ? static_cast<Number>(row[column * tensor.step]) : Number();
  });
}
