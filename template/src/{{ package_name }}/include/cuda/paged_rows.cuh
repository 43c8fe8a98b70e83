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

  __device__ T* operator[](int row) const { return of_page(pages.page_of(row), row); }
  // The same where the row's page is known.
  __device__ T* of_page(int64_t page, int row) const {
    return data + page * page_stride + pages.row_in_page(row) * stride;
  }
};

// Sixteen such rows at a time, by a warp that looks their pages up before it reads them.
template <typename T>
struct PagedSteps {
  struct Place {
    int page;  // Of row i % 16, for lane i.
  };
  PagedRows<const T> rows;

  // Of the rows from `first_row` on. Nothing is looked up for those from `end` on.
  __device__ Place place_of(int first_row, int end) const {
    const int row = first_row + threadIdx.x % 16;
    return {row < end ? static_cast<int>(rows.pages.page_of(row)) : 0};
  }
  // Row i of them.
  __device__ const T* row(const Place& place, int first_row, int i) const {
    return rows.of_page(__shfl_sync(0xffffffff, place.page, i), first_row + i);
  }
};

#endif
