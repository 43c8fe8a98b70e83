// Broadcasting: tensors as rows of the one shape that PyTorch's rules give them, without a copy.

#pragma once

#include <torch/csrc/stable/ops.h>

#include <algorithm>
#include <initializer_list>
#include <limits>
#include <optional>
#include <string>
#include <utility>
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

// The sizes of a tensor that has only these dimensions of another one, counted from its end, with the others of size 1.
inline std::vector<int64_t> spread_sizes(const checks::Tensor& tensor, const std::vector<int64_t>& dims) {
  std::vector<int64_t> sizes(static_cast<size_t>(-dims.front()), 1);
  for (size_t i = 0; i < dims.size(); ++i) sizes[sizes.size() + dims[i]] = tensor.size(static_cast<int64_t>(i));
  return sizes;
}

// The same as a view of these sizes, which is repeated to the other tensor's shape.
inline checks::Tensor spread(const checks::Tensor& tensor, const std::vector<int64_t>& dims) {
  return torch::stable::view(tensor, spread_sizes(tensor, dims));
}

// The elements of a mask as numbers of another tensor's dtype.
inline std::optional<checks::Tensor> as_numbers(const checks::Tensor& tensor, const checks::Tensor& like) {
  if (tensor.scalar_type() != torch::headeronly::ScalarType::Bool) return std::nullopt;
  const auto sizes = tensor.sizes();
  checks::Tensor numbers = empty_contiguous(like, std::vector<int64_t>(sizes.begin(), sizes.end()));
  torch::stable::copy_(numbers, tensor);
  return numbers;
}

// A tensor, and how its last dimension is cut.
struct CutArgument {
  checks::Argument argument;
  Cut cut;
};

// That formulas read the places of an element along the last two dimensions of the first tensor, which others are
// repeated to; these are of one size where they are square.
struct Planes {
  static constexpr bool kSquare = true;

  bool is_square = false;
};

