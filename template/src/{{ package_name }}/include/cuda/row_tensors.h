// What a formula of rows reads and writes. Plain C++: the CPU's kernels use it too.

#pragma once

#include "gradient.h"
#include "operand.h"

// What a kernel reads and writes, beside its scalars: tensors of rows, tensors with a number for each row, results of
// rows, and results with a number for each row. A result that is null is not needed.
template <typename T, int kInputs_, int kNumbers_, int kResults_, int kRowResults_>
struct RowTensors {
  using Element = T;
  static constexpr int kInputs = kInputs_;
  static constexpr int kNumbers = kNumbers_;
  static constexpr int kResults = kResults_;
  static constexpr int kRowResults = kRowResults_;

  Rows rows;
  Operand<T> inputs[kInputs + 1];
  const T* numbers[kNumbers + 1];
  Gradient<T> results[kResults + 1];
  T* row_results[kRowResults + 1];
};
