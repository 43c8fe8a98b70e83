// Elements that 32 bits number, of tensors whose last dimension is cut into parts, or whose values depend on where an
// element lies: how kernels as those of pointwise.cuh read and write them.

#pragma once

#include "cache_hints.cuh"
#include "divisor.cuh"
#include "operand.h"
#include "pointwise.cuh"

// A place among elements that 32 bits number.
struct SmallPlace {
  int element, column;
  struct {
    int places[kRowDimensions] = {};
  } row;

  // The places of a row along some dimensions of the rows.
  __device__ void set_row(int number, int dimensions, const Divisor (&by_sizes)[kRowDimensions]) {
    row.places[0] = number;
    if (dimensions <= 1) return;
#pragma unroll
    for (int d = 0; d + 1 < kRowDimensions; ++d) {
      if (d + 1 >= dimensions) break;
      const int next = by_sizes[d].divide(number);
      row.places[d] = number - next * by_sizes[d].value();
      row.places[d + 1] = number = next;
    }
  }
};

// The elements N of an access in a layout, and how many accesses a thread has in flight of each tensor: kTuned of 16
// bytes, or some that are smaller.
template <typename Layout, typename T, int kTuned>
struct Accesses {
  static constexpr int N = Layout::kElements ? Layout::kElements : kOperandVector<T>;
  static constexpr int kSmall = kOperandVector<T> > 2 * N ? kOperandVector<T> / (2 * N) : 1;
  static constexpr int kUnroll = Layout::kElements ? kSmall : kTuned;
};

// The same as BroadcastElements, of tensors of which 32 bits number all elements: a place takes a third of the
// instructions. An access of kElements_ elements (0: of 16 bytes) is a vector where kVectors_, or one number of all
// where kNumbers_ as well.
template <bool kVectors_, int kElements_, bool kNumbers_ = false>
class SmallElements {
 public:
  static constexpr bool kVectors = kVectors_;
  static constexpr int kElements = kElements_;
  static constexpr bool kNumbers = kNumbers_;
  using Index = int;
  template <typename T>
  using Tensor = Operand<T>;

  explicit SmallElements(const Rows& rows)
      : count_(static_cast<int>(rows.count * rows.n)),
        columns_(static_cast<int>(rows.n)),
        dimensions_(rows.dimensions),
        by_columns_(static_cast<int>(rows.n)) {
    for (int d = 0; d < dimensions_; ++d) by_sizes_[d] = Divisor(static_cast<int>(rows.sizes[d]));
  }

  __device__ int count() const { return count_; }
  __device__ int columns() const { return columns_; }
  __device__ int lines() const { return by_sizes_[0].value(); }
  __device__ int dimensions() const { return dimensions_; }

  __device__ SmallPlace place(int element) const {
    SmallPlace place;
    place.element = element;
    const int row = by_columns_.divide(element);
    place.column = element - row * columns_;
    place.set_row(row, dimensions_, by_sizes_);
    return place;
  }

 private:
  int count_, columns_, dimensions_;
  Divisor by_columns_, by_sizes_[kRowDimensions];
};

template <bool kVectors, int kElements, bool kNumbers, typename T>
__device__ int offset_of(
    const Operand<T>& operand, const SmallElements<kVectors, kElements, kNumbers>& elements, const SmallPlace& place) {
  const auto stride = [&](int d) { return static_cast<int>(operand.strides[d]); };
  int offset = place.column * static_cast<int>(operand.step);
  // A branch would take longer where there are fewer.
  offset += place.row.places[0] * stride(0) + place.row.places[1] * stride(1);
  if (elements.dimensions() > 2) {
#pragma unroll
    for (int d = 2; d < kRowDimensions; ++d) offset += place.row.places[d] * stride(d);
  }
  return offset;
}

template <bool kVectors, int kElements, bool kNumbers, typename T>
__device__ const T* address(
    const Operand<T>& operand, const SmallElements<kVectors, kElements, kNumbers>& elements, const SmallPlace& place) {
  return operand.data + offset_of(operand, elements, place);
}

template <bool kVectors, int kElements, bool kNumbers, typename T>
__device__ T* address(
    const ResultPart<T>& part, const SmallElements<kVectors, kElements, kNumbers>& elements, const SmallPlace& place) {
  return part.values + offset_of(part, elements, place);
}

// The elements of an access that begins at a place; zeros past the last element.
template <int N, bool kVectors, int kElements, bool kNumbers, typename T>
__device__ Vector<T, N> read(
    const Operand<T>& operand, const SmallElements<kVectors, kElements, kNumbers>& elements, const SmallPlace& place) {
  const T* const from = address(operand, elements, place);
  if constexpr (kVectors) {
    const bool is_valid = operand.data && place.element + N <= elements.count();
    if constexpr (kNumbers) return read_vector<N>(from, is_valid, operand.step == 0);
    return load_evict_last<N>(from, 0, is_valid);
  } else {
    static_assert(N == 1, "elements that are no vectors are read one by one");
    return operand.data && place.element < elements.count() ? Vector<T, N>{*from} : Vector<T, N>{};
  }
}

// The same for a part of the rows of results, from a place on.
template <int N, bool kVectors, int kElements, bool kNumbers, typename T>
__device__ void write(
    const ResultPart<T>& part,
    const SmallElements<kVectors, kElements, kNumbers>& elements,
    const SmallPlace& place,
    const Vector<T, N>& values) {
  T* const to = address(part, elements, place);
  if (place.element + N <= elements.count()) store_evict_last(to, 0, values);
}
