// Few long rows in parts, each for a block: how many there are, and what a part leaves of a reduction.

#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "formula_row_choice.cuh"
#include "row_tensors.h"

// What a part of a row leaves of a reduction: up to four numbers, or a number and a place.
template <typename Number>
struct PartialResult {
  Number first;
  Number second;
  int64_t place;
  Number third;
  Number fourth;
};

// Whether clusters hold long rows, of which there are enough for all multiprocessors.
template <typename Tensors>
bool holds_in_clusters(const Tensors& tensors) {
  constexpr int64_t kMostAccesses = 2 * kMostBlocks * kLongThreads;
  const bool is_short = tensors.rows.n <= kMostAccesses * kOperandVector<typename Tensors::Element>;
  const bool is_many = tensors.rows.count * kMostBlocks >= attribute(cudaDevAttrMultiProcessorCount);
  return is_short && is_many && reads_vectors(tensors) && tensors.rows.dimensions <= 1 && has_clusters();
}

// In how many parts few long rows are computed, so that all multiprocessors have some. kHolds: whether clusters may
// hold rows.
template <bool kSideBySide, bool kHolds, typename Tensors>
int parts_of_rows(const Tensors& tensors, int reductions) {
  // What is read once gains nothing by being held.
  const bool is_held = kHolds && reductions + (Tensors::kResults > 0) > 1;
  if (is_held && holds_in_clusters(tensors)) return 1;
  const bool columns = kSideBySide && are_columns(tensors);
  // Of a part, at least; and blocks of a multiprocessor.
  const int64_t elements = columns ? 128 : 8192, resident = columns ? 8 : kBlocksOfLongRows;
  if (!columns && tensors.rows.n < 8 * elements) return 1;
  const int64_t blocks = columns ? (tensors.rows.count + kWarp - 1) / kWarp : tensors.rows.count;
  const int64_t wanted = resident * attribute(cudaDevAttrMultiProcessorCount) / std::max<int64_t>(1, blocks);
  return static_cast<int>(std::max<int64_t>(1, std::min(wanted, tensors.rows.n / elements)));
}

template <typename Tensors>
bool sums_by_kernel(const Tensors& tensors) {
  return std::any_of(tensors.results, tensors.results + Tensors::kResults, [](const auto& result) {
    return result.is_summed_by_kernel();
  });
}

// Splits few long rows into parts. Returns the bytes that the parts leave of so many reductions.
template <bool kSideBySide, bool kHolds = true, typename Tensors>
int64_t split_rows(Tensors& tensors, int reductions) {
  using Number = std::conditional_t<std::is_same_v<typename Tensors::Element, double>, double, float>;
  tensors.parts = sums_by_kernel(tensors) ? 1 : parts_of_rows<kSideBySide, kHolds>(tensors, reductions);
  if (tensors.parts == 1) return 0;
  return reductions * tensors.rows.count * tensors.parts * static_cast<int64_t>(sizeof(PartialResult<Number>));
}
