// Rows that lie in pages of a cache.

#pragma once

#include <cstdint>

#include "attention_views.h"

// Where a sequence's rows are: its row of the page table, for pages of 2^shift rows. A number that is no page's stands
// for some page, so that nothing outside the cache is read.
struct Pages {
  const int* numbers;
  int shift, count;

#ifdef __CUDACC__
  // The page of a row, and the row in it.
  __device__ int64_t page_of(int row) const {
    return min(static_cast<unsigned>(numbers[row >> shift]), static_cast<unsigned>(count - 1));
  }
  __device__ int row_in_page(int row) const { return row & ((1 << shift) - 1); }
#endif
};

#ifdef __CUDACC__

// The rows of one head, in a view (page, row, head, dimension).
template <typename T>
struct PagedRows {
  T* data;
  int64_t page_stride;
  int stride;
  Pages pages;

  __device__ PagedRows(const attention::View& view, int head, const Pages& pages)
      : data(static_cast<T*>(view.data) + head * view.head), page_stride(view.batch), stride(view.row), pages(pages) {}

  __device__ T* operator[](int row) const {
    return data + pages.page_of(row) * page_stride + pages.row_in_page(row) * stride;
  }
};

#endif
