// What a formula of rows reads and writes. Plain C++: the CPU's kernels use it too.

#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "gradient.h"
#include "operand.h"

// The most sums over all rows that an op has, and the most numbers that all rows have in common.
constexpr int kMostTotals = 4;

constexpr int count_bits(unsigned bits) {
  return bits ? (bits & 1) + count_bits(bits >> 1) : 0;
}

// In how many slices what the rows add to a sum is added up; on GPUs too.
constexpr int64_t slices_of_terms(int64_t rows) {
  constexpr int64_t kOfOneBlock = 1 << 15, kOfSlice = 1 << 13, kMostSlices = 256;
  if (rows <= kOfOneBlock) return 1;
  return std::min(kMostSlices, rows / kOfSlice);
}

// What a kernel reads and writes, beside its scalars: tensors of rows, tensors with a number or a place for each row,
// results of rows, and results with a number or a place for each row. A place is that of an element in its row. A
// result that is null is not needed. kLate has a bit for each input that only the last pass reads, and that all rows
// may have in common; kCodes one for each result of rows that is integers of 8 bits, signed or not: every T holds them.
// Wide numbers and results are of float32 whatever T is; flags are truth values. kJoined has a bit for each result of
// rows that is a part of a longer row, of `joined` such parts; kWide one for each result of rows that is of float32.
// kSavedResults counts the numbers of a row that a forward saves for its backward, kSaved those that a backward reads.
template <
    typename T,
    int kInputs_,
    int kNumbers_,
    int kResults_,
    int kRowResults_,
    int kLate_,
    int kPlaces_ = 0,
    int kPlaceResults_ = 0,
    int kCodes_ = 0,
    int kWideNumbers_ = 0,
    int kWideResults_ = 0,
    int kFlagResults_ = 0,
    int kJoined_ = 0,
    int kFlags_ = 0,
    int kWide_ = 0,
    int kSaved_ = 0,
    int kSavedResults_ = 0>
struct RowTensors {
  using Element = T;
  using Sum = std::conditional_t<std::is_same_v<T, double>, double, float>;
  static constexpr int kInputs = kInputs_;
  static constexpr int kNumbers = kNumbers_;
  static constexpr int kResults = kResults_;
  static constexpr int kRowResults = kRowResults_;
  static constexpr int kLate = kLate_;
  // Those that a kernel may keep between its passes.
  static constexpr int kHeldInputs = kInputs - count_bits(kLate);
  static constexpr int kPlaces = kPlaces_;
  static constexpr int kPlaceResults = kPlaceResults_;
  static constexpr int kCodes = kCodes_;
  static constexpr int kWideNumbers = kWideNumbers_;
  static constexpr int kWideResults = kWideResults_;
  static constexpr int kFlagResults = kFlagResults_;
  static constexpr int kJoined = kJoined_;
  static constexpr int kFlags = kFlags_;
  static constexpr int kWide = kWide_;
  static constexpr int kSaved = kSaved_;
  static constexpr int kSavedResults = kSavedResults_;

  Rows rows;
  Operand<T> layout;  // of the results
  Operand<T> inputs[kInputs + 1];
  const T* numbers[kNumbers + 1];
  Gradient<T> results[kResults + 1];
  int joined[kJoined ? kResults : 1] = {};
  uint8_t* codes[kCodes ? kResults : 1] = {};   // the results of kCodes instead
  float* wide_rows[kWide ? kResults : 1] = {};  // the results of kWide instead
  T* row_results[kRowResults + 1];
  const int64_t* places[kPlaces + 1];
  int64_t* place_results[kPlaceResults + 1];
  const float* wide_numbers[kWideNumbers + 1];
  const bool* flags[kFlags + 1];
  float* wide_results[kWideResults + 1];
  bool* flag_results[kFlagResults + 1];
  const Sum* saved[kSaved + 1];
  Sum* saved_results[kSavedResults + 1];

  // Numbers that all rows have in common; and of sums over all rows: what each row adds to sum i, from
  // terms[i * rows.count] on, the sums themselves, and results that are computed of them.
  const T* given[kMostTotals] = {};
  const float* wide_given[kMostTotals] = {};
  const Sum* saved_given[kMostTotals] = {};
  int sums = 0;
  Sum* terms = nullptr;
  Sum* totals = nullptr;
  T* total_results[kMostTotals] = {};
  float* wide_totals[kMostTotals] = {};
  Sum* saved_totals[kMostTotals] = {};

  // On a GPU, few rows are computed in parts: how many, which pass over them a launch is, and what the parts leave.
  int parts = 1;
  int pass = 0;
  void* partial = nullptr;

  // Of groups that stay for several rows, on a GPU too: a bit for each input that all rows have in common, and one for
  // each of which the next row waits in shared memory.
  int common = 0;
  int waiting = 0;

  int summed = 0;  // how many results are sums over the rows, if a GPU's kernel adds them up
};
