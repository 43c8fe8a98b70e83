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

// The elements of tensors in one row, or in a part of it.
template <typename Tensors>
class RowElements {
 public:
  using T = typename Tensors::Element;
  using Number = accumulate_t<T>;
  static constexpr int kInputs = Tensors::kInputs, kResults = Tensors::kResults;

  explicit RowElements(const Tensors& tensors) : tensors_(tensors) {
    for (int k = 0; k < kInputs; ++k) {
      is_read_in_place_[k] = is_even(tensors.inputs[k]) && !is_vector(tensors.inputs[k]);
    }
  }

  // To elements begin to begin + n of row i.
  void move(int64_t i, int64_t begin, int64_t n) {
    const Rows& rows = tensors_.rows;
    const RowIndex index(rows, i);
    const bool is_as_long = n_ == n;
    row_ = i;
    begin_ = begin;
    n_ = n;
    for (int k = 0; k < kInputs; ++k) {
      const Operand<T>& input = tensors_.inputs[k];
      const T* const elements = input.row(index) + input.offset(rows, begin);
      is_repeated_[k] = is_as_long && elements == inputs_[k];
      inputs_[k] = elements;
      if (!is_repeated_[k] && !is_read_in_place_[k]) gather(k, elements);
    }
    const RowIndex next(rows, i + 1 < rows.count ? i + 1 : i);
    for (int k = 0; k < kInputs; ++k) {
      const Operand<T>& input = tensors_.inputs[k];
      next_[k] = is_read_in_place_[k] ? input.row(next) + begin : inputs_[k];
    }
    Operand<T> layout = tensors_.layout;
    row_of_results_ = layout.row(index) - layout.data;
  }

  // Asks for the elements from `first` on of the next row, which memory sends while this row is computed.
  void prefetch(int64_t first, int64_t count) const {
    constexpr int64_t kLine = 64 / sizeof(T);
    for (int k = 0; k < kInputs; ++k) {
      if (next_[k] == inputs_[k]) continue;
      for (int64_t i = first; i < first + count; i += kLine) __builtin_prefetch(next_[k] + i, 0, 2);
    }
  }

  bool is_repeated(int k) const { return is_repeated_[k]; }

  const Number* load(int k, int64_t first, int64_t count) {
    const Operand<T>& input = tensors_.inputs[k];
    if (!is_read_in_place_[k]) return gathered_[k].data() + (is_number(input) ? 0 : first);
    const T* const elements = inputs_[k] + first;
    if constexpr (kAreNumbers) {
      return elements;
    } else {
      Number* const numbers = rooms_[k].reserve(kRowTile, Room<Number>::kRead);
      // Short rows, and what these have in common, are converted once.
      if (elements != converted_[k] || count != counts_[k]) {
        convert(elements, count, numbers);
        converted_[k] = elements;
        counts_[k] = count;
      }
      return numbers;
    }
  }

  Number* room(int k, int64_t first, int64_t count) {
    if constexpr (kAreNumbers) {
      T* const elements = is_even(tensors_.layout) ? row_of(k) : nullptr;
      if (elements) return elements + begin_ + first;
    }
    return rooms_of_results_[k].reserve(kRowTile, Room<Number>::kWritten);
  }

  void store(int k, int64_t first, int64_t count, const Number* numbers) {
    if constexpr (Tensors::kCodes != 0) {
      if (Tensors::kCodes >> k & 1) {
        const auto code_of = [](Number number) { return static_cast<uint8_t>(static_cast<int>(number)); };
        return store_row(tensors_.codes[k] + row_of_results_, first, count, numbers, code_of);
      }
    }
    if constexpr (Tensors::kWide != 0) {
      if (Tensors::kWide >> k & 1) {
        const auto wide_of = [](Number number) { return static_cast<float>(number); };
        return store_row(tensors_.wide_rows[k] + row_of_results_, first, count, numbers, wide_of);
      }
    }
    const Gradient<T>& result = tensors_.results[k];
    if (result.partial) return add_to_block(result, tensors_.rows, row_, begin_ + first, numbers, count);
    T* const elements = row_of(k);
    if (!elements) return;
    if (!is_even(tensors_.layout)) {
      return store_row(elements, first, count, numbers, [](Number number) { return static_cast<T>(number); });
    }
    if constexpr (!kAreNumbers) convert(numbers, count, elements + begin_ + first);
  }

