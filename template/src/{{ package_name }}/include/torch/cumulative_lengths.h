// Cumulative lengths of sequences that follow each other in one tensor: 0, the end of the first, of the second and so
// on.

#pragma once

#include <torch/csrc/stable/tensor.h>

#include <string>
#include <vector>

#include "checks.h"
#include "contiguous.h"
#include "dtypes.h"

namespace cumulative_lengths {

using torch::headeronly::ScalarType;
using torch::stable::Tensor;

inline void check(const checks::Argument& lengths) {
  checks::dtype_is_one_of(lengths, {ScalarType::Int});
  if (lengths.tensor.dim() != 1 || lengths.tensor.size(0) == 0) {
    checks::refuse(
        lengths, "has shape " + checks::shape_text(lengths.tensor.sizes()), "shape (sequences + 1,), beginning with 0");
  }
}

// On the CPU, where reading them costs nothing: the first row of each sequence, and the end of the last one.
inline std::vector<int64_t> starts(const checks::Argument& lengths, const char* rows_of, int64_t rows) {
  const Tensor contiguous = as_contiguous(lengths.tensor);
  const int32_t* const data = dtypes::data<int32_t>(contiguous);
  std::vector<int64_t> starts(data, data + contiguous.numel());
  for (size_t i = 0; i < starts.size(); ++i) {
    const bool ascends = i == 0 ? starts[i] == 0 : starts[i] >= starts[i - 1];
    if (!ascends || starts[i] > rows) {
      checks::refuse(
          lengths,
          "holds " + std::to_string(starts[i]) + " at " + std::to_string(i),
          std::string("ascending numbers from 0 to the ") + std::to_string(rows) + " rows of " + rows_of + " at most");
    }
  }
  return starts;
}

}  // namespace cumulative_lengths
