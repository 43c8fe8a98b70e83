// Formulas of rows on the CPU.

#pragma once

#include <torch/csrc/stable/ops.h>

#include <algorithm>

#include "clones.h"
#include "formula_row.h"
#include "numbers.h"
#include "row_tensors.h"

// Calls f(row) with a FormulaRow for each row, in parallel; `elements` are worth a thread of their own.
template <typename Tensors, typename F>
void for_each_row(const Tensors& tensors, int64_t elements, const F& f) {
  using T = typename Tensors::Element;
  constexpr int kInputs = Tensors::kInputs, kNumbers = Tensors::kNumbers;
  constexpr int kResults = Tensors::kResults, kRowResults = Tensors::kRowResults;
  const Rows& rows = tensors.rows;
  const int64_t grain = std::max<int64_t>(1, elements / std::max<int64_t>(1, rows.n));
  const auto visit = [&](int64_t begin, int64_t end) {
    Numbers<T> inputs[kInputs + 1], results[kResults + 1];
    FormulaRow<accumulate_t<T>, kInputs, kNumbers, kResults, kRowResults> row;
    row.n = rows.n;
    for (int64_t i = begin; i < end; ++i) {
      const RowIndex index(rows, i);
      for (int k = 0; k < kInputs; ++k) {
        row.inputs[k] = inputs[k].load(tensors.inputs[k].row(index), tensors.inputs[k].step, rows.n);
      }
      for (int k = 0; k < kNumbers; ++k) {
        row.numbers[k] = static_cast<accumulate_t<T>>(tensors.numbers[k][i]);
      }
      const auto result = [&](int k) {
        T* const values = tensors.results[k].values;
        return values ? values + i * rows.n : nullptr;
      };
      for (int k = 0; k < kResults; ++k) {
        row.results[k] = results[k].room(result(k), rows.n);
      }
      f(row);
      for (int k = 0; k < kResults; ++k) {
        results[k].store(result(k), rows.n);
      }
      for (int k = 0; k < kRowResults; ++k) {
        tensors.row_results[k][i] = static_cast<T>(row.row_results[k]);
      }
    }
  };
  const auto call = [&](int64_t begin, int64_t end) { call_cloned(visit, begin, end); };
  torch::stable::parallel_for(0, rows.count, grain, call);
}
