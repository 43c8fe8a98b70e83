// Tensors as matrices of contiguous rows.

#pragma once

#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>

#include <cstdint>
#include <optional>

#include "dtypes.h"
#include "row_matrix.h"
#include "row_stride.h"

// A tensor whose rows, the last dimension, are contiguous and the same number of elements apart: the tensor itself
// where that is so, as in slices of a wider one, else a copy. Rows of fewer than `least` elements are one after the
// other.
class MatrixRows {
 public:
  MatrixRows(const torch::stable::Tensor& tensor, int64_t least) : MatrixRows(tensor, stride_of(tensor, least)) {}

  template <typename T>
  RowMatrix<const T> data() const {
    return {dtypes::data<T>(tensor_), stride_};
  }

 private:
  MatrixRows(const torch::stable::Tensor& tensor, std::optional<int64_t> stride)
      : tensor_(stride ? tensor : torch::stable::contiguous(tensor)),
        stride_(stride.value_or(tensor.size(tensor.dim() - 1))) {}

  static std::optional<int64_t> stride_of(const torch::stable::Tensor& tensor, int64_t least) {
    if (tensor.is_contiguous()) return tensor.size(tensor.dim() - 1);
    return tensor.size(tensor.dim() - 1) < least ? std::nullopt : row_stride(tensor);
  }

  torch::stable::Tensor tensor_;
  int64_t stride_;
};

inline std::optional<MatrixRows> matrix_rows(const std::optional<torch::stable::Tensor>& tensor, int64_t least) {
  return tensor ? std::optional<MatrixRows>(std::in_place, *tensor, least) : std::nullopt;
}

// Null where there is no tensor.
template <typename T>
RowMatrix<const T> data_or_null(const std::optional<MatrixRows>& rows) {
  return rows ? rows->data<T>() : RowMatrix<const T>{nullptr, 0};
}
