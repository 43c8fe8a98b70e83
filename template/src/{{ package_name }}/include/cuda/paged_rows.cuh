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
  __device__ int64_t page_of(int row) const { return page_of_number(numbers[row >> shift]); }
  __device__ int64_t page_of_number(int number) const {
    return min(static_cast<unsigned>(number), static_cast<unsigned>(count - 1));
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

// Sixteen such rows at a time, by a warp that looks their pages up before it reads them. `kOnePage`: they lie in one
// page, since pages have sixteen rows or more, and the first of them is a multiple of sixteen.
template <typename T, bool kOnePage>
struct PagedSteps {
  struct Place {
    int number;  // The page's of row i % 16, for lane i: as it is in the table, so that nobody waits for it here.
  };
  using Page = int;
  PagedRows<const T> rows;

  // Of the rows from `first_row` on. Nothing is looked up for those from `end` on.
  __device__ Place place_of(int first_row, int end) const {
    const int row = kOnePage ? first_row : first_row + threadIdx.x % 16;
    return {row < end ? rows.pages.numbers[row >> rows.pages.shift] : 0};
  }
  // Of row i of them.
  __device__ Page page_of(const Place& place, int i) const {
    return rows.pages.page_of_number(kOnePage ? place.number : __shfl_sync(0xffffffff, place.number, i));
  }
  __device__ const T* row(Page page, int first_row, int i) const {
    if constexpr (kOnePage) return rows.of_page(page, first_row) + i * rows.stride;
    return rows.of_page(page, first_row + i);
  }
};

#endif
