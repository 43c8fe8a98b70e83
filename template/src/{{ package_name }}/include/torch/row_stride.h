// Tensors as matrices whose rows may lie apart.

#pragma once

#include <torch/csrc/stable/tensor.h>

#include <optional>

// The distance between the rows (the last dimension) of a tensor, if it is the same from each row to the next and the
// elements of a row lie side by side: such as a half of a tensor's last dimension. A copy is then not needed.
inline std::optional<int64_t> row_stride(const torch::stable::Tensor& tensor) {
  const auto sizes = tensor.sizes(), strides = tensor.strides();
  const int64_t last = tensor.dim() - 1;
  if (last < 0 || (sizes[last] > 1 && strides[last] != 1)) return std::nullopt;
  std::optional<int64_t> stride;
  int64_t rows = 1;
  for (int64_t i = last; i-- > 0;) {
    if (sizes[i] == 1) continue;
    if (stride && strides[i] != *stride * rows) return std::nullopt;
    if (!stride) stride = strides[i];
    rows *= sizes[i];
  }
  return stride.value_or(sizes[last]);
}
