// Room for sums over all rows.

#pragma once

#include "contiguous.h"
#include "row_tensors.h"

// Gives the tensors of a kernel room for `sums` sums over all rows: for what each row adds to them, for the sums of
// slices of that, and for the sums themselves.
template <typename Tensors>
torch::stable::Tensor allocate_sums(Tensors& tensors, int sums, const torch::stable::Tensor& like) {
  using Sum = typename Tensors::Sum;
  const int64_t rows = tensors.rows.count, terms = sums * (rows + slices_of_terms(rows));
  const int64_t bytes = (terms + sums) * static_cast<int64_t>(sizeof(Sum));
  torch::stable::Tensor room = empty_contiguous(like, {bytes}, torch::headeronly::ScalarType::Byte);
  tensors.sums = sums;
  tensors.terms = static_cast<Sum*>(room.mutable_data_ptr());
  tensors.totals = tensors.terms + terms;
  return room;
}
