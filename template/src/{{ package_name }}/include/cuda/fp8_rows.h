// Matrices of 8-bit floating-point numbers with scales. Plain C++: the host's sources use it too.

#pragma once

#include <cstdint>

namespace fp8 {

// Elements of a row that share a scale, where not all of them do; and the rows and columns of a block.
constexpr int kGroupLength = 128;

// What shares a scale: a whole tensor, whose scale is known before; a row; kGroupLength elements of a row; a block.
enum class Scaling { kTensor, kRow, kGroup, kBlock };

// The results of rows that are quantised: contiguous rows of codes, and the scale of group g of row r (g = 0 of a whole
// row) at scales[r * row_step + g * group_step].
struct Rows {
  uint8_t* codes;
  float* scales;
  int64_t row_step, group_step;
  bool e5m2;          // else e4m3
  bool power_of_two;  // of the scales
};

}  // namespace fp8
