// What a formula of rows reads and writes. Plain C++: the CPU's kernels use it too.

#pragma once

#include "operand.h"

// What a kernel reads and writes, beside its scalars: kInputs tensors of rows, kNumbers tensors with a number for each
// row, kResults results of rows, and kRowResults results with a number for each row. A result that is null is not
// needed.
template <typename T, int kInputs, int kNumbers, int kResults, int kRowResults>
struct RowTensors {
  Rows rows;
  Operand<T> inputs[kInputs];
  const T* numbers[kNumbers + 1];
  T* results[kResults + 1];
  T* row_results[kRowResults + 1];
};
