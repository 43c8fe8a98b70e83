// A row as a formula sees it: sums and maxima over its elements, and a pass that writes its results.
// cuda/formula_row.cuh offers the same to GPUs.

#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

#include "clones.h"
#include "functions.h"
#include "pairwise.h"

// What the parts of a long row leave of each of its reductions: up to four numbers, or a number and a place.
template <typename Number>
struct PartialResult {
  Number first = 0;
  Number second = 0;
  int64_t place = 0;
  Number third = 0;
  Number fourth = 0;
};

// Of kept_row.h, which formulas include that keep something.
template <int... kNumbers>
struct Inputs;
template <typename Row, typename Kept>
class KeptRow;

// What a row keeps of its elements, from place `begin` on.
template <typename Number>
struct KeptNumbers {
  const Number* numbers;
  int64_t begin;

  // f(kept, values...) as a formula that takes an element's place first.
  template <typename F>
  struct With {
    KeptNumbers kept;
    F f;

    template <typename... Values>
    auto operator()(int64_t place, Values&&... values) const -> decltype(f(*kept.numbers, values...)) {
      return f(kept.numbers[place - kept.begin], values...);
    }
  };

  template <typename F>
  With<F> with(const F& f) const {
    return {*this, f};
  }
};

// A row, or a part of one. Its reductions are numbered in the order in which the formula calls them. Of a row in parts,
// each pass is a call of the formula for every part: in pass i, reduction i is computed of the part alone, those before
// it are known of all parts, and those after it do not matter; the last pass writes the results.
//
// Number is the type to compute in; the row's elements are numbers already.
template <
    typename Number_,
    int kInputs,
    int kNumbers,
    int kResults,
    int kRowResults,
    int kPlaces = 0,
    int kPlaceResults = 0,
    int kWideNumbers = 0,
    int kWideResults = 0,
    int kFlagResults = 0,
    int kFlags = 0>
class FormulaRow {
 public:
  using Number = Number_;
  using Kept = KeptNumbers<Number>;

  int64_t n = 0;      // elements here
  int64_t begin = 0;  // the place of the first one in the row
  int64_t total_size = 0;
  int64_t rows = 0, first_size = 0;
  int64_t own_line = 0;  // the place of the row along the dimension before the last, where rows are the last one
  const Number* inputs[kInputs + 1];
  bool is_repeated[kInputs + 1] = {};  // whether an input's elements are those of the last row or part
  Number numbers[kNumbers + 1];
  int64_t places[kPlaces + 1];
  Number* results[kResults + 1];
  Number row_results[kRowResults + 1];
  int64_t place_results[kPlaceResults + 1];
  float wide_numbers[kWideNumbers + 1];
  bool flags[kFlags + 1];
  float wide_results[kWideResults + 1];
  bool flag_results[kFlagResults + 1];
  static constexpr int kMostSums = 4;
  Number given_numbers[kMostSums];  // that all rows have in common
  float wide_given_numbers[kMostSums];
  Number terms[kMostSums] = {};    // of sums over all rows
  const Number* totals = nullptr;  // these sums
  // Of a row in parts: the results of each part's reduction i from partial[i * partial_stride] on.
  PartialResult<Number>* partial = nullptr;
  int64_t partial_stride = 0;
  int64_t parts = 1, part = 0;
  int pass = 0, reductions = 0;
  std::optional<int64_t> missing;

  Number size() const { return static_cast<Number>(total_size); }

  Number count() const { return static_cast<Number>(rows); }

  Number batch() const { return static_cast<Number>(first_size); }

  Number line() const { return static_cast<Number>(own_line); }

  Number number(int i) const { return numbers[i]; }

  Number wide_number(int i) const { return wide_numbers[i]; }

  bool flag(int i) const { return flags[i]; }

  int64_t place(int i) const { return places[i]; }

  // 0. A place that the row does not have is kept in `missing`: the call is refused, so no result has to tell of it.
  Number checked_zero(int64_t place) {
    if (place < 0 || place >= total_size) missing = place;
    return 0;
  }

  // A number that all rows have in common, and a sum over all rows.
  Number given(int i) const { return given_numbers[i]; }

