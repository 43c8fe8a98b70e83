// Formulas of rows on the CPU.

#pragma once

#include <torch/csrc/stable/ops.h>

#include <algorithm>
#include <initializer_list>
#include <mutex>
#include <string>
#include <type_traits>
#include <vector>

#include "block_sums.h"
#include "checks.h"
#include "clones.h"
#include "formula_row.h"
#include "numbers.h"
#include "row_tensors.h"

// Rows of more elements are computed in parts, by several threads.
constexpr int64_t kPartOfRow = 1 << 16;

// What stores results that are not written one after the other, or are of another type.
template <typename Number>
class ResultStore {
 public:
  virtual ~ResultStore() = default;
  virtual void store(int k, int64_t first, int64_t count, const Number* numbers) = 0;
};

// The elements of one row, or of a part of it, where they lie one after the other. Whatever tensors they are of,
// formulas see the same type, and are compiled once for all tensors whose numbers are alike.
template <typename Number_, int kInputs_, int kResults_>
struct RowElements {
  using Number = Number_;
  static constexpr int kInputs = kInputs_, kResults = kResults_;
  // The most elements whose numbers are kept from pass to pass: `converted` has a bit for each tile of them.
  static constexpr int64_t kMostKept = 64 * kRowTile;

  const Number* inputs[kInputs + 1] = {};  // null: elements that are to be converted
  int64_t masks[kInputs + 1] = {};         // of places; 0: a tile has all numbers, which are the same
  const char* elements[kInputs + 1] = {};
  Number* rooms[kInputs + 1] = {};       // for their numbers
  uint64_t converted[kInputs + 1] = {};  // the tiles that are there
  bool repeated[kInputs + 1] = {};
  const char* next[kInputs + 1] = {};              // the elements of the next row; null: those of this one
  Number* results[kResults + 1] = {};              // null: results that are to be converted
  char* converted_results[kResults + 1] = {};      // null: others,
  ResultStore<Number>* others[kResults + 1] = {};  // which go here; null: not wanted
  Number* rooms_of_results[kResults + 1] = {};

  int64_t bytes = 0;     // of an element
  bool is_kept = false;  // whether rooms have all tiles, or one
  void (*read)(const void* elements, int64_t count, Number* numbers) = nullptr;
  void (*write)(const Number* numbers, int64_t count, void* elements) = nullptr;

  bool is_repeated(int k) const { return repeated[k]; }

  // A tile.
  const Number* load(int k, int64_t first, int64_t count) {
    if (inputs[k]) return inputs[k] + (first & masks[k]);
    Number* const numbers = rooms[k] + (is_kept ? first : 0);
    const uint64_t tile = is_kept ? uint64_t(1) << first / kRowTile : 0;
    if (!(converted[k] & tile)) {
      read(elements[k] + first * bytes, count, numbers);
      converted[k] |= tile;
    }
    return numbers;
  }

  Number* room(int k, int64_t first, int64_t) { return results[k] ? results[k] + first : rooms_of_results[k]; }

  void store(int k, int64_t first, int64_t count, const Number* numbers) {
    if (results[k]) return;
    if (converted_results[k]) return write(numbers, count, converted_results[k] + first * bytes);
    if (others[k]) others[k]->store(k, first, count, numbers);
  }

  // Asks for the elements from `first` on of the next row, which memory sends while this row is computed.
  void prefetch(int64_t first, int64_t count) const {
    constexpr int64_t kLine = 64;
    for (int k = 0; k < kInputs; ++k) {
      if (!next[k]) continue;
      for (int64_t i = first * bytes; i < (first + count) * bytes; i += kLine) __builtin_prefetch(next[k] + i, 0, 2);
    }
  }
};

// Convert elements to numbers and back, by functions of their own: for loops that come after one another so often that
// copies of these would be most of their code.
template <typename T>
CPU_APART CPU_CLONES void read_elements(const void* elements, int64_t count, accumulate_t<T>* numbers) {
  const T* const from = static_cast<const T*>(elements);
  CPU_INDEPENDENT
  for (int64_t i = 0; i < count; ++i) numbers[i] = static_cast<accumulate_t<T>>(from[i]);
}

