// Tensors as matrices of contiguous rows.

#pragma once

#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>

#include <cstdint>
#include <limits>
#include <optional>

#include "dtypes.h"
#include "row_matrix.h"
#include "row_stride.h"

// Whether a tensor, if there is one, starts at a multiple of 16 bytes.
inline bool starts_at_vector(const std::optional<torch::stable::Tensor>& tensor) {
  return !tensor || reinterpret_cast<uintptr_t>(tensor->const_data_ptr()) % 16 == 0;
}

// A tensor whose rows, the last dimension, are contiguous and the same number of elements apart: the tensor itself
// where that is so, as in slices of a wider one, else a copy. Rows of fewer than `least` elements are one after the
// other, or lie in groups if they have at most `short_bytes` bytes and start at multiples of 16.
class MatrixRows {
 public:
  MatrixRows(const torch::stable::Tensor& tensor, int64_t least, int64_t short_bytes = 0)
      : MatrixRows(tensor, layout_of(tensor, least, short_bytes)) {}

  template <typename T>
  RowMatrix<const T> data() const {
    return {dtypes::data<T>(tensor_), layout_.stride};
  }

  RowGroups groups() const { return layout_.groups; }
  bool starts_at_vector() const { return ::starts_at_vector(tensor_); }

 private:
  struct Layout {
    int64_t stride;
    RowGroups groups = {};
  };

  MatrixRows(const torch::stable::Tensor& tensor, const std::optional<Layout>& layout)
      : tensor_(layout ? tensor : torch::stable::contiguous(tensor)),
        layout_(layout.value_or(Layout{tensor.size(tensor.dim() - 1)})) {}

  static std::optional<Layout> layout_of(const torch::stable::Tensor& tensor, int64_t least, int64_t short_bytes) {
    const int64_t n = tensor.size(tensor.dim() - 1), bytes = n * tensor.element_size();
    if (tensor.is_contiguous()) return Layout{n};
    if (0 < bytes && bytes <= short_bytes && bytes % 16 == 0) return in_groups(tensor);
    const std::optional<int64_t> stride = n < least ? std::nullopt : row_stride(tensor);
    return stride ? std::optional<Layout>(Layout{*stride}) : std::nullopt;
  }

  // The layout of rows in groups, nullopt where some row does not start at a multiple of 16 bytes or where they lie in
  // groups of groups.
  static std::optional<Layout> in_groups(const torch::stable::Tensor& tensor) {
    const auto sizes = tensor.sizes(), strides = tensor.strides();
    const int64_t last = tensor.dim() - 1, vector = 16 / tensor.element_size();
    if (strides[last] != 1 || !::starts_at_vector(tensor)) return std::nullopt;
    if (tensor.numel() / sizes[last] > std::numeric_limits<int>::max() / 2) return std::nullopt;
    int64_t rows = 1, group = 0, row_stride = 0, group_stride = 0;  // Without groups so far, `group` is 0.
    for (int64_t i = last; i-- > 0;) {
      if (sizes[i] == 1) continue;
      if (strides[i] % vector != 0) return std::nullopt;
      if (rows == 1) {
        row_stride = strides[i];
      } else if (group == 0 && strides[i] != row_stride * rows) {
        if (strides[i] == 0) return std::nullopt;  // It would say that there are no groups.
        group = rows, group_stride = strides[i];
      } else if (group != 0 && strides[i] != group_stride * (rows / group)) {
        return std::nullopt;
      }
      rows *= sizes[i];
    }
    if (group == 0) return Layout{row_stride};
    return Layout{row_stride, {group_stride, Divisor(static_cast<int>(group))}};
  }

  torch::stable::Tensor tensor_;
  Layout layout_;
};

inline std::optional<MatrixRows> matrix_rows(const std::optional<torch::stable::Tensor>& tensor, int64_t least) {
  return tensor ? std::optional<MatrixRows>(std::in_place, *tensor, least) : std::nullopt;
}

// Null where there is no tensor.
template <typename T>
RowMatrix<const T> data_or_null(const std::optional<MatrixRows>& rows) {
  return rows ? rows->data<T>() : RowMatrix<const T>{nullptr, 0};
}
