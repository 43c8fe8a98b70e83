// Broadcasting: tensors as rows of the one shape that PyTorch's rules give them, without a copy.

#pragma once

#include <torch/csrc/stable/ops.h>

#include <algorithm>
#include <initializer_list>
#include <optional>
#include <string>
#include <vector>

#include "checks.h"
#include "contiguous.h"
#include "operand.h"

// The dimensions from `dim` on.
inline std::vector<int64_t> dimensions_from(int64_t dim, const checks::Tensor& tensor) {
  std::vector<int64_t> dims;
  for (int64_t d = std::max<int64_t>(0, dim); d < tensor.dim(); ++d) dims.push_back(d);
  return dims;
}

// All dimensions but `dim`.
inline std::vector<int64_t> dimensions_but(int64_t dim, const checks::Tensor& tensor) {
  std::vector<int64_t> dims;
  for (int64_t d = 0; d < tensor.dim(); ++d) {
    if (d != dim) dims.push_back(d);
  }
  return dims;
}

class Broadcast {
 public:
  // Refuses tensors whose shapes do not broadcast.
  explicit Broadcast(std::initializer_list<checks::Argument> tensors) {
    const checks::Argument& first = *tensors.begin();
    for (const checks::Argument& tensor : tensors) widen(tensor, first);
    for (const checks::Argument& tensor : tensors) strides_.push_back(strides_of(tensor.tensor));
    collapsed_.resize(strides_.size());
    set_rows(joined(all_dimensions()), {}, first);
  }

  // Rows of some dimensions of the first tensor, negative ones from the end. The others are repeated to its shape, or
  // have only the dimensions of a row. The last of the operands are the results.
  Broadcast(std::initializer_list<checks::Argument> tensors, std::vector<int64_t> row) {
    const checks::Argument& first = *tensors.begin();
    const auto sizes = first.tensor.sizes();
    sizes_.assign(sizes.begin(), sizes.end());
    for (int64_t& dim : row) dim += dim < 0 ? rank() : 0;
    std::sort(row.begin(), row.end());
    row_ = row;
    for (const checks::Argument& tensor : tensors) {
      copies_.push_back(as_numbers(tensor.tensor, first.tensor));
      strides_.push_back(strides_in_rows(copy_of(copies_.size() - 1, tensor.tensor)));
    }
    strides_.push_back(contiguous_strides());
    collapsed_.resize(strides_.size());
    std::vector<int64_t> parts = joined(row_);
    if (parts.size() > 2) {  // Such rows are copied.
      size_t i = 0;
      for (const checks::Argument& tensor : tensors) {
        copies_[i] = torch::stable::contiguous(copy_of(i, tensor.tensor));
        strides_[i] = strides_in_rows(*copies_[i]);
        ++i;
      }
      collapsed_.assign(strides_.size(), {});
      parts = joined(row_);
    }
    set_rows(parts, joined(other_dimensions()), first);
  }

  // The shape of results.
  const std::vector<int64_t>& sizes() const { return sizes_; }

  // The shape of results with one number for each row; `keeps`: with dimensions of 1.
  std::vector<int64_t> row_sizes(bool keeps) const {
    std::vector<int64_t> sizes;
    for (int64_t d = 0; d < rank(); ++d) {
      if (!is_of_row(d)) sizes.push_back(sizes_[d]);
      if (is_of_row(d) && keeps) sizes.push_back(1);
    }
    return sizes;
  }

  bool is_empty() const { return std::count(sizes_.begin(), sizes_.end(), 0) > 0; }

  const Rows& rows() const { return rows_; }

  const std::vector<int64_t>& row_dimensions() const { return row_; }

  // Whether a tensor of these sizes has the dimensions of a row, wherever these are, and no others.
  template <typename Sizes>
  bool is_of_row_alone(const Sizes& sizes) const {
    if (sizes.size() != row_.size() || row_.size() == sizes_.size()) return false;
    for (size_t i = 0; i < row_.size(); ++i) {
      if (sizes[i] != sizes_[row_[i]]) return false;
    }
    return true;
  }

  // The tensor that was `place`-th in the list; `vector` is how many of its elements an access shall read.
  template <typename T>
  Operand<T> operand(size_t place, const checks::Tensor& tensor, int64_t vector = 1) const {
    const checks::Tensor& read = row_.empty() ? tensor : copy_of(place, tensor);
    return operand_at(place, static_cast<const T*>(read.const_data_ptr()), vector);
  }

  // Whether the results of rows lie one row after the other.
  bool has_flat_results() const { return row_.empty() || layout<char>().flat; }

  // How the results of rows lie.
  template <typename T>
  Operand<T> layout(int64_t vector = 1) const {
    return operand_at<T>(strides_.size() - 1, nullptr, vector);
  }

 private:
  int64_t rank() const { return static_cast<int64_t>(sizes_.size()); }

  bool is_of_row(int64_t dim) const { return std::count(row_.begin(), row_.end(), dim) > 0; }

  std::vector<int64_t> all_dimensions() const {
    std::vector<int64_t> dims;
    for (int64_t d = 0; d < rank(); ++d) dims.push_back(d);
    return dims;
  }

  std::vector<int64_t> other_dimensions() const {
    std::vector<int64_t> dims;
    for (int64_t d = 0; d < rank(); ++d) {
      if (!is_of_row(d)) dims.push_back(d);
    }
    return dims;
  }

