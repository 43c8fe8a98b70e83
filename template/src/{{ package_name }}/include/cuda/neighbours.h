// Tensors whose neighbours are read: the element at a place is the one some lines and columns further. Plain C++: the
// CPU's kernels use it too.

#pragma once

#include "operand.h"

// What is at the ends: nothing, or the other end; or lines, columns or both are counted from the last one on.
enum class Reading { kPlain, kWraps, kFlipsLines, kFlipsColumns, kFlipsBoth };

// An operand that is read kLines lines and kColumns columns away from each place: 0 where the tensor has no element
// there.
template <typename T, int kLines, int kColumns, Reading kReading>
struct Neighbour : BoundedOperand<T> {
  static constexpr bool kWraps = kReading == Reading::kWraps;
  static constexpr bool kFlipsLines = kReading == Reading::kFlipsLines || kReading == Reading::kFlipsBoth;
  static constexpr bool kFlipsColumns = kReading == Reading::kFlipsColumns || kReading == Reading::kFlipsBoth;

  // What is read at a line, or a column; the tensor may have none there. In 32 bits where those number its elements.
  template <typename Index>
  OPERAND_FUNCTION Index line(Index place) const {
    return moved<kLines, kFlipsLines>(place, static_cast<Index>(this->lines));
  }
  template <typename Index>
  OPERAND_FUNCTION Index column(Index place) const {
    return moved<kColumns, kFlipsColumns>(place, static_cast<Index>(this->columns));
  }
  // The first in memory of those that are read at N columns from `place` on, where these lie side by side; `by` columns
  // before it.
  template <int N, typename Index>
  OPERAND_FUNCTION Index first_column(Index place, int by = 0) const {
    return kFlipsColumns ? column(place + N - 1 + by) : column(place - by);
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
  template <int kDistance, bool kFlips, typename Index>
  OPERAND_FUNCTION static Index moved(Index place, Index size) {
    if constexpr (kFlips) return size - 1 - place + kDistance;
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

template <int kLines, int kColumns, Reading kReading = Reading::kPlain, typename T>
OPERAND_FUNCTION Neighbour<T, kLines, kColumns, kReading> neighbour(const BoundedOperand<T>& operand) {
  return {operand};
}