  Number wide_given(int i) const { return wide_given_numbers[i]; }

  Number total(int i) const { return totals[i]; }

  // The row with term(those of the inputs that have these numbers) of each element. Where reductions of all parts are
  // not known yet, no pass after them needs it.
  template <int... kOfInputs, typename F>
  auto keep(Inputs<kOfInputs...>, F term) {
    if (!partial || pass >= reductions) fill_kept<kOfInputs...>(term);
    return KeptRow<FormulaRow, Kept>(*this, Kept{kept_.data(), begin});
  }

  // The same of a term of the inputs alone: rows that have these in common have it in common.
  template <int... kOfInputs, typename F>
  auto keep_for_rows(Inputs<kOfInputs...>, F term) {
    const bool is_kept = (is_repeated[kOfInputs] && ...) && static_cast<int64_t>(kept_.size()) == n;
    if (!is_kept) fill_kept<kOfInputs...>(term);
    return KeptRow<FormulaRow, Kept>(*this, Kept{kept_.data(), begin});
  }

  // GPUs have no room to keep a term but in registers, where it has to be worth them.
  template <int... kOfInputs, typename F>
  auto hold(Inputs<kOfInputs...> inputs, F term) {
    return keep(inputs, term);
  }

  template <int... kOfInputs, typename F>
  auto hold_for_rows(Inputs<kOfInputs...> inputs, F term) {
    return keep_for_rows(inputs, term);
  }

  // The term of the element at a place; `otherwise` where the row has none there.
  template <typename F>
  Number at(int64_t place, Number otherwise, F term) {
    const auto compute = [&] {
      const bool is_here = place >= begin && place < begin + n;
      return PartialResult<Number>{is_here ? call(term, place - begin) : 0};
    };
    const Number value = reduced(compute, join_sums).first;
    return place >= 0 && place < total_size ? value : otherwise;
  }

  template <typename F>
  Number sum(F term) {
    const auto compute = [&] { return PartialResult<Number>{sum_of_part(term), 0, 0}; };
    return reduced(compute, join_sums).first;
  }

  // Several sums in one pass: term(inputs..., first term, second term, ...).
  template <typename F>
  void sums(Number& first, Number& second, F term) {
    const PartialResult<Number> all = several_sums<2>(term);
    first = all.first;
    second = all.second;
  }

  template <typename F>
  void sums(Number& first, Number& second, Number& third, F term) {
    const PartialResult<Number> all = several_sums<3>(term);
    first = all.first;
    second = all.second;
    third = all.third;
  }

  template <typename F>
  void sums(Number& first, Number& second, Number& third, Number& fourth, F term) {
    const PartialResult<Number> all = several_sums<4>(term);
    first = all.first;
    second = all.second;
    third = all.third;
    fourth = all.fourth;
  }

  template <typename F>
  Number max(F term) {
    const auto compute = [&] { return PartialResult<Number>{max_of_part(term), 0, 0}; };
    const auto larger = [](PartialResult<Number>& left, const PartialResult<Number>& right) {
      left.first = math::maximum(left.first, right.first);
    };
    return reduced(compute, larger).first;
  }

  template <typename F>
  Number min(F term) {
    return -max([&](auto... values) -> decltype(-term(values...)) { return -term(values...); });
  }

  template <typename F>
  Number product(F term) {
    const auto compute = [&] {
      constexpr int64_t kLanes = 16;  // Independent products, which the compiler can keep in vector registers.
      Number lanes[kLanes];
      for (Number& lane : lanes) lane = 1;
      int64_t i = 0;
      for (; i + kLanes <= n; i += kLanes) {
        for (int64_t lane = 0; lane < kLanes; ++lane) lanes[lane] *= call(term, i + lane);
      }
      Number product = 1;
      for (; i < n; ++i) product *= call(term, i);
      for (const Number lane : lanes) product *= lane;
      return PartialResult<Number>{product, 0, 0};
    };
    const auto times = [](PartialResult<Number>& left, const PartialResult<Number>& right) {
      left.first *= right.first;
    };
    return reduced(compute, times).first;
  }