// That formulas read neighbours of an element along the last two dimensions: how much larger results are than tensors
// there, and how many dimensions the first tensor has to have, whose shape all are repeated to.
struct Border {
  int64_t lines = 0;
  int64_t columns = 0;
  int64_t dimensions = 2;
};

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

  // The same of tensors of planes, of which rows are the last dimension alone.
  Broadcast(std::initializer_list<checks::Argument> tensors, Planes planes) {
    const checks::Argument& first = *tensors.begin();
    checks::has_dimensions(first, 2);
    const auto sizes = first.tensor.sizes();
    if (planes.is_square && sizes[sizes.size() - 1] != sizes[sizes.size() - 2]) {
      checks::refuse(first, "has shape " + checks::shape_text(sizes), "a last dimension as long as the one before");
    }
    for (const checks::Argument& tensor : tensors) widen(tensor, first);
    check_whole(first);
    apart_ = rank() - 2;
    for (const checks::Argument& tensor : tensors) strides_.push_back(strides_of(tensor.tensor));
    collapsed_.resize(strides_.size());
    set_rows(joined(all_dimensions()), {}, first);
  }

  // The same of tensors whose neighbours are read. `grads`, those of results, come before the tensors: they are as
  // large as the results of the forward, and what is computed of them is as large as the tensors.
  Broadcast(
      std::initializer_list<checks::Argument> tensors,
      Border border,
      std::initializer_list<checks::Argument> grads = {}) {
    const checks::Argument& first = *tensors.begin();
    checks::has_dimensions(first, border.dimensions);
    for (const checks::Argument& tensor : tensors) widen(tensor, first);
    check_whole(first);
    std::vector<int64_t> of_results = sizes_;
    of_results.back() = std::max<int64_t>(0, of_results.back() + border.columns);
    if (rank() > 1) of_results[rank() - 2] = std::max<int64_t>(0, of_results[rank() - 2] + border.lines);
    for (const checks::Argument& grad : grads) {
      const auto sizes = grad.tensor.sizes();
      if (std::vector<int64_t>(sizes.begin(), sizes.end()) != of_results) {
        checks::refuse(
            grad, "has shape " + checks::shape_text(sizes), "that of results, " + checks::shape_text(of_results));
      }
      strides_.push_back(strides_of(grad.tensor));
      bounds_.push_back(of_results);
    }
    for (const checks::Argument& tensor : tensors) {
      strides_.push_back(strides_of(tensor.tensor));
      bounds_.push_back(sizes_);
    }
    if (grads.size() == 0) sizes_ = of_results;
    apart_ = rank() - 2;
    collapsed_.resize(strides_.size());
    set_rows(joined(all_dimensions()), {}, first);
  }

  // Tensors whose last dimension is cut into parts, all of the same size; their other dimensions broadcast, or are the
  // same. `results`: how those are cut that are joined of parts.
  Broadcast(std::initializer_list<CutArgument> tensors, std::initializer_list<Cut> results, bool broadcasts) {
    const CutArgument& first = *tensors.begin();
    for (const CutArgument& tensor : tensors) {
      check_parts(tensor, first);
      if (!broadcasts) check_rows(tensor, first);
      widen(tensor.argument, part_sizes(tensor), first.argument);
    }
    for (const CutArgument& tensor : tensors) {
      const auto strides = tensor.argument.tensor.strides();
      std::vector<int64_t> part_strides(strides.begin(), strides.end());
      offsets_.push_back(part_strides.back() * (tensor.cut.in_turns ? 1 : part_sizes(tensor).back()));
      turns_.push_back(!tensor.cut.in_turns ? 1 : part_strides.back() == 1 ? tensor.cut.parts : 0);
      if (tensor.cut.in_turns) part_strides.back() *= tensor.cut.parts;
      strides_.push_back(strides_of(part_sizes(tensor), part_strides));
    }
    for (const Cut& cut : results) add_result(cut);
    has_turns_ = std::any_of(turns_.begin(), turns_.end(), [](int64_t turns) { return turns != 1; });
    collapsed_.resize(strides_.size());
    set_rows(joined(all_dimensions()), {}, first.argument);
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

  // The same of rows of the last dimension, of tensors some of which are cut into parts that lie one after the other:
  // a row is as long as a part.
  Broadcast(std::initializer_list<CutArgument> tensors, std::vector<int64_t> row) : row_(std::move(row)) {
    const CutArgument& first = *tensors.begin();
    for (const CutArgument& tensor : tensors) {
      if (tensor.cut.parts > 1) check_parts(tensor, first);
      if (sizes_.empty()) {
        sizes_ = part_sizes(tensor);
        row_[0] = rank() - 1;
      }
      check_repeated(tensor);
      copies_.push_back(as_numbers(tensor.argument.tensor, first.argument.tensor));
      const checks::Tensor& read = copy_of(copies_.size() - 1, tensor.argument.tensor);
      turns_.push_back(1);
      if (tensor.cut.parts == 1) {
        offsets_.push_back(0);
        strides_.push_back(strides_in_rows(read));
        continue;
      }
      const std::vector<int64_t> of_part = part_sizes(tensor);
      offsets_.push_back(read.stride(read.dim() - 1) * of_part.back());
      strides_.push_back(strides_of(of_part, read.strides()));
    }
    strides_.push_back(contiguous_strides());
    collapsed_.resize(strides_.size());
    const std::vector<int64_t> parts = joined(row_);
    set_rows(parts, joined(other_dimensions()), first.argument);
  }

  // The shape of results.
  const std::vector<int64_t>& sizes() const { return sizes_; }

  // The same of results that are joined of parts.
  std::vector<int64_t> sizes(const Cut& cut) const {
    std::vector<int64_t> sizes = sizes_;
    sizes.back() *= cut.parts;
    return sizes;
  }

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

  // The tensor that was `place`-th in the list; `vector` is how many of its elements an access shall read. One that is
  // not `needed` has no data, and CUDA kernels of elements read zeros.
  template <typename T>
  Operand<T> operand(size_t place, const checks::Tensor& tensor, int64_t vector = 1, bool needed = true) const {
    const checks::Tensor& read = row_.empty() ? tensor : copy_of(place, tensor);
    const T* const data = needed ? static_cast<const T*>(read.const_data_ptr()) : nullptr;
    return operand_at(place, data, data, vector);
  }

  // The same where neighbours of its elements are read.
  template <typename T>
  BoundedOperand<T> bounded(size_t place, const checks::Tensor& tensor, int64_t vector = 1, bool needed = true) const {
    const std::vector<int64_t>& sizes = bounds_[place];
    BoundedOperand<T> bounded;
    static_cast<Operand<T>&>(bounded) = operand<T>(place, tensor, vector, needed);
    bounded.lines = sizes.size() > 1 ? sizes[sizes.size() - 2] : 1;
    bounded.columns = sizes.back();
    bounded.extent = 1;
    for (size_t d = 0; d < sizes.size(); ++d) bounded.extent += (sizes[d] - 1) * strides_[place][d];
    bounded.small = bounded.small && bounded.extent <= std::numeric_limits<int>::max();
    return bounded;
  }

  // The same of a part of the tensor's rows.
  template <typename T>
  Operand<T> part(
      size_t place, int64_t part, const checks::Tensor& tensor, int64_t vector = 1, bool needed = true) const {
    const T* const first = static_cast<const T*>(tensor.const_data_ptr());
    const T* const data = first + part * offsets_[place];
    Operand<T> operand = operand_at(place, data, turns_[place] == 1 ? data : first, vector);
    if (!needed) operand.data = nullptr;
    return operand;
  }

  // A part of a new result that is cut so, which the constructor was told.
  template <typename T>
  ResultPart<T> result_part(const Cut& cut, int64_t part, T* values, int64_t vector = 1) const {
    size_t place = offsets_.size();
    for (const Cut& other : result_cuts_) {
      if (other.parts == cut.parts && other.in_turns == cut.in_turns) break;
      ++place;
    }
    const int64_t offset = cut.in_turns ? part : part * sizes_.back();
    ResultPart<T> result;
    result.values = values ? values + offset : nullptr;
    static_cast<Operand<T>&>(result) =
        operand_at<T>(place, result.values, cut.in_turns ? values : result.values, vector);
    // So it is known before the result is allocated.
    result.vectors = result.vectors && (cut.in_turns || offset % vector == 0);
    result.narrow = result.narrow && (cut.in_turns || has_turns_ || offset % kNarrow<false> == 0);
    return result;
  }

  // Whether the results of rows lie one row after the other.
  bool has_flat_results() const { return row_.empty() || layout<char>().flat; }

  // How the results of rows lie.
  template <typename T>
  Operand<T> layout(int64_t vector = 1) const {
    return operand_at<T>(strides_.size() - 1, nullptr, nullptr, vector);
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

  // Refuses a first tensor that is smaller than all together.
  void check_whole(const checks::Argument& first) const {
    const auto sizes = first.tensor.sizes();
    if (sizes_ == std::vector<int64_t>(sizes.begin(), sizes.end())) return;
    checks::refuse(
        first, "has shape " + checks::shape_text(sizes), "the shape of all tensors, " + checks::shape_text(sizes_));
  }

  void widen(const checks::Argument& argument, const checks::Argument& first) {
    widen(argument, argument.tensor.sizes(), first);
  }

  template <typename Sizes>
  void widen(const checks::Argument& argument, const Sizes& sizes, const checks::Argument& first) {
    if (sizes.size() > sizes_.size()) sizes_.insert(sizes_.begin(), sizes.size() - sizes_.size(), 1);
    for (size_t i = 0; i < sizes.size(); ++i) {
      int64_t& size = sizes_[sizes_.size() - sizes.size() + i];
      if (sizes[i] == size || sizes[i] == 1) continue;
      if (size != 1) {
        checks::refuse(
            argument,
            "has shape " + checks::shape_text(argument.tensor.sizes()),
            "shapes that broadcast with " + checks::shape_text(sizes_) + " like " + first.name);
      }
      size = sizes[i];
    }
  }

  static std::vector<int64_t> part_sizes(const CutArgument& tensor) {
    const auto whole = tensor.argument.tensor.sizes();
    std::vector<int64_t> sizes(whole.begin(), whole.end());
    if (tensor.cut.parts > 1) sizes.back() /= tensor.cut.parts;
    return sizes;
  }

  // Refuses a tensor whose parts are not equal, or not as long as those of the first.
  static void check_parts(const CutArgument& tensor, const CutArgument& first) {
    const auto sizes = tensor.argument.tensor.sizes();
    const int64_t parts = tensor.cut.parts;
    if (sizes.size() == 0 || sizes[sizes.size() - 1] % parts != 0) {
      checks::refuse(
          tensor.argument,
          "has shape " + checks::shape_text(sizes),
          parts == 1 ? "one or more dimensions" : "a last dimension that is a multiple of " + std::to_string(parts));
    }
    const int64_t n = part_sizes(first).back();
    if (sizes[sizes.size() - 1] != parts * n) {
      checks::refuse(
          tensor.argument,
          "has shape " + checks::shape_text(sizes),
          "a last dimension of " + std::to_string(parts * n) + " beside " + first.argument.name + " of shape " +
              checks::shape_text(first.argument.tensor.sizes()));
    }
  }

  // Refuses a tensor whose parts are not repeated to the rows, as PyTorch repeats them.
  void check_repeated(const CutArgument& tensor) const {
    const std::vector<int64_t> sizes = part_sizes(tensor);
    bool fits = sizes.size() <= sizes_.size();
    for (size_t i = 1; fits && i <= sizes.size(); ++i) {
      const int64_t size = sizes[sizes.size() - i];
      fits = size == 1 || size == sizes_[sizes_.size() - i];
    }
    if (!fits) {
      checks::refuse(
          tensor.argument,
          "has shape " + checks::shape_text(tensor.argument.tensor.sizes()),
          "a shape that broadcasts to " + checks::shape_text(sizes_));
    }
  }

  // Refuses a tensor whose other dimensions are not those of the first.
  static void check_rows(const CutArgument& tensor, const CutArgument& first) {
    std::vector<int64_t> sizes = part_sizes(first);
    if (part_sizes(tensor) == sizes) return;
    sizes.back() *= tensor.cut.parts;
    checks::refuse(
        tensor.argument,
        "has shape " + checks::shape_text(tensor.argument.tensor.sizes()),
        "shape " + checks::shape_text(sizes) + " beside " + first.argument.name);
  }

  // The strides of the parts of a contiguous result, after those of the tensors.
  void add_result(const Cut& cut) {
    result_cuts_.push_back(cut);
    std::vector<int64_t> strides = contiguous_strides();
    for (int64_t& stride : strides) stride *= cut.parts;
    if (!cut.in_turns) strides.back() = 1;
    strides_.push_back(strides);
    turns_.push_back(cut.in_turns ? cut.parts : 1);
  }

  std::vector<int64_t> strides_of(const checks::Tensor& tensor) const {
    return strides_of(tensor.sizes(), tensor.strides());
  }

  // The strides along the dimensions of the common shape: 0 where the tensor is repeated.
  template <typename Sizes, typename Strides>
  std::vector<int64_t> strides_of(const Sizes& sizes, const Strides& strides) const {
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

  const checks::Tensor& copy_of(size_t place, const checks::Tensor& tensor) const {
    return copies_[place] ? *copies_[place] : tensor;
  }

  // The sizes of some dimensions, taken together from the innermost on where they lie one after the other in every
  // tensor. Their strides are appended to those of before.
  std::vector<int64_t> joined(const std::vector<int64_t>& dims) {
    std::vector<int64_t> sizes;
    for (auto dim = dims.rbegin(); dim != dims.rend(); ++dim) {
      const int64_t d = *dim;
      if (sizes_[d] == 1 && d < apart_) continue;
      bool joins = !sizes.empty() && d < apart_ - 1;
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
    rows_.lines = rank() < 2 ? 1 : sizes_[rank() - 2];
    rows_.dimensions = static_cast<int>(others.size());
    for (int d = 0; d < rows_.dimensions; ++d) {
      rows_.sizes[d] = others[d];
      rows_.count *= others[d];
    }
  }

  // `first`: the element that an access of the first row begins with.
  template <typename T>
  Operand<T> operand_at(size_t place, const T* data, const T* first, int64_t vector) const {
    const std::vector<int64_t>& strides = collapsed_[place];
    Operand<T> operand;
    operand.data = data;
    operand.step = strides[0];
    operand.outer_step = row_parts_ > 1 ? strides[1] : 0;
    operand.vectors = has_vectors(place, first, vector);
    operand.narrow = has_vectors(place, first, has_turns_ ? kNarrow<true> : kNarrow<false>);
    operand.flat = row_parts_ == 1 && strides[0] == 1;
    int64_t elements = rows_.n, last = (rows_.n - 1) * strides[0];
    for (size_t d = row_parts_; d < strides.size(); ++d) {
      operand.strides[d - row_parts_] = strides[d];
      last += (rows_.sizes[d - row_parts_] - 1) * strides[d];
      operand.flat = operand.flat && strides[d] == elements;
      elements *= rows_.sizes[d - row_parts_];
    }
    operand.small = row_parts_ == 1 && last <= std::numeric_limits<int>::max();
    return operand;
  }

  // Whether rows can be read so many elements at once, and as many of each part that takes turns; or are one number
  // each.
  template <typename T>
  bool has_vectors(size_t place, const T* first, int64_t elements) const {
    const std::vector<int64_t>& strides = collapsed_[place];
    const int64_t turns = place < turns_.size() ? turns_[place] : 1;
    if (row_parts_ > 1) return false;
    if (strides[0] == 0) return turns_.empty();  // Of parts, no row is one number.
    const int64_t at_once = turns == 1 ? elements : elements_at_once<T>(elements * turns);
    bool has_vectors = strides[0] == turns && reinterpret_cast<uintptr_t>(first) % (at_once * sizeof(T)) == 0;
    for (size_t d = row_parts_; d < strides.size(); ++d) {
      has_vectors = has_vectors && strides[d] % at_once == 0;
    }
    return has_vectors;
  }

  std::vector<int64_t> sizes_, row_;
  std::vector<std::vector<int64_t>> bounds_;  // the sizes of each tensor of which neighbours are read
  std::vector<int64_t> offsets_;              // between the parts of each tensor, where some are cut
  std::vector<int64_t> turns_;  // how many neighbours are a part's each: 1, or parts that take turns; 0: none are
  bool has_turns_ = false;
  std::vector<Cut> result_cuts_;
  std::vector<std::optional<checks::Tensor>> copies_;      // of tensors of rows that cannot be read where they lie
  std::vector<std::vector<int64_t>> strides_, collapsed_;  // of each tensor
  int64_t apart_ = std::numeric_limits<int64_t>::max();    // the first of the dimensions that are never taken together
  size_t row_parts_ = 1;
  Rows rows_;
};
