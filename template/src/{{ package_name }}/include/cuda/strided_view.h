// A tensor of any layout, element by element, as the host describes it to a kernel. Plain C++: the CPU's kernels use it
// too.

#pragma once

#include <cstdint>
#include <type_traits>

#include "divisor.cuh"

// The most dimensions that lie apart in memory.
constexpr int kStridedDimensions = 5;

// Sizes and strides, the last dimension first. A dimension of one element is none, and neighbours that lie as one
// dimension are one.
struct StridedLayout {
  int dimensions = 0;
  int64_t sizes[kStridedDimensions] = {};
  int64_t strides[kStridedDimensions] = {};
};

// Index is int, where the number of an element and every offset fit 32 bits: a division is a multiplication then. Else
// it is int64_t.
template <typename T, typename Index>
class StridedView {
 public:
  StridedView(T* data, const StridedLayout& layout) : data_(data), dimensions_(layout.dimensions) {
    for (int d = 0; d < dimensions_; ++d) {
      sizes_[d] = static_cast<Index>(layout.sizes[d]);
      strides_[d] = static_cast<Index>(layout.strides[d]);
      if constexpr (std::is_same_v<Index, int>) by_sizes_[d] = Divisor(sizes_[d] > 0 ? sizes_[d] : 1);
    }
  }

  // The element of this number, counted along the last dimension first, as in a contiguous tensor of the shape.
  DIVISOR_FUNCTION T& operator[](Index element) const { return data_[offset(element)]; }

  DIVISOR_FUNCTION Index offset(Index element) const {
    Index offset = 0;
    for (int d = 0; d < kStridedDimensions; ++d) {
      if (d + 1 >= dimensions_) return offset + (dimensions_ == 0 ? element : element * strides_[d]);
      Index next;
      if constexpr (std::is_same_v<Index, int>) {
        next = by_sizes_[d].divide(element);
      } else {
        next = element / sizes_[d];
      }
      offset += (element - next * sizes_[d]) * strides_[d];
      element = next;
    }
    return offset;
  }

 private:
  T* data_;
  int dimensions_;
  Index sizes_[kStridedDimensions] = {};
  Index strides_[kStridedDimensions] = {};
  Divisor by_sizes_[kStridedDimensions];
};