  // The first place of the largest term; a NaN is the largest of all.
  template <typename F>
  int64_t argmax(F term) {
    const auto compute = [&] {
      PartialResult<Number> largest{-math::kInfinity<Number>, 0, begin};
      for (int64_t i = 0; i < n; ++i) keep_larger(largest, {call(term, i), 0, begin + i});
      return largest;
    };
    return reduced(compute, keep_larger).place;
  }

  template <typename F>
  int64_t argmin(F term) {
    return argmax([&](auto... values) -> decltype(-term(values...)) { return -term(values...); });
  }

  // f(inputs..., results...) for each element.
  template <typename F>
  void write(F f) const {
    if (partial && pass < reductions) return;
    write(f, std::make_index_sequence<kInputs>(), std::make_index_sequence<kResults>());
  }

  // f(inputs..., running, results...) for each element: `running` is the sum of term(inputs...) of the row's elements
  // up to this one.
  template <typename Term, typename F>
  void write_running_sums(Term term, F f) {
    run<false, Sum>(term, f);
  }

  // From this one on.
  template <typename Term, typename F>
  void write_running_sums_back(Term term, F f) {
    run<true, Sum>(term, f);
  }

  template <typename Term, typename F>
  void write_running_products(Term term, F f) {
    run<false, Product>(term, f);
  }

  template <typename Term, typename F>
  void write_running_products_back(Term term, F f) {
    run<true, Product>(term, f);
  }

  void put(int i, Number value) { row_results[i] = value; }

  // Adds to sum i over all rows.
  void add(int i, Number value) { terms[i] = value; }

  void put_place(int i, int64_t place) { place_results[i] = place; }

  void put_wide(int i, Number value) { wide_results[i] = static_cast<float>(value); }

  void put_flag(int i, bool value) { flag_results[i] = value; }

 private:
  struct Sum {
    static constexpr double kNone = 0;
    static double join(double left, double right) { return left + right; }
  };

  struct Product {
    static constexpr double kNone = 1;
    static double join(double left, double right) { return left * right; }
  };

  // A running total is kept in float64: each of its roundings would be part of all that follow.
  template <bool kBack, typename Join, typename Term, typename F>
  void run(Term& term, F& f) {
    double running = Join::kNone;
    if (partial) {
      PartialResult<Number>* const results_of_parts = partial + reductions * partial_stride;
      const int reduction = reductions++;
      if (reduction == pass) {
        for (int64_t i = 0; i < n; ++i) running = Join::join(running, call(term, i));
        results_of_parts[part].first = static_cast<Number>(running);
      }
      if (reduction >= pass) return;
      for (int64_t i = kBack ? part + 1 : 0; i < (kBack ? parts : part); ++i) {
        running = Join::join(running, results_of_parts[i].first);
      }
    }
    for (int64_t i = 0; i < n; ++i) {
      const int64_t k = kBack ? n - 1 - i : i;
      running = Join::join(running, call(term, k));
      const Number total = static_cast<Number>(running);
      write_with(f, k, total, std::make_index_sequence<kInputs>(), std::make_index_sequence<kResults>());
    }
  }

  template <typename F, size_t... kOperands, size_t... kOutputs>
  void write_with(
      F& f, int64_t i, Number total, std::index_sequence<kOperands...>, std::index_sequence<kOutputs...>) const {
    if constexpr (
        std::
            is_invocable_v<F&, int64_t, decltype(inputs[kOperands][0])..., Number, decltype(results[kOutputs][0])...>) {
      f(begin + i, inputs[kOperands][i]..., total, results[kOutputs][i]...);
    } else {
      f(inputs[kOperands][i]..., total, results[kOutputs][i]...);
    }
  }

  template <int... kOfInputs, typename F>
  void fill_kept(const F& term) {
    kept_.resize(static_cast<size_t>(n));
    Number* const kept = kept_.data();
    CPU_INDEPENDENT
    for (int64_t i = 0; i < n; ++i) kept[i] = term(inputs[kOfInputs][i]...);
  }

  static void join_sums(PartialResult<Number>& left, const PartialResult<Number>& right) {
    left.first += right.first;
    left.second += right.second;
    left.third += right.third;
    left.fourth += right.fourth;
  }