  void widen(const checks::Argument& argument, const checks::Argument& first) {
    const auto sizes = argument.tensor.sizes();
    if (sizes.size() > sizes_.size()) sizes_.insert(sizes_.begin(), sizes.size() - sizes_.size(), 1);
    for (size_t i = 0; i < sizes.size(); ++i) {
      int64_t& size = sizes_[sizes_.size() - sizes.size() + i];
      if (sizes[i] == size || sizes[i] == 1) continue;
      if (size != 1) {
        checks::refuse(
            argument,
            "has shape " + checks::shape_text(sizes),
            "shapes that broadcast with " + checks::shape_text(sizes_) + " like " + first.name);
      }
      size = sizes[i];
    }
  }

  // The strides along the dimensions of the common shape: 0 where the tensor is repeated.
  std::vector<int64_t> strides_of(const checks::Tensor& tensor) const {
    const auto sizes = tensor.sizes(), strides = tensor.strides();
    std::vector<int64_t> result(sizes_.size() - sizes.size(), 0);
    for (size_t i = 0; i < sizes.size(); ++i) {
      result.push_back(sizes[i] == 1 ? 0 : strides[i]);
    }
    return result;
  }

  // The same of a tensor with the dimensions of a row, or one that is repeated as PyTorch's rules say.
  std::vector<int64_t> strides_in_rows(const checks::Tensor& tensor) const {
    if (!is_of_row_alone(tensor.sizes())) return strides_of(tensor);
    const auto strides = tensor.strides();
    std::vector<int64_t> result(sizes_.size(), 0);
    for (size_t i = 0; i < row_.size(); ++i) result[row_[i]] = strides[i];
    return result;
  }

  std::vector<int64_t> contiguous_strides() const {
    std::vector<int64_t> strides(sizes_.size(), 1);
    for (size_t d = sizes_.size(); d-- > 1;) strides[d - 1] = strides[d] * sizes_[d];
    return strides;
  }

  // The elements of a mask as numbers of the first tensor's dtype.
  static std::optional<checks::Tensor> as_numbers(const checks::Tensor& tensor, const checks::Tensor& first) {
    if (tensor.scalar_type() != torch::headeronly::ScalarType::Bool) return std::nullopt;
    const auto sizes = tensor.sizes();
    checks::Tensor numbers = empty_contiguous(first, std::vector<int64_t>(sizes.begin(), sizes.end()));
    torch::stable::copy_(numbers, tensor);
    return numbers;
  }

  const checks::Tensor& copy_of(size_t place, const checks::Tensor& tensor) const {
    return copies_[place] ? *copies_[place] : tensor;
  }

  // The sizes of some dimensions, taken together from the innermost on where they lie one after the other in every
  // tensor. Their strides are appended to those of before.
  std::vector<int64_t> joined(const std::vector<int64_t>& dims) {
    std::vector<int64_t> sizes;
    for (auto dim = dims.rbegin(); dim != dims.rend(); ++dim) {
      const int64_t d = *dim;
      if (sizes_[d] == 1) continue;
      bool joins = !sizes.empty();
      for (size_t i = 0; joins && i < strides_.size(); ++i) {
        joins = strides_[i][d] == collapsed_[i].back() * sizes.back();
      }
      if (joins) {
        sizes.back() *= sizes_[d];
        continue;
      }
      sizes.push_back(sizes_[d]);
      for (size_t i = 0; i < strides_.size(); ++i) collapsed_[i].push_back(strides_[i][d]);
    }
    return sizes;
  }

  // `parts`: the sizes of a row's dimensions, or of all where there are no others.
  void set_rows(std::vector<int64_t> parts, std::vector<int64_t> others, const checks::Argument& first) {
    if (parts.empty()) {
      parts.push_back(1);
      for (auto& strides : collapsed_) strides.insert(strides.begin(), 1);
    }
    if (row_.empty()) {
      others.assign(parts.begin() + 1, parts.end());
      parts.resize(1);
    }
    if (others.size() > kRowDimensions) {
      checks::refuse(
          first,
          "and the other tensors have " + std::to_string(others.size() + 1) +
              " dimensions that lie in different orders",
          std::to_string(kRowDimensions + 1) + " or fewer");
    }
    row_parts_ = parts.size();
    rows_.inner = parts[0];
    rows_.n = parts[0] * (parts.size() > 1 ? parts[1] : 1);
    rows_.batch = sizes_.empty() ? 1 : sizes_[0];
    rows_.dimensions = static_cast<int>(others.size());
    for (int d = 0; d < rows_.dimensions; ++d) {
      rows_.sizes[d] = others[d];
      rows_.count *= others[d];
    }
  }

  template <typename T>
  Operand<T> operand_at(size_t place, const T* data, int64_t vector) const {
    const std::vector<int64_t>& strides = collapsed_[place];
    Operand<T> operand;
    operand.data = data;
    operand.step = strides[0];
    operand.outer_step = row_parts_ > 1 ? strides[1] : 0;
    const bool is_aligned = reinterpret_cast<uintptr_t>(data) % (vector * sizeof(T)) == 0;
    operand.vectors = row_parts_ == 1 && (strides[0] == 0 || (strides[0] == 1 && is_aligned));
    operand.flat = row_parts_ == 1 && strides[0] == 1;
    int64_t elements = rows_.n;
    for (size_t d = row_parts_; d < strides.size(); ++d) {
      operand.strides[d - row_parts_] = strides[d];
      operand.vectors = operand.vectors && (strides[0] == 0 || strides[d] % vector == 0);
      operand.flat = operand.flat && strides[d] == elements;
      elements *= rows_.sizes[d - row_parts_];
    }
    return operand;
  }

  std::vector<int64_t> sizes_, row_;
  std::vector<std::optional<checks::Tensor>> copies_;      // of tensors of rows that cannot be read where they lie
  std::vector<std::vector<int64_t>> strides_, collapsed_;  // of each tensor
  size_t row_parts_ = 1;
  Rows rows_;
};
