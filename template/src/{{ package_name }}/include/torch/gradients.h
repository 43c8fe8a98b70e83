// Gradients of tensors that were broadcast, each in the shape of its tensor.

#pragma once

#include <torch/csrc/stable/ops.h>

#include <algorithm>
#include <vector>

#include "block_sums.h"
#include "broadcast.h"
#include "contiguous.h"
#include "dtypes.h"
#include "gradient.h"

// A sum over the dimensions along which a tensor of these sizes was repeated.
inline checks::Tensor sum_to(
    const checks::Tensor& gradient, const std::vector<int64_t>& sizes, const Broadcast& shape) {
  const int64_t added = gradient.dim() - static_cast<int64_t>(sizes.size());
  const std::vector<int64_t>& row = shape.row_dimensions();
  const bool is_of_row = shape.is_of_row_alone(sizes);
  std::vector<int64_t> dims;
  for (int64_t d = 0; d < gradient.dim(); ++d) {
    const bool is_added = is_of_row ? std::count(row.begin(), row.end(), d) == 0 : d < added;
    if (is_added || (!is_of_row && sizes[d - added] == 1 && gradient.size(d) != 1)) dims.push_back(d);
  }
  return dims.empty() ? gradient : torch::stable::view(torch::stable::sum(gradient, dims, true), sizes);
}

class BroadcastGradients {
 public:
  struct Wanted {
    const checks::Tensor& tensor;
    bool needed;
    Cut cut = {};
    std::vector<int64_t> dims = {};  // of a tensor that is repeated along others; see spread
  };

  // `like`: a tensor of the gradients' dtype and device.
  BroadcastGradients(const Broadcast& shape, const checks::Tensor& like, std::initializer_list<Wanted> wanted)
      : shape_(shape), like_(like) {
    for (const Wanted& gradient : wanted) {
      const auto own = gradient.tensor.sizes();
      const std::vector<int64_t> shape(own.begin(), own.end());
      const std::vector<int64_t>& dims = gradient.dims;
      wanted_.push_back(
          {gradient.needed,
           gradient.cut,
           dims.empty() ? shape : spread_sizes(gradient.tensor, dims),
           shape,
           {},
           {},
           {}});
    }
  }

  // Allocates the gradients; PyTorch adds up those that were broadcast. Their terms are rounded to T before, as
  // those of eager autograd are, and errors of terms average out to less than the rounding of the sum.
  template <typename T>
  void allocate() {
    for (Item& item : wanted_) {
      if (item.needed) item.values = new_values(item);
    }
  }

  // The same, with room for the sums of blocks of rows that a CPU kernel leaves of vectors; see block_sums.h.
  template <typename T>
  void allocate_block_sums() {
    using Sum = typename Gradient<T>::Sum;
    for (Item& item : wanted_) {
      if (!item.needed) continue;
      if (!is_vector(item)) {
        item.values = new_values(item);
        continue;
      }
      item.partial_rows = blocks_of_rows(shape_.rows().count);
      item.block_sums = empty_contiguous(like_, {item.partial_rows, shape_.rows().n}, type_of_sums<Sum>());
      item.partial = dtypes::mutable_data<Sum>(*item.block_sums);
      item.sums = empty_contiguous(like_, item.sizes);
      item.add_blocks = add_blocks<T>;
    }
  }

  // The same, with sums over the rows of vectors. `partial_rows`: the rows of partial sums that a kernel leaves of
  // those with a bit in `summed`, if it can add up rows; else 0. The values of others are written, and added up
  // afterwards.
  template <typename T>
  void allocate_sums(int64_t partial_rows, unsigned summed) {
    const int64_t columns = shape_.rows().n, stored_rows = stored_sum_rows(shape_.rows().count, columns);
    int64_t sums = 0;
    for (size_t i = 0; i < wanted_.size(); ++i) {
      Item& item = wanted_[i];
      if (!item.needed) continue;
      const bool by_kernel = partial_rows > 0 && summed >> i & 1;
      const bool is_summed = is_vector(item);
      if (is_summed) item.sums = empty_contiguous(like_, item.sizes);
      if (!is_summed || !by_kernel) item.values = new_values(item);
      if (!is_summed) continue;
      item.partial_rows = by_kernel ? partial_rows : stored_rows;
      sums += item.partial_rows * columns;
    }
    if (sums == 0) return;
    using Sum = typename Gradient<T>::Sum;
    partial_ = empty_contiguous(like_, {sums}, type_of_sums<Sum>());
    Sum* partial = dtypes::mutable_data<Sum>(*partial_);
    for (Item& item : wanted_) {
      if (!item.sums) continue;
      item.partial = partial;
      partial += item.partial_rows * columns;
    }
  }

