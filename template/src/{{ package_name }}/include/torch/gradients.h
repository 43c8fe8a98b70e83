// Gradients of tensors that were broadcast, each in the shape of its tensor.

#pragma once

#include <torch/csrc/stable/ops.h>

#include <vector>

#include "broadcast.h"
#include "contiguous.h"
#include "dtypes.h"
#include "gradient.h"

// A sum over the dimensions along which a tensor of these sizes was repeated.
inline checks::Tensor sum_to(const checks::Tensor& gradient, const std::vector<int64_t>& sizes) {
  const int64_t added = gradient.dim() - static_cast<int64_t>(sizes.size());
  std::vector<int64_t> dims;
  for (int64_t d = 0; d < gradient.dim(); ++d) {
    if (d < added || (sizes[d - added] == 1 && gradient.size(d) != 1)) dims.push_back(d);
  }
  return dims.empty() ? gradient : torch::stable::view(torch::stable::sum(gradient, dims, true), sizes);
}

class BroadcastGradients {
 public:
  struct Wanted {
    const checks::Tensor& tensor;
    bool needed;
  };

  // `like`: a tensor of the gradients' dtype and device.
  BroadcastGradients(const Broadcast& shape, const checks::Tensor& like, std::initializer_list<Wanted> wanted)
      : shape_(shape), like_(like) {
    for (const Wanted& gradient : wanted) {
      const auto sizes = gradient.tensor.sizes();
      wanted_.push_back({gradient.needed, std::vector<int64_t>(sizes.begin(), sizes.end()), std::nullopt, false});
    }
  }

  // The rows of partial sums of `columns` sums that a kernel leaves of each vector, if it can add up rows; else 0.
  // Allocates the gradients.
  template <typename T>
  void allocate(int64_t partial_rows) {
    int64_t vectors = 0;
    for (Item& item : wanted_) {
      if (!item.needed) continue;
      item.is_summed = partial_rows > 0 && is_vector(item.sizes);
      vectors += item.is_summed;
      item.result = empty_contiguous(like_, item.is_summed ? item.sizes : shape_.sizes());
    }
    if (vectors == 0) return;
    const int64_t columns = shape_.rows().n;
    using Sum = typename Gradient<T>::Sum;
    const auto dtype = sizeof(Sum) == 8 ? ScalarType::Double : ScalarType::Float;
    stride_ = vectors * columns;
    partial_ = empty_contiguous(like_, {partial_rows, stride_}, dtype);
    Sum* sums = dtypes::mutable_data<Sum>(*partial_);
    for (Item& item : wanted_) {
      if (!item.is_summed) continue;
      item.partial = sums;
      sums += columns;
    }
  }

  // Where the kernel writes the i-th gradient.
  template <typename T>
  Gradient<T> gradient(size_t i) const {
    const Item& item = wanted_[i];
    Gradient<T> gradient;
    if (!item.needed) return gradient;
    T* const data = dtypes::mutable_data<T>(*item.result);
    (item.is_summed ? gradient.sums : gradient.values) = data;
    gradient.partial = static_cast<typename Gradient<T>::Sum*>(item.partial);
    gradient.partial_stride = stride_;
    return gradient;
  }

  // The i-th gradient; of shape (0,) where it is not needed.
  checks::Tensor result(size_t i) const {
    const Item& item = wanted_[i];
    if (!item.needed) return empty_contiguous(like_, {0});
    return item.is_summed ? *item.result : sum_to(*item.result, item.sizes);
  }

 private:
  struct Item {
    bool needed;
    std::vector<int64_t> sizes;
    std::optional<checks::Tensor> result;
    bool is_summed;
    void* partial = nullptr;
  };

  // Whether all rows have the tensor in common: it has their last dimensions, and all of a row's elements.
  bool is_vector(const std::vector<int64_t>& sizes) const {
    if (shape_.rows().count <= 1) return false;
    int64_t elements = 1;
    auto full = shape_.sizes().rbegin();
    for (auto size = sizes.rbegin(); size != sizes.rend(); ++size, ++full) {
      if (*size != (elements == shape_.rows().n ? 1 : *full)) return false;
      elements *= *size;
    }
    return elements == shape_.rows().n;
  }

  const Broadcast& shape_;
  const checks::Tensor like_;
  std::vector<Item> wanted_;
  std::optional<checks::Tensor> partial_;
  int64_t stride_ = 0;
};
