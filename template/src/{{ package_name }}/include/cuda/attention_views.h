// Tensors of heads, as the kernels of attention read and write them.

#pragma once

#include <cstdint>

#ifdef __CUDACC__
#define HOST_DEVICE __host__ __device__
#else
#define HOST_DEVICE
#endif

namespace attention {

// A tensor (batch, row, head, dimension). Strides count elements. The elements of a head are contiguous; every stride
// and the address are multiples of 16 bytes.
struct View {
  void* data;
  int64_t batch;
  int64_t head;
  int row;
};

// The rows of one head.
template <typename T>
struct Rows {
  T* first;
  int stride;

  HOST_DEVICE Rows(const View& view, int64_t batch, int head)
      : first(static_cast<T*>(view.data) + batch * view.batch + head * view.head), stride(view.row) {}

  HOST_DEVICE T* operator[](int row) const { return first + int64_t(row) * stride; }
};

}  // namespace attention

#undef HOST_DEVICE
