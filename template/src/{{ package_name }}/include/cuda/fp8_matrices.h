// Matrices that are quantised by tiles, for fp8_matrices.cuh. Plain C++: the host's sources use it too.

#pragma once

#include <cstdint>

#include "fp8_rows.h"
#include "row_matrix.h"

namespace fp8 {

// Where the scale of a tensor comes from: it is given, for row r at given[r * step], or the largest magnitude in the
// tensor was found before, as the bits of a float32.
struct KnownScale {
  const float* given;
  int64_t step;
  const uint32_t* largest;
};

// `count` matrices of `rows` rows of n elements, one after the other in x, with a scale for each block or group or for
// the tensor; and their transposes, with scales of their own, whose rows are `turned_width` codes long: zeros after
// `rows`. There is no `turned` where nobody needs it; and no `codes` and `scales`, of blocks and groups alone.
template <typename T>
struct Matrices {
  RowMatrix<const T> x;
  int64_t count, rows, n;
  Scaling scaling;
  KnownScale known;
  uint8_t* codes;
  float* scales;  // Of group g of row r of all matrices at [g * count * rows + r]; of blocks, contiguous matrices.
  uint8_t* turned;
  int64_t turned_width;
  float* turned_scales;  // By matrix; of group g of its row r at [g * n + r].
  bool e5m2, power_of_two;
};

}  // namespace fp8
