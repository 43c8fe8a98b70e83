// What the forward of a normalisation of rows reads and writes.

#pragma once

#include <cstdint>

#include "row_matrix.h"

// Matrices of `rows` rows of n elements. Null: no residual, a weight of ones, a bias of zeros.
template <typename T>
struct NormTensors {
  RowMatrix<const T> input;
  RowMatrix<const T> residual;
  RowMatrix<const T> weight;  // One row for all.
  RowMatrix<const T> bias;
  RowMatrix<T> output;
  RowMatrix<T> sum;  // of input and residual; aligned as `output` is
  int64_t rows, n;
};
