// The gradient of a normalisation of rows, of any length, alignment and stride: what a kernel reads and writes, and the
// mathematics, which is the op's, of a single element:
//
//     struct Mathematics {
//       static constexpr int kSums = 1;        // over a row, that the input's gradient depends on
//       static constexpr int kParameters = 1;  // with gradients that are sums over the rows
//       struct Row;                            // what the forward kept of a row
//       struct Slope;                          // of a row, once its sums are known
//       Row load(int64_t row) const;
//       GradientTerms<Sum, kSums, kParameters> terms(Sum x, Sum dy, Sum weight, const Row&) const;
//       Slope slope(const Vector<Sum, kSums>&, const Row&) const;
//       Sum gradient(Sum term, Sum x, const Slope&) const;  // `term` is terms().input
//     };

#pragma once

#include <cstdint>

#include "accumulate.cuh"
#include "row_matrix.h"

// What an element contributes: to the input's gradient, to the sums over its row, and to the parameters' gradients.
template <typename Sum, int kSums, int kParameters>
struct GradientTerms {
  Sum input;
  Sum sums[kSums];
  Sum parameters[kParameters];
};

// What the kernel reads and writes. Null: no further gradient to add, a weight of ones, a result that is not needed.
template <typename T>
struct GradientTensors {
  using Sum = accumulate_t<T>;
  RowMatrix<const T> input;
  RowMatrix<const T> grad;
  RowMatrix<const T> grad_sum;
  RowMatrix<const T> weight;  // One row for all.
  RowMatrix<T> grad_input;
  T* parameters[2];  // The gradients of the parameters, where one group computes them,
  Sum* partial;  // or a row of partial sums for each block or cluster: all of the first parameter, then of the second.
  int64_t rows, n;
};