  // How many of those with a bit in `chosen` are sums over the rows.
  int sums(unsigned chosen) const {
    int count = 0;
    for (size_t i = 0; i < wanted_.size(); ++i) {
      count += (chosen >> i & 1) && wanted_[i].needed && is_vector(wanted_[i]);
    }
    return count;
  }

  // Where the kernel writes the i-th gradient.
  template <typename T>
  Gradient<T> gradient(size_t i) const {
    const Item& item = wanted_[i];
    Gradient<T> gradient;
    if (item.values) gradient.values = dtypes::mutable_data<T>(*item.values);
    if (item.sums) gradient.sums = dtypes::mutable_data<T>(*item.sums);
    gradient.partial = static_cast<typename Gradient<T>::Sum*>(item.partial);
    gradient.partial_stride = shape_.rows().n;
    gradient.partial_rows = item.partial_rows;
    return gradient;
  }

  // The same of a part of a tensor whose last dimension is cut.
  template <typename T>
  ResultPart<T> part(size_t i, int64_t part, int64_t vector = 1) const {
    const Item& item = wanted_[i];
    T* const values = item.values ? dtypes::mutable_data<T>(*item.values) : nullptr;
    return shape_.result_part<T>(item.cut, part, values, vector);
  }

  // Where a kernel of rows writes a part of the i-th gradient; null: not needed.
  template <typename T>
  Gradient<T> part_of_rows(size_t i, int64_t part) const {
    const Item& item = wanted_[i];
    Gradient<T> gradient;
    if (item.values) gradient.values = dtypes::mutable_data<T>(*item.values) + part * shape_.rows().n;
    return gradient;
  }

  // The i-th gradient; of shape (0,) where it is not needed.
  checks::Tensor result(size_t i) const {
    const Item& item = wanted_[i];
    if (!item.needed) return empty_contiguous(like_, {0});
    if (item.add_blocks) item.add_blocks(item, shape_.rows().n, *item.sums);
    const checks::Tensor result = item.sums ? *item.sums : sum_to(*item.values, item.sizes, shape_);
    return item.sizes == item.shape ? result : torch::stable::view(result, item.shape);
  }

 private:
  struct Item {
    bool needed;
    Cut cut;
    std::vector<int64_t> sizes, shape;           // as it is repeated; its own
    std::optional<checks::Tensor> values, sums;  // of all rows; of the tensor's shape
    std::optional<checks::Tensor> block_sums;    // of a row for each block
    void* partial = nullptr;
    int64_t partial_rows = 0;
    void (*add_blocks)(const Item&, int64_t columns, const checks::Tensor& sums) = nullptr;
  };

  template <typename Sum>
  static constexpr ScalarType type_of_sums() {
    return sizeof(Sum) == 8 ? ScalarType::Double : ScalarType::Float;
  }

  // By the kernel's own loop: four calls of PyTorch's operators take longer than a small gradient.
  template <typename T>
  static void add_blocks(const Item& item, int64_t columns, const checks::Tensor& result) {
    constexpr int64_t kColumns = 512, kAdded = 1 << 15;  // of a task, and what is worth a thread of its own
    using Sum = typename Gradient<T>::Sum;
    Sum* const sums = static_cast<Sum*>(item.partial);
    T* const values = dtypes::mutable_data<T>(result);
    const int64_t grain = std::max<int64_t>(1, kAdded / (kColumns * item.partial_rows));
    torch::stable::parallel_for(0, (columns + kColumns - 1) / kColumns, grain, [&](int64_t begin, int64_t end) {
      const int64_t first = begin * kColumns, count = std::min(end * kColumns, columns) - first;
      add_rows(sums + first, item.partial_rows, columns, count, values + first);
    });
  }

  // Room for a gradient of all rows.
  checks::Tensor new_values(const Item& item) const {
    return empty_contiguous(like_, item.cut.parts > 1 ? shape_.sizes(item.cut) : shape_.sizes());
  }

  // Whether all rows have the tensor in common: it has their last dimensions, and all of a row's elements. PyTorch adds
  // up the gradients of tensors that are cut.
  bool is_vector(const Item& item) const {
    const std::vector<int64_t>& sizes = item.sizes;
    if (item.cut.parts > 1) return false;
    if (shape_.rows().count <= 1 || !shape_.has_flat_results()) return false;
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
};
