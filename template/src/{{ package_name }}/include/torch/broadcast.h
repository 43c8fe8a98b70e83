// Broadcasting: tensors as rows of the one shape that PyTorch's rules give them, without a copy.

#pragma once

#include <torch/csrc/stable/ops.h>

#include <algorithm>
#include <initializer_list>
#include <string>
#include <vector>

#include "checks.h"
#include "operand.h"

class Broadcast {
 public:
  // Refuses tensors whose shapes do not broadcast. `rows`: the last dimension stays by itself.
  explicit Broadcast(std::initializer_list<checks::Argument> tensors, bool rows = false) {
    const checks::Argument& first = *tensors.begin();
    for (const checks::Argument& tensor : tensors) {
      widen(tensor, first);
    }
    for (const checks::Argument& tensor : tensors) {
      strides_.push_back(strides_of(tensor.tensor));
    }
    collapse(first, rows);
  }

  // The shape of results.
  const std::vector<int64_t>& sizes() const { return sizes_; }

  // The shape of results with one number for each row; `keeps`: with a last dimension of 1.
  std::vector<int64_t> row_sizes(bool keeps) const {
    std::vector<int64_t> sizes(sizes_.begin(), sizes_.end() - 1);
    if (keeps) sizes.push_back(1);
    return sizes;
  }

  bool is_empty() const { return std::count(sizes_.begin(), sizes_.end(), 0) > 0; }

  const Rows& rows() const { return rows_; }

  // The tensor that was `place`-th in the list; `vector` is how many of its elements an access shall read.
  template <typename T>
  Operand<T> operand(size_t place, const checks::Tensor& tensor, int64_t vector = 1) const {
    const std::vector<int64_t>& strides = collapsed_[place];
    Operand<T> operand;
    operand.data = static_cast<const T*>(tensor.const_data_ptr());
    operand.step = strides[0];
    const bool is_aligned = reinterpret_cast<uintptr_t>(operand.data) % (vector * sizeof(T)) == 0;
    operand.vectors = strides[0] == 0 || (strides[0] == 1 && is_aligned);
    operand.flat = strides[0] == 1;
    int64_t elements = rows_.n;
    for (size_t d = 1; d < strides.size(); ++d) {
      operand.strides[d - 1] = strides[d];
      operand.vectors = operand.vectors && (strides[0] == 0 || strides[d] % vector == 0);
      operand.flat = operand.flat && strides[d] == elements;
      elements *= rows_.sizes[d - 1];
    }
    return operand;
  }

 private:
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

  // Takes dimensions together, from the innermost on, where they lie one after the other in every tensor.
  void collapse(const checks::Argument& first, bool rows) {
    std::vector<int64_t> sizes;
    collapsed_.resize(strides_.size());
    for (size_t d = sizes_.size(); d-- > 0;) {
      const bool is_row = rows && d + 1 == sizes_.size();
      if (sizes_[d] == 1 && !is_row) continue;
      bool joins = sizes.size() > (rows ? 1 : 0);
      for (size_t i = 0; joins && i < strides_.size(); ++i) {
        joins = strides_[i][d] == collapsed_[i].back() * sizes.back();
      }
      if (joins) {
        sizes.back() *= sizes_[d];
        continue;
      }
      sizes.push_back(sizes_[d]);
      for (size_t i = 0; i < strides_.size(); ++i) {
        collapsed_[i].push_back(strides_[i][d]);
      }
    }
    if (sizes.empty()) {
      sizes.push_back(1);
      for (auto& strides : collapsed_) strides.push_back(1);
    }
    if (sizes.size() > kRowDimensions + 1) {
      checks::refuse(
          first,
          "and the other tensors have " + std::to_string(sizes.size()) + " dimensions that lie in different orders",
          std::to_string(kRowDimensions + 1) + " or fewer");
    }
    rows_.n = sizes[0];
    rows_.dimensions = static_cast<int>(sizes.size()) - 1;
    for (int d = 0; d < rows_.dimensions; ++d) {
      rows_.sizes[d] = sizes[d + 1];
      rows_.count *= sizes[d + 1];
    }
  }

  std::vector<int64_t> sizes_;
  std::vector<std::vector<int64_t>> strides_, collapsed_;  // of each tensor
  Rows rows_;
};