 private:
  // Whether a row's elements lie one after the other.
  bool is_even(const Operand<T>& tensor) const { return tensor.step == 1 && tensors_.rows.inner == tensors_.rows.n; }

  // Whether they are one number.
  bool is_number(const Operand<T>& tensor) const { return tensor.step == 0 && tensors_.rows.inner == tensors_.rows.n; }

  // Whether rows have elements in common that have to be converted: once for all rows, if a cache holds them.
  bool is_vector(const Operand<T>& tensor) const {
    constexpr int64_t kMost = 1 << 14;
    if (kAreNumbers || tensors_.rows.n > kMost) return false;
    return std::all_of(tensor.strides, tensor.strides + kRowDimensions, [](int64_t stride) { return stride == 0; });
  }

  // Copies elements that cannot be read where they lie; of one number, a tile.
  CPU_APART void gather(int k, const T* elements) {
    const Operand<T>& input = tensors_.inputs[k];
    if (tensors_.rows.inner == tensors_.rows.n) {
      gathered_[k].load(elements, input.step, is_number(input) ? std::min(n_, kRowTile) : n_);
    } else {
      // Parts of a row with two dimensions have whole inner ones, or lie in one.
      gathered_[k].load_parts(elements, input.step, std::min(n_, tensors_.rows.inner), input.outer_step, n_);
    }
  }

  // This row of result k; null: not wanted.
  T* row_of(int k) const {
    T* const values = tensors_.results[k].values;
    const int64_t joined = Tensors::kJoined >> k & 1 ? tensors_.joined[k] : 1;
    return values ? values + row_of_results_ * joined : nullptr;
  }

  // converted(number) of each of the elements from `first` on of a row of results.
  template <typename To, typename Convert>
  CPU_APART void store_row(
      To* row, int64_t first, int64_t count, const Number* numbers, const Convert& converted) const {
    for (int64_t i = 0; i < count; ++i) {
      row[tensors_.layout.offset(tensors_.rows, begin_ + first + i)] = converted(numbers[i]);
    }
  }

  static constexpr bool kAreNumbers = std::is_same_v<T, Number>;

  const Tensors& tensors_;
  int64_t row_ = 0, begin_ = 0, n_ = 0;
  int64_t row_of_results_ = 0;  // where the elements of this row of results begin
  bool is_read_in_place_[kInputs + 1] = {};
  const T* inputs_[kInputs + 1] = {};
  const T* next_[kInputs + 1] = {};  // of the next row
  bool is_repeated_[kInputs + 1] = {};
  Numbers<T> gathered_[kInputs + 1];
  Room<Number> rooms_[kInputs + 1], rooms_of_results_[kResults + 1];
  const T* converted_[kInputs + 1] = {};  // what the rooms hold
  int64_t counts_[kInputs + 1] = {};
};

// The FormulaRow of a row, or of a part of it.
template <typename Tensors>
class RowOnCpu {
 public:
  using T = typename Tensors::Element;
  using Row = FormulaRow<
      RowElements<Tensors>,
      Tensors::kNumbers,
      Tensors::kRowResults,
      Tensors::kPlaces,
      Tensors::kPlaceResults,
      Tensors::kWideNumbers,
      Tensors::kWideResults,
      Tensors::kFlagResults,
      Tensors::kFlags>;

  static_assert(Row::kMostSums == kMostTotals, "a row has room for all sums");

  Row row;

  explicit RowOnCpu(const Tensors& tensors) : row(tensors), tensors_(tensors) {
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
    row.elements.move(i, begin, n);
    row.begin = begin;
    row.n = n;
    row.own_line = i % tensors_.rows.lines;
    for (int k = 0; k < Tensors::kNumbers; ++k) row.numbers[k] = static_cast<accumulate_t<T>>(tensors_.numbers[k][i]);
    for (int k = 0; k < Tensors::kPlaces; ++k) row.places[k] = tensors_.places[k][i];
    for (int k = 0; k < Tensors::kFlags; ++k) row.flags[k] = tensors_.flags[k][i];
    for (int k = 0; k < Tensors::kWideNumbers; ++k) row.wide_numbers[k] = tensors_.wide_numbers[k][i];
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
  const Tensors& tensors_;
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
