// Tensors whose neighbours are read: the element at a place is the one some lines and columns further. Plain C++: the
// CPU's kernels use it too.

#pragma once

#include "operand.h"

// An operand that is read kLines lines and kColumns columns away from each place: 0 where the tensor has no element
// there; with kWraps, the last line or column is followed by the first.
template <typename T, int kLines, int kColumns, bool kWraps>
struct Neighbour : BoundedOperand<T> {
  // What is read at a line, or a column; the tensor may have none there. In 32 bits where those number its elements.
  template <typename Index>
  OPERAND_FUNCTION Index line(Index place) const {
    return moved<kLines>(place, static_cast<Index>(this->lines));
  }
  template <typename Index>
  OPERAND_FUNCTION Index column(Index place) const {
    return moved<kColumns>(place, static_cast<Index>(this->columns));
  }

  template <typename Index>
  OPERAND_FUNCTION bool has_line(Index line) const {
    return line >= 0 && line < static_cast<Index>(this->lines);
  }
  template <typename Index>
  OPERAND_FUNCTION bool has_column(Index column) const {
    return column >= 0 && column < static_cast<Index>(this->columns);
  }

 private:
  template <int kDistance, typename Index>
  OPERAND_FUNCTION static Index moved(Index place, Index size) {
    Index other = place + kDistance;
    if constexpr (kWraps && kDistance != 0) {
      if (other >= size) other -= size;
      if (other < 0) other += size;
      // Results may be larger than the tensor, and that smaller than the distance, or empty.
      if (size > 0 && (other < 0 || other >= size)) {
        other %= size;
        if (other < 0) other += size;
      }
    }
    return other;
  }
};

template <int kLines, int kColumns, bool kWraps = false, typename T>
OPERAND_FUNCTION Neighbour<T, kLines, kColumns, kWraps> neighbour(const BoundedOperand<T>& operand) {
  return {operand};
}
