// The table of a cache's pages: which page holds a sequence's rows 0 to page_size - 1, which the next and so on.

#pragma once

#include <torch/csrc/stable/tensor.h>

#include <string>

#include "attention_options.h"
#include "checks.h"
#include "contiguous.h"
#include "cumulative_lengths.h"
#include "dtypes.h"

namespace page_table {

using torch::headeronly::ScalarType;
using torch::stable::Tensor;

// A cache of keys and values, (page, row, head, dimension) each, and its table (sequences, columns).
struct Cache {
  checks::Argument k, v, table;

  int64_t pages() const { return k.tensor.size(0); }
  int64_t page_size() const { return k.tensor.size(1); }
  int64_t rows() const { return table.tensor.size(1) * page_size(); }  // That a sequence may have.
};

inline int shift_of(int64_t page_size) {
  int shift = 0;
  while ((int64_t(1) << shift) < page_size) ++shift;
  return shift;
}

inline void check(const Cache& cache) {
  for (const checks::Argument& argument : {cache.k, cache.v}) {
    if (argument.tensor.dim() != 4) {
      checks::refuse(
          argument, "has " + std::to_string(argument.tensor.dim()) + " dimensions", "4: (page, row, head, dimension)");
    }
  }
  const int64_t page_size = cache.page_size();
  if (page_size < 1 || page_size > 65536 || (page_size & (page_size - 1)) != 0) {
    checks::refuse(
        cache.k, "has pages of " + std::to_string(page_size) + " rows", "a power of two up to 65536, such as 16 or 64");
  }
  checks::same_shape(cache.v, cache.k);
  checks::dtype_is_one_of(cache.table, {ScalarType::Int});
  if (cache.table.tensor.dim() != 2) {
    checks::refuse(
        cache.table,
        "has shape " + checks::shape_text(cache.table.tensor.sizes()),
        "shape (sequences, columns), the numbers of each sequence's pages");
  }
  if (cache.rows() > attention::kMaxRows || cache.pages() > attention::kMaxRows) {
    checks::refuse(
        cache.table,
        "has " + std::to_string(cache.table.tensor.size(1)) + " columns",
        "columns for " + std::to_string(attention::kMaxRows) + " rows of a sequence at most");
  }
}

// On the CPU: whether a sequence's rows have room in the table, and whether their pages exist.
inline void check_rows(const Cache& cache, const int32_t* table, int64_t sequence, int64_t rows, const char* lengths) {
  if (rows < 0 || rows > cache.rows()) {
    checks::refuse(
        cache.table.op,
        lengths,
        "gives sequence " + std::to_string(sequence) + " " + std::to_string(rows) + " rows",
        "0 to the " + std::to_string(cache.rows()) + " rows of a line of the page table");
  }
  const int64_t columns = cache.table.tensor.size(1);
  for (int64_t i = 0; i * cache.page_size() < rows; ++i) {
    const int32_t page = table[sequence * columns + i];
    if (page < 0 || page >= cache.pages()) {
      checks::refuse(
          cache.table,
          "holds " + std::to_string(page) + " for sequence " + std::to_string(sequence),
          "numbers from 0 to " + std::to_string(cache.pages() - 1) + " of the pages that are used");
    }
  }
}

}  // namespace page_table
