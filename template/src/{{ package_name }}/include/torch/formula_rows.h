// Formulas of rows on the CPU.

#pragma once

#include <torch/csrc/stable/ops.h>

#include <algorithm>
#include <initializer_list>
#include <mutex>
#include <string>
#include <vector>

#include "block_sums.h"
#include "checks.h"
#include "clones.h"
#include "formula_row.h"
#include "numbers.h"
#include "row_tensors.h"

// Rows of more elements are computed in parts, by several threads.
constexpr int64_t kPartOfRow = 1 << 16;

// The FormulaRow of a row, or of a part of it.
template <typename Tensors>
class RowOnCpu {
 public:
  using T = typename Tensors::Element;
  using Row = FormulaRow<
      accumulate_t<T>,
      Tensors::kInputs,
      Tensors::kNumbers,
      Tensors::kResults,
      Tensors::kRowResults,
      Tensors::kPlaces,
      Tensors::kPlaceResults,
      Tensors::kWideNumbers,
      Tensors::kWideResults,
      Tensors::kFlagResults,
      Tensors::kFlags>;

  static_assert(Row::kMostSums == kMostTotals, "a row has room for all sums");

  Row row;

  explicit RowOnCpu(const Tensors& tensors) : tensors_(tensors) {
    row.rows = tensors.rows.count;
    row.total_size = tensors.rows.n;
    row.first_size = tensors.rows.batch;
    row.totals = tensors.totals;
    for (int k = 0; k < kMostTotals; ++k) {
      if (tensors.given[k]) row.given_numbers[k] = static_cast<accumulate_t<T>>(*tensors.given[k]);
      if (tensors.wide_given[k]) row.wide_given_numbers[k] = *tensors.wide_given[k];
    }
  }

  // Elements begin to begin + n of row i.
  void load(int64_t i, int64_t begin, int64_t n) {
    const Rows& rows = tensors_.rows;
    number_ = i;
    index_ = RowIndex(rows, i);
    const bool is_as_long = row.n == n;
    row.begin = begin;
    row.n = n;
    row.own_line = i % rows.lines;
    for (int k = 0; k < Tensors::kInputs; ++k) {
      const Operand<T>& input = tensors_.inputs[k];
      const T* const elements = input.row(index_) + input.offset(rows, begin);
      // Those of a weight that all rows have in common are numbers already.
      row.is_repeated[k] = is_as_long && elements == loaded_[k];
      if (row.is_repeated[k]) continue;
      loaded_[k] = elements;
      row.inputs[k] = rows.inner == rows.n ? inputs_[k].load(elements, input.step, n)
                                           : inputs_[k].load_parts(elements, input.step, inner(n), input.outer_step, n);
    }
    for (int k = 0; k < Tensors::kNumbers; ++k) row.numbers[k] = static_cast<accumulate_t<T>>(tensors_.numbers[k][i]);
    for (int k = 0; k < Tensors::kPlaces; ++k) row.places[k] = tensors_.places[k][i];
    for (int k = 0; k < Tensors::kFlags; ++k) row.flags[k] = tensors_.flags[k][i];
    for (int k = 0; k < Tensors::kWideNumbers; ++k) row.wide_numbers[k] = tensors_.wide_numbers[k][i];
    for (int k = 0; k < Tensors::kResults; ++k) {
      row.results[k] = results_[k].room(is_dense() ? result(k) : nullptr, n);
    }
  }

  void store() {
    for (int k = 0; k < Tensors::kResults; ++k) {
      if constexpr (Tensors::kCodes != 0) {
        if (Tensors::kCodes >> k & 1) {
          store_codes(k);
          continue;
        }
      }
      if constexpr (Tensors::kWide != 0) {
        if (Tensors::kWide >> k & 1) {
          store_wide(k);
          continue;
        }
      }
      if (tensors_.results[k].partial) {
        add_to_block(tensors_.results[k], tensors_.rows, number_, row.begin, row.results[k], row.n);
      } else if (is_dense()) {
        results_[k].store(result(k), row.n);
      } else {
        results_[k].store_parts(result(k), tensors_.layout.step, inner(row.n), tensors_.layout.outer_step, row.n);
      }
    }
  }

