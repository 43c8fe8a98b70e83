// Tensors as matrices with a row stride.

#pragma once

#include <torch/csrc/stable/tensor.h>

#include <optional>

// The stride, in elements, between the rows of a tensor (a row is its last dimension), if one stride fits all rows and
// each row is contiguous; nullopt where a kernel needs a copy. One half of a wider tensor's last dimension has such a
// stride.
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