template <typename T>
CPU_APART CPU_CLONES void write_elements(const accumulate_t<T>* numbers, int64_t count, void* elements) {
  T* const to = static_cast<T*>(elements);
  CPU_INDEPENDENT
  for (int64_t i = 0; i < count; ++i) to[i] = static_cast<T>(numbers[i]);
}

template <typename Tensors>
using NumberOf = accumulate_t<typename Tensors::Element>;

// The elements of tensors.
template <typename Tensors>
class TensorElements final : public ResultStore<NumberOf<Tensors>> {
 public:
  using T = typename Tensors::Element;
  using Number = accumulate_t<T>;
  using Elements = RowElements<Number, Tensors::kInputs, Tensors::kResults>;

  TensorElements(const Tensors& tensors, Elements& elements) : tensors_(tensors), elements_(elements) {
    for (int k = 0; k < Tensors::kInputs; ++k) {
      is_read_in_place_[k] = is_even(tensors.inputs[k]);
    }
    for (int k = 0; k < Tensors::kResults; ++k) {
      elements.rooms_of_results[k] = rooms_of_results_[k].reserve(kRowTile, Room<Number>::kWritten);
    }
    elements.bytes = sizeof(T);
    elements.read = read_elements<T>;
    elements.write = write_elements<T>;
  }

  // To elements begin to begin + n of row i.
  void move(int64_t i, int64_t begin, int64_t n) {
    const RowIndex index(tensors_.rows, i), next(tensors_.rows, std::min(i + 1, tensors_.rows.count - 1));
    const bool is_as_long = n_ == n;
    row_ = i;
    begin_ = begin;
    n_ = n;
    elements_.is_kept = n <= Elements::kMostKept;
    for (int k = 0; k < Tensors::kInputs; ++k) {
      const Operand<T>& input = tensors_.inputs[k];
      const T* const row = input.row(index) + input.offset(tensors_.rows, begin);
      const T* const next_row = is_read_in_place_[k] ? input.row(next) + begin : row;
      elements_.repeated[k] = is_as_long && row == inputs_[k];
      elements_.next[k] = next_row == row ? nullptr : reinterpret_cast<const char*>(next_row);
      inputs_[k] = row;
      set_input(k, row);
    }
    Operand<T> layout = tensors_.layout;
    row_of_results_ = layout.row(index) - layout.data;
    for (int k = 0; k < Tensors::kResults; ++k) set_result(k);
  }

  CPU_APART void store(int k, int64_t first, int64_t count, const Number* numbers) override {
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
    const auto element_of = [](Number number) { return static_cast<T>(number); };
    if (T* const row = row_of(k)) store_row(row, first, count, numbers, element_of);
  }

 private:
  // Whether a row's elements lie one after the other.
  bool is_even(const Operand<T>& tensor) const { return tensor.step == 1 && tensors_.rows.inner == tensors_.rows.n; }

  // Whether they are one number.
  bool is_number(const Operand<T>& tensor) const { return tensor.step == 0 && tensors_.rows.inner == tensors_.rows.n; }

  void set_input(int k, const T* row) {
    if (!is_read_in_place_[k]) {
      if (!elements_.repeated[k]) gather(k, row);
      elements_.inputs[k] = gathered_[k].data();
    } else if constexpr (kAreNumbers) {
      elements_.inputs[k] = row;
    } else {
      elements_.elements[k] = reinterpret_cast<const char*>(row);
      if (!elements_.repeated[k]) {
        elements_.rooms[k] = rooms_[k].reserve(elements_.is_kept ? n_ : kRowTile, Room<Number>::kRead);
        elements_.converted[k] = 0;
      }
    }
    elements_.masks[k] = is_number(tensors_.inputs[k]) ? 0 : -1;
  }