  void store_numbers(int64_t i) {
    for (int k = 0; k < Tensors::kRowResults; ++k) {
      if (tensors_.row_results[k]) tensors_.row_results[k][i] = static_cast<T>(row.row_results[k]);
    }
    for (int k = 0; k < Tensors::kPlaceResults; ++k) tensors_.place_results[k][i] = row.place_results[k];
    for (int k = 0; k < Tensors::kWideResults; ++k) tensors_.wide_results[k][i] = row.wide_results[k];
    for (int k = 0; k < Tensors::kFlagResults; ++k) tensors_.flag_results[k][i] = row.flag_results[k];
    for (int k = 0; k < tensors_.sums; ++k) tensors_.terms[k * tensors_.rows.count + i] = row.terms[k];
  }

 private:
  // Parts of a row with two dimensions have whole inner ones, or lie in one.
  int64_t inner(int64_t n) const {
    return tensors_.rows.inner == tensors_.rows.n ? n : std::min(n, tensors_.rows.inner);
  }

  // Integers of 8 bits, which the room holds as numbers.
  void store_codes(int k) {
    Operand<T> layout = tensors_.layout;
    uint8_t* const codes = tensors_.codes[k] + (layout.row(index_) - layout.data);
    for (int64_t i = 0; i < row.n; ++i) {
      codes[layout.offset(tensors_.rows, row.begin + i)] = static_cast<uint8_t>(static_cast<int>(row.results[k][i]));
    }
  }

  // Numbers of float32, whatever T is.
  void store_wide(int k) {
    Operand<T> layout = tensors_.layout;
    float* const values = tensors_.wide_rows[k] + (layout.row(index_) - layout.data);
    for (int64_t i = 0; i < row.n; ++i) {
      const int64_t offset = is_dense() ? row.begin + i : layout.offset(tensors_.rows, row.begin + i);
      values[offset] = static_cast<float>(row.results[k][i]);
    }
  }

  bool is_dense() const { return tensors_.layout.step == 1 && tensors_.rows.inner == tensors_.rows.n; }

  T* result(int k) const {
    T* const values = tensors_.results[k].values;
    if (!values) return nullptr;
    Operand<T> layout = tensors_.layout;
    layout.data = values;
    const int64_t joined = Tensors::kJoined >> k & 1 ? tensors_.joined[k] : 1;
    return values + (layout.row(index_) - layout.data) * joined + layout.offset(tensors_.rows, row.begin);
  }

  const Tensors& tensors_;
  int64_t number_ = 0;
  RowIndex index_;
  const T* loaded_[Tensors::kInputs + 1] = {};
  Numbers<T> inputs_[Tensors::kInputs + 1], results_[Tensors::kResults + 1];
};

// The parts of a long row, none of which reaches from one inner dimension into the next; a short one is one part.
class RowParts {
 public:
  explicit RowParts(const Rows& rows) : n_(rows.n), inner_(rows.inner) {
    if (n_ <= kPartOfRow) {
      inner_ = size_ = std::max<int64_t>(1, n_);
    } else if (inner_ == n_ || inner_ > kPartOfRow) {
      size_ = kPartOfRow;
    } else {
      size_ = kPartOfRow / inner_ * inner_;
      inner_ = n_;
    }
    of_inner_ = (inner_ + size_ - 1) / size_;
  }

  int64_t count() const { return std::max<int64_t>(1, n_ / inner_ * of_inner_); }

  int64_t begin(int64_t part) const { return part / of_inner_ * inner_ + part % of_inner_ * size_; }

  int64_t end(int64_t part) const { return std::min({begin(part) + size_, (part / of_inner_ + 1) * inner_, n_}); }

 private:
  int64_t n_, inner_, size_, of_inner_;
};

// The first row with a place that it does not have, among those of several threads.
class MissingPlace {
 public:
  void note(int64_t row, int64_t place) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (row_ >= 0 && row_ <= row) return;
    row_ = row;
    place_ = place;
  }

  // Refuses the argument that has such a place; `places` are the arguments of places, in the order of the tensors'.
  template <typename Tensors>
  void refuse(const Tensors& tensors, std::initializer_list<checks::Argument> places) const {
    if (row_ < 0) return;
    const checks::Argument* argument = places.begin();
    for (int k = Tensors::kPlaces - 1; k >= 0; --k) {
      if (tensors.places[k][row_] == place_) argument = places.begin() + k;
    }
    const int64_t n = tensors.rows.n;
    const std::string taken = n ? "a place in a row, 0 to " + std::to_string(n - 1) : "none, since rows are empty";
    checks::refuse_place(*argument, "holds " + std::to_string(place_) + " for row " + std::to_string(row_), taken);
  }

 private:
  std::mutex mutex_;
  int64_t row_ = -1, place_ = 0;
};

