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
    // A dimension that is not there has a stride of 0. A loop that ended before it would have an index that is no
    // constant, for which a kernel's arguments are copied to local memory.
#ifdef __CUDACC__
#pragma unroll
#endif
    for (int d = 0; d < kStridedDimensions; ++d) {
      const Index next = d + 1 < dimensions_ ? divide(element, d) : 0;
      offset += (element - next * sizes_[d]) * strides_[d];
      element = next;
    }
    return offset;
  }

 private:
  DIVISOR_FUNCTION Index divide(Index element, int d) const {
    if constexpr (std::is_same_v<Index, int>) return by_sizes_[d].divide(element);
    return element / sizes_[d];
  }

  T* data_;
  int dimensions_;
  Index sizes_[kStridedDimensions] = {};
  Index strides_[kStridedDimensions] = {};
  Divisor by_sizes_[kStridedDimensions];
};