  void set_result(int k) {
    const bool is_code = Tensors::kCodes >> k & 1, is_wide = Tensors::kWide >> k & 1;
    elements_.others[k] = is_code || is_wide || tensors_.results[k].partial || row_of(k) ? this : nullptr;
    T* const row = is_even(tensors_.layout) ? row_of(k) : nullptr;
    T* const elements = row ? row + begin_ : nullptr;
    if constexpr (kAreNumbers) {
      elements_.results[k] = elements;
    } else {
      elements_.converted_results[k] = reinterpret_cast<char*>(elements);
    }
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
  Elements& elements_;
  int64_t row_ = 0, begin_ = 0, n_ = 0;
  int64_t row_of_results_ = 0;  // where the elements of this row of results begin
  bool is_read_in_place_[Tensors::kInputs + 1] = {};
  const T* inputs_[Tensors::kInputs + 1] = {};
  Numbers<T> gathered_[Tensors::kInputs + 1];
  Room<Number> rooms_[Tensors::kInputs + 1], rooms_of_results_[Tensors::kResults + 1];
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

// What a pass over all rows knows of them. Of rows in parts, it is one of several.
template <typename Number>
struct RowPass {
  RowParts parts;
  int64_t count;  // of the parts of a row
  int64_t rows;
  int64_t rows_of_task;
  int pass = 0, reductions = 0;
  std::vector<PartialResult<Number>> partial = {};
  MissingPlace missing = {};
};

// Rows, one after another, as a formula sees them.
template <typename Row>
class RowSequence {
 public:
  using Number = typename Row::Number;

  RowSequence(RowPass<Number>& pass, int64_t n) : pass_(pass) {
    row_.n = row_.total_size = n;
    row_.rows = pass.rows;
    row_.parts = pass.count;
    row_.partial_stride = pass.rows * pass.count;
  }

  virtual ~RowSequence() = default;

  // Calls f(row) for each row of tasks begin to end.
  template <typename F>
  void visit(int64_t begin, int64_t end, const F& f) {
    const int64_t count = pass_.count, size = pass_.rows_of_task;
    for (int64_t i = begin; i < end; ++i) {
      const int64_t first = i / count * size, last = std::min(first + size, pass_.rows);
      for (int64_t row = first; row < last; ++row) {
        move(row, i % count);
        f(row_);
        leave(row, i % count);
      }
    }
  }

 protected:
  Row row_;

 private:
  virtual void load(int64_t i, int64_t begin, int64_t n, Row& row) = 0;
  virtual void store(int64_t i, const Row& row) = 0;

  CPU_APART void move(int64_t i, int64_t part) {
    if (pass_.count > 1) {
      row_.begin = pass_.parts.begin(part);
      row_.n = pass_.parts.end(part) - row_.begin;
      row_.partial = pass_.partial.data() + i * pass_.count;
      row_.part = part;
      row_.pass = pass_.pass;
      row_.reductions = 0;
    }
    load(i, row_.begin, row_.n, row_);
  }

  CPU_APART void leave(int64_t i, int64_t part) {
    if (i == 0 && part == 0) pass_.reductions = row_.reductions;
    if (row_.missing) return pass_.missing.note(i, *row_.missing);
    if (row_.parts > 1 && pass_.pass < row_.reductions) return;
    if (part == 0) store(i, row_);
  }

  RowPass<Number>& pass_;
};

// The type to compute in that a row has.
template <typename Row>
using row_number_t = typename std::decay_t<Row>::Number;

template <typename Tensors>
using RowOf = FormulaRow<
    typename TensorElements<Tensors>::Elements,
    Tensors::kNumbers,
    Tensors::kRowResults,
    Tensors::kPlaces,
    Tensors::kPlaceResults,
    Tensors::kWideNumbers,
    Tensors::kWideResults,
    Tensors::kFlagResults,
    Tensors::kFlags,
    Tensors::kSaved,
    Tensors::kSavedResults>;

// The rows of tensors.
template <typename Tensors>
class TensorRows final : public RowSequence<RowOf<Tensors>> {
 public:
  using Row = RowOf<Tensors>;
  using T = typename Tensors::Element;
  using Number = accumulate_t<T>;

  static_assert(Row::kMostSums == kMostTotals, "a row has room for all sums");

  TensorRows(const Tensors& tensors, RowPass<Number>& pass)
      : RowSequence<Row>(pass, tensors.rows.n), tensors_(tensors), elements_(tensors, this->row_.elements) {
    Row& row = this->row_;
    row.first_size = tensors.rows.batch;
    row.totals = tensors.totals;
    for (int k = 0; k < kMostTotals; ++k) {
      if (tensors.given[k]) row.given_numbers[k] = static_cast<Number>(*tensors.given[k]);
      if (tensors.wide_given[k]) row.wide_given_numbers[k] = *tensors.wide_given[k];
      if (tensors.saved_given[k]) row.saved_totals[k] = *tensors.saved_given[k];
    }
  }

 private:
  void load(int64_t i, int64_t begin, int64_t n, Row& row) override {
    elements_.move(i, begin, n);
    row.own_line = i % tensors_.rows.lines;
    for (int k = 0; k < Tensors::kNumbers; ++k) row.numbers[k] = static_cast<Number>(tensors_.numbers[k][i]);
    for (int k = 0; k < Tensors::kPlaces; ++k) row.places[k] = tensors_.places[k][i];
    for (int k = 0; k < Tensors::kFlags; ++k) row.flags[k] = tensors_.flags[k][i];
    for (int k = 0; k < Tensors::kWideNumbers; ++k) row.wide_numbers[k] = tensors_.wide_numbers[k][i];
    for (int k = 0; k < Tensors::kSaved; ++k) row.saved_numbers[k] = tensors_.saved[k][i];
  }

  void store(int64_t i, const Row& row) override {
    for (int k = 0; k < Tensors::kRowResults; ++k) {
      if (tensors_.row_results[k]) tensors_.row_results[k][i] = static_cast<T>(row.row_results[k]);
    }
    for (int k = 0; k < Tensors::kPlaceResults; ++k) tensors_.place_results[k][i] = row.place_results[k];
    for (int k = 0; k < Tensors::kWideResults; ++k) tensors_.wide_results[k][i] = row.wide_results[k];
    for (int k = 0; k < Tensors::kFlagResults; ++k) tensors_.flag_results[k][i] = row.flag_results[k];
    for (int k = 0; k < Tensors::kSavedResults; ++k) tensors_.saved_results[k][i] = row.saved_results[k];
    for (int k = 0; k < tensors_.sums; ++k) tensors_.terms[k * tensors_.rows.count + i] = row.terms[k];
  }

  const Tensors& tensors_;
  TensorElements<Tensors> elements_;
};

// Whether results are sums over blocks of rows.
template <typename Tensors>
bool has_block_sums(const Tensors& tensors) {
  const auto* const results = tensors.results;
  return std::any_of(results, results + Tensors::kResults, [](const auto& result) { return result.partial; });
}

// A function of its own, so that it is compiled once for all tensors that have such rows.
template <typename Row, typename F>
CPU_APART void visit_rows(RowSequence<Row>& rows, int64_t begin, int64_t end, const F& f) {
  call_cloned([&](int64_t begin, int64_t end) { rows.visit(begin, end, f); }, begin, end);
}

// Calls f(row) with a FormulaRow for each row, in parallel, or for each part of long ones, once for each of the
// formula's reductions and for its results; `elements` are worth a thread of their own. Refuses places that a row does
// not have, by the arguments `places` of them.
template <typename Tensors, typename F>
void for_each_row(
    const Tensors& tensors, int64_t elements, std::initializer_list<checks::Argument> places, const F& f) {
  const int64_t rows = tensors.rows.count, size = has_block_sums(tensors) ? rows_of_block(rows) : 1;
  const RowParts parts(tensors.rows);
  const int64_t count = parts.count(), tasks = (rows + size - 1) / size * count;
  RowPass<NumberOf<Tensors>> pass{parts, count, rows, size};
  const int64_t grain = std::max<int64_t>(1, elements / std::max<int64_t>(1, tensors.rows.n / count * size));
  const auto visit = [&](int64_t begin, int64_t end) {
    TensorRows<Tensors> own_rows(tensors, pass);
    visit_rows<RowOf<Tensors>>(own_rows, begin, end, f);
  };
  do {
    if (count > 1) pass.partial.resize(rows * count * (pass.pass + 1));
    torch::stable::parallel_for(0, tasks, grain, visit);
    if constexpr (Tensors::kPlaces > 0) pass.missing.refuse(tensors, places);
  } while (count > 1 && pass.pass++ < pass.reductions);
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

  // For the backward.
  void save(int i, Number value) { *tensors_.saved_totals[i] = value; }

 private:
  const Tensors& tensors_;
};