// Whether results are sums over blocks of rows.
template <typename Tensors>
bool has_block_sums(const Tensors& tensors) {
  const auto* const results = tensors.results;
  return std::any_of(results, results + Tensors::kResults, [](const auto& result) { return result.partial; });
}

// Calls f(row) with a FormulaRow for each row, in parallel, or for each part of long ones, once for each of the
// formula's reductions and for its results; `elements` are worth a thread of their own. Refuses places that a row does
// not have, by the arguments `places` of them.
template <typename Tensors, typename F>
void for_each_row(
    const Tensors& tensors, int64_t elements, std::initializer_list<checks::Argument> places, const F& f) {
  using Number = accumulate_t<typename Tensors::Element>;
  const Rows& rows = tensors.rows;
  const RowParts parts(rows);
  const int64_t count = parts.count();
  std::vector<PartialResult<Number>> partial;
  int pass = 0, reductions = 0;
  MissingPlace missing;
  const auto visit_part = [&](RowOnCpu<Tensors>& computed, int64_t i, int64_t part) {
    auto& row = computed.row;
    computed.load(i, parts.begin(part), parts.end(part) - parts.begin(part));
    row.partial = count > 1 ? partial.data() + i * count : nullptr;
    row.partial_stride = rows.count * count;
    row.parts = count;
    row.part = part;
    row.pass = pass;
    row.reductions = 0;
    f(row);
    if (row.missing) return missing.note(i, *row.missing);
    if (count > 1 && pass < row.reductions) return;
    computed.store();
    if (part == 0) computed.store_numbers(i);
  };
  const int64_t size = has_block_sums(tensors) ? rows_of_block(rows.count) : 1;
  const int64_t blocks = (rows.count + size - 1) / size;
  const auto visit = [&](int64_t begin, int64_t end) {
    RowOnCpu<Tensors> computed(tensors);
    for (int64_t i = begin; i < end; ++i) {
      const int64_t first = i / count * size, last = std::min(first + size, rows.count);
      for (int64_t row = first; row < last; ++row) visit_part(computed, row, i % count);
    }
    if (begin == 0) reductions = computed.row.reductions;
  };
  const int64_t grain = std::max<int64_t>(1, elements / std::max<int64_t>(1, rows.n / count * size));
  const auto call = [&](int64_t begin, int64_t end) { call_cloned(visit, begin, end); };
  do {
    if (count > 1) partial.resize(rows.count * count * (pass + 1));
    torch::stable::parallel_for(0, blocks * count, grain, call);
    if constexpr (Tensors::kPlaces > 0) missing.refuse(tensors, places);
  } while (count > 1 && pass++ < reductions);
}

template <typename Tensors, typename F>
void for_each_row(const Tensors& tensors, int64_t elements, const F& f) {
  static_assert(Tensors::kPlaces == 0, "places are refused by the name of their argument");
  for_each_row(tensors, elements, {}, f);
}

// Sums over all rows as a formula sees them that computes results of them.
template <typename Tensors>
class FormulaTotals {
 public:
  using Number = typename Tensors::Sum;

  Number totals[kMostTotals];

  explicit FormulaTotals(const Tensors& tensors) : tensors_(tensors) {
    const int64_t rows = tensors.rows.count;
    for (int i = 0; i < tensors.sums; ++i) {
      totals[i] = pairwise_sum<Number>(0, rows, [&](int64_t row) { return tensors.terms[i * rows + row]; });
    }
  }

  Number size() const { return static_cast<Number>(tensors_.rows.n); }

  Number count() const { return static_cast<Number>(tensors_.rows.count); }

  Number batch() const { return static_cast<Number>(tensors_.rows.batch); }

  Number total(int i) const { return totals[i]; }

  // Leaves the sums themselves.
  void store() const { std::copy(totals, totals + tensors_.sums, tensors_.totals); }

  void put_total(int i, Number value) { *tensors_.total_results[i] = static_cast<typename Tensors::Element>(value); }

  void put_wide_total(int i, Number value) { *tensors_.wide_totals[i] = static_cast<float>(value); }

 private:
  const Tensors& tensors_;
};
