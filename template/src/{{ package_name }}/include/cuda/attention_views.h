// Tensors of heads, as the kernels of attention read and write them.

#pragma once

#include <cstdint>

#ifdef __CUDACC__
#define VIEW_FUNCTION __host__ __device__
#else
#define VIEW_FUNCTION
#endif

namespace attention {

// A tensor (batch, row, head, dimension). Strides count elements. The elements of a head are contiguous; every stride
// and the address are multiples of 16 bytes.
struct View {
  void* data;
  int64_t batch;
  int64_t head;
  int row;
  int dims = 0;  // Of a head.
};

// The rows of one head, from row `begin` of the tensor on.
template <typename T>
struct Rows {
  T* data;
  int stride, begin;

  VIEW_FUNCTION Rows(const View& view, int64_t batch, int head, int begin = 0)
      : data(static_cast<T*>(view.data) + batch * view.batch + head * view.head), stride(view.row), begin(begin) {}

  VIEW_FUNCTION T* operator[](int row) const { return data + int64_t(begin + row) * stride; }
};

}  // namespace attention

#undef VIEW_FUNCTION