  template <int kSums, typename F>
  PartialResult<Number> several_sums(F& term) {
    const auto compute = [&] {
      Number totals[kSums];
      const auto terms = [&](int64_t i, Number(&added)[kSums]) {
        call_sums(term, i, added, std::make_index_sequence<kSums>());
      };
      pairwise_sums(0, n, terms, totals);
      PartialResult<Number> all{totals[0], totals[1]};
      if constexpr (kSums > 2) all.third = totals[2];
      if constexpr (kSums > 3) all.fourth = totals[3];
      return all;
    };
    return reduced(compute, join_sums);
  }

  template <int kSums, typename F, size_t... kTerms>
  void call_sums(F& term, int64_t i, Number (&added)[kSums], std::index_sequence<kTerms...>) const {
    const auto all = [&](auto... values) -> decltype(term(values..., added[kTerms]...)) {
      return term(values..., added[kTerms]...);
    };
    call(all, i);
  }

  static void keep_larger(PartialResult<Number>& left, const PartialResult<Number>& right) {
    const bool is_larger = right.first > left.first || (math::is_nan(right.first) && !math::is_nan(left.first));
    const bool is_same = right.first == left.first || (math::is_nan(right.first) && math::is_nan(left.first));
    if (is_larger || (is_same && right.place < left.place)) left = right;
  }

  // A reduction of the row; `join` adds a part's result to that of others.
  template <typename F, typename Join>
  PartialResult<Number> reduced(const F& compute, const Join& join) {
    if (!partial) return compute();
    PartialResult<Number>* const results_of_parts = partial + reductions * partial_stride;
    const int reduction = reductions++;
    if (reduction > pass) return {};
    if (reduction == pass) return results_of_parts[part] = compute();
    PartialResult<Number> joined = results_of_parts[0];
    for (int64_t i = 1; i < parts; ++i) join(joined, results_of_parts[i]);
    return joined;
  }

  template <typename F>
  Number sum_of_part(F& term) const {
    return pairwise_sum<Number>(0, n, [&](int64_t i) { return call(term, i); });
  }

  template <typename F>
  Number max_of_part(F& term) const {
    constexpr int64_t kLanes = 16;  // Independent maxima, which the compiler can keep in vector registers.
    Number lanes[kLanes];
    for (Number& lane : lanes) lane = -math::kInfinity<Number>;
    int64_t i = 0;
    for (; i + kLanes <= n; i += kLanes) {
      CPU_ROLLED
      for (int64_t lane = 0; lane < kLanes; ++lane) {
        lanes[lane] = math::maximum(lanes[lane], call(term, i + lane));
      }
    }
    Number largest = -math::kInfinity<Number>;
    for (; i < n; ++i) largest = math::maximum(largest, call(term, i));
    for (const Number lane : lanes) largest = math::maximum(largest, lane);
    return largest;
  }

  template <typename F>
  auto call(F& f, int64_t i) const {
    return call(f, i, std::make_index_sequence<kInputs>());
  }

  // A formula that needs an element's place in the row takes it first.
  template <typename F, size_t... kOperands>
  auto call(F& f, int64_t i, std::index_sequence<kOperands...>) const {
    if constexpr (std::is_invocable_v<F&, int64_t, decltype(inputs[kOperands][0])...>) {
      return f(begin + i, inputs[kOperands][i]...);
    } else {
      return f(inputs[kOperands][i]...);
    }
  }

  template <typename F, size_t... kOperands, size_t... kOutputs>
  void write(F f, std::index_sequence<kOperands...>, std::index_sequence<kOutputs...>) const {
    CPU_INDEPENDENT
    for (int64_t i = 0; i < n; ++i) {
      if constexpr (
          std::is_invocable_v<F&, int64_t, decltype(inputs[kOperands][0])..., decltype(results[kOutputs][0])...>) {
        f(begin + i, inputs[kOperands][i]..., results[kOutputs][i]...);
      } else {
        f(inputs[kOperands][i]..., results[kOutputs][i]...);
      }
    }
  }

  std::vector<Number> kept_;
};
