// A row as a formula sees it: sums and maxima over its elements, and a pass that writes its results.
// cuda/formula_row.cuh offers the same to GPUs.
//
// A pass goes tile by tile over all tensors at once, so that a core reads all of them at about the same time, and that
// the numbers of elements that have to be converted stay in its first cache.

#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <type_traits>
#include <utility>

#include "clones.h"
#include "functions.h"
#include "numbers.h"
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

// The elements of a tile: those of a leaf of sums.
constexpr int64_t kRowTile = PairwiseSums<float, 1>::kLeaf;

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
// Elements are those of kInputs inputs and kResults results, as numbers of the type to compute in. load(k, first,
// count) returns those of input k from `first` on; room(k, first, count) is where to write those of result k, and
// store(k, first, count, numbers) follows. is_repeated(k): whether the row before has the same elements of input k.
template <
    typename Elements,
    int kNumbers,
    int kRowResults,
    int kPlaces = 0,
    int kPlaceResults = 0,
    int kWideNumbers = 0,
    int kWideResults = 0,
    int kFlagResults = 0,
    int kFlags = 0,
    int kSaved = 0,
    int kSavedResults = 0>
class FormulaRow {
 public:
  using Number = typename Elements::Number;
  using Kept = KeptNumbers<Number>;

  Elements elements;

  int64_t n = 0;      // elements here
  int64_t begin = 0;  // the place of the first one in the row
  int64_t total_size = 0;
  int64_t rows = 0, first_size = 0;
  int64_t own_line = 0;  // the place of the row along the dimension before the last, where rows are the last one
  Number numbers[kNumbers + 1];
  int64_t places[kPlaces + 1];
  Number row_results[kRowResults + 1];
  int64_t place_results[kPlaceResults + 1];
  float wide_numbers[kWideNumbers + 1];
  bool flags[kFlags + 1];
  float wide_results[kWideResults + 1];
  bool flag_results[kFlagResults + 1];
  Number saved_numbers[kSaved + 1];
  Number saved_results[kSavedResults + 1];
  static constexpr int kMostSums = 4;
  Number given_numbers[kMostSums];  // that all rows have in common
  float wide_given_numbers[kMostSums];
  Number saved_totals[kMostSums];
  Number terms[kMostSums] = {};    // of sums over all rows
  const Number* totals = nullptr;  // these sums
  // Of a row in parts: the results of each part's reduction i from partial[i * partial_stride] on.
  PartialResult<Number>* partial = nullptr;
  int64_t partial_stride = 0;
  int64_t parts = 1, part = 0;
  int pass = 0, reductions = 0;
  std::optional<int64_t> missing;

  template <typename... Arguments>
  explicit FormulaRow(const Arguments&... of_elements) : elements(of_elements...) {}

  Number size() const { return static_cast<Number>(total_size); }

  Number count() const { return static_cast<Number>(rows); }

  Number batch() const { return static_cast<Number>(first_size); }

  Number line() const { return static_cast<Number>(own_line); }

  Number number(int i) const { return numbers[i]; }

  Number wide_number(int i) const { return wide_numbers[i]; }

  // What the forward saved of the row, and of all rows.
  Number saved(int i) const { return saved_numbers[i]; }

  Number saved_total(int i) const { return saved_totals[i]; }

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
    return KeptRow<FormulaRow, Kept>(*this, Kept{kept_.numbers(), begin});
  }

  // The same of a term of the inputs alone: rows that have these in common have it in common.
  template <int... kOfInputs, typename F>
  auto keep_for_rows(Inputs<kOfInputs...>, F term) {
    const bool is_kept = (elements.is_repeated(kOfInputs) && ...) && kept_count_ == n;
    if (!is_kept) fill_kept<kOfInputs...>(term);
    return KeptRow<FormulaRow, Kept>(*this, Kept{kept_.numbers(), begin});
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
      PartialResult<Number> result;
      if (place < begin || place >= begin + n) return result;
      const int64_t i = (place - begin) % kRowTile, first = place - begin - i;
      const auto use = [&](int64_t, int64_t, auto... inputs) { result.first = call(term, place, inputs[i]...); };
      with_inputs(first, std::min(kRowTile, n - first), use);
      return result;
    };
    const Number value = reduced(compute, join_sums).first;
    return place >= 0 && place < total_size ? value : otherwise;
  }

  template <typename F>
  Number sum(F term) {
    const auto compute = [&] {
      return sums_of_part<1>(
          [&](Number(&added)[1], int64_t place, auto... values) { added[0] = call(term, place, values...); });
    };
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
    const auto compute = [&] {
      const auto join = [](Number left, Number right) { return math::maximum(left, right); };
      return PartialResult<Number>{joined_of_part(term, -math::kInfinity<Number>, join), 0, 0};
    };
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
      const auto join = [](Number left, Number right) { return left * right; };
      return PartialResult<Number>{joined_of_part(term, Number(1), join), 0, 0};
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
      for_each_tile([&](int64_t first, int64_t count, auto... inputs) {
        for (int64_t i = 0; i < count; ++i) {
          const int64_t place = begin + first + i;
          keep_larger(largest, {call(term, place, inputs[i]...), 0, place});
        }
      });
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
  void write(F f) {
    if (partial && pass < reductions) return;
    for_each_tile([&](int64_t first, int64_t count, auto... inputs) {
      elements.prefetch(first, count);
      with_results(first, count, [&](auto... results) {
        CPU_INDEPENDENT
        CPU_ROLLED
        for (int64_t i = 0; i < count; ++i) call(f, begin + first + i, inputs[i]..., results[i]...);
      });
    });
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

  template <typename Term, typename F>
  void write_running_maxima(Term term, F f) {
    run<false, Max>(term, f);
  }

  template <typename Term, typename F>
  void write_running_maxima_back(Term term, F f) {
    run<true, Max>(term, f);
  }

  template <typename Term, typename F>
  void write_running_minima(Term term, F f) {
    run<false, Min>(term, f);
  }

  template <typename Term, typename F>
  void write_running_minima_back(Term term, F f) {
    run<true, Min>(term, f);
  }

  template <typename Term, typename F>
  void write_running_log_sums(Term term, F f) {
    run<false, LogSum>(term, f);
  }

  template <typename Term, typename F>
  void write_running_log_sums_back(Term term, F f) {
    run<true, LogSum>(term, f);
  }

  void put(int i, Number value) { row_results[i] = value; }

  // Adds to sum i over all rows.
  void add(int i, Number value) { terms[i] = value; }

  void put_place(int i, int64_t place) { place_results[i] = place; }

  void put_wide(int i, Number value) { wide_results[i] = static_cast<float>(value); }

  void put_flag(int i, bool value) { flag_results[i] = value; }

  // For the backward.
  void save(int i, Number value) { saved_results[i] = value; }

 private:
  struct Sum {
    static constexpr double kNone = 0;
    static double join(double left, double right) { return left + right; }
  };

  struct Product {
    static constexpr double kNone = 1;
    static double join(double left, double right) { return left * right; }
  };

  struct Max {
    static constexpr double kNone = -std::numeric_limits<double>::infinity();
    static double join(double left, double right) { return math::maximum(left, right); }
  };

  struct Min {
    static constexpr double kNone = std::numeric_limits<double>::infinity();
    static double join(double left, double right) { return math::minimum(left, right); }
  };

  // Of numbers that stand for their exponentials.
  struct LogSum {
    static constexpr double kNone = -std::numeric_limits<double>::infinity();
    static double join(double left, double right) {
      const double larger = math::maximum(left, right);
      return std::isfinite(larger) ? larger + std::log1p(std::exp(-std::fabs(left - right))) : larger;
    }
  };

  // A running total is kept in float64: each of its roundings would be part of all that follow.
  template <bool kBack, typename Join, typename Term, typename F>
  void run(const Term& term, const F& f) {
    double running = Join::kNone;
    if (partial) {
      PartialResult<Number>* const results_of_parts = partial + reductions * partial_stride;
      const int reduction = reductions++;
      if (reduction == pass) {
        for_each_tile([&](int64_t first, int64_t count, auto... inputs) {
          for (int64_t i = 0; i < count; ++i) {
            running = Join::join(running, call(term, begin + first + i, inputs[i]...));
          }
        });
        results_of_parts[part].first = static_cast<Number>(running);
      }
      if (reduction >= pass) return;
      for (int64_t i = kBack ? part + 1 : 0; i < (kBack ? parts : part); ++i) {
        running = Join::join(running, results_of_parts[i].first);
      }
    }
    for_each_tile<kBack>([&](int64_t first, int64_t count, auto... inputs) {
      with_results(first, count, [&](auto... results) {
        for (int64_t i = 0; i < count; ++i) {
          const int64_t k = kBack ? count - 1 - i : i, place = begin + first + k;
          running = Join::join(running, call(term, place, inputs[k]...));
          call(f, place, inputs[k]..., static_cast<Number>(running), results[k]...);
        }
      });
    });
  }

  template <int... kOfInputs, typename F>
  void fill_kept(const F& term) {
    Number* const row = kept_.reserve(n, Room<Number>::kRead);
    kept_count_ = n;
    for_each_tile([&](int64_t first, int64_t count, auto... inputs) {
      const Number* const numbers[] = {inputs...};
      Number* const kept = row + first;
      CPU_INDEPENDENT
      for (int64_t i = 0; i < count; ++i) kept[i] = term(numbers[kOfInputs][i]...);
    });
  }

  static void join_sums(PartialResult<Number>& left, const PartialResult<Number>& right) {
    left.first += right.first;
    left.second += right.second;
    left.third += right.third;
    left.fourth += right.fourth;
  }

  template <int kSums, typename F>
  PartialResult<Number> several_sums(const F& term) {
    return reduced([&] { return several_sums(term, std::make_index_sequence<kSums>()); }, join_sums);
  }

  template <typename F, size_t... kTerms>
  PartialResult<Number> several_sums(const F& term, std::index_sequence<kTerms...>) {
    return sums_of_part<sizeof...(kTerms)>([&](Number(&added)[sizeof...(kTerms)], int64_t place, auto... values) {
      call(term, place, values..., added[kTerms]...);
    });
  }

  // set_terms(added, place, inputs...) sets the terms of the element at a place.
  template <int kSums, typename F>
  PartialResult<Number> sums_of_part(const F& set_terms) {
    PairwiseSums<Number, kSums> sums;
    for_each_tile([&](int64_t first, int64_t count, auto... inputs) {
      const auto terms = [&](int64_t i, Number(&added)[kSums]) { set_terms(added, begin + first + i, inputs[i]...); };
      sums.add(count, terms);
    });
    const auto total = [&](int k) { return k < kSums ? sums.total(k) : Number(0); };
    return {total(0), total(1), 0, total(2), total(3)};
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

  // The terms of all elements here, joined, and `none` where there are no elements.
  template <typename F, typename Join>
  Number joined_of_part(const F& term, Number none, const Join& join) {
    constexpr int64_t kLanes = 32;  // Independent results, as of sums.
    Number lanes[kLanes];
    std::fill_n(lanes, kLanes, none);
    for_each_tile([&](int64_t first, int64_t count, auto... inputs) {
      const auto term_of = [&](int64_t i) { return call(term, begin + first + i, inputs[i]...); };
      int64_t i = 0;
      CPU_ROLLED
      for (; i + kLanes <= count; i += kLanes) {
        for (int64_t lane = 0; lane < kLanes; ++lane) lanes[lane] = join(lanes[lane], term_of(i + lane));
      }
      CPU_INDEPENDENT
      for (int64_t lane = 0; lane < count - i; ++lane) lanes[lane] = join(lanes[lane], term_of(i + lane));
    });
    return join_lanes<kLanes>(lanes, join);
  }

  // f(values...) of the element at a place in the row, which a formula that needs it takes first.
  template <typename F, typename... Values>
  static auto call(const F& f, int64_t place, Values&&... values) {
    if constexpr (std::is_invocable_v<const F&, int64_t, Values...>) {
      return f(place, values...);
    } else {
      return f(values...);
    }
  }

  // Calls use(first, count, inputs...) for each tile, with the numbers of each input from element `first` on.
  template <bool kBack = false, typename F>
  void for_each_tile(const F& use) {
    const int64_t tiles = (n + kRowTile - 1) / kRowTile;
    for (int64_t tile = 0; tile < tiles; ++tile) {
      const int64_t first = (kBack ? tiles - 1 - tile : tile) * kRowTile;
      with_inputs(first, std::min(kRowTile, n - first), use);
    }
  }

  template <typename F>
  void with_inputs(int64_t first, int64_t count, const F& use) {
    with_inputs(first, count, use, std::make_index_sequence<Elements::kInputs>());
  }

  template <typename F, size_t... kInputs>
  void with_inputs(int64_t first, int64_t count, const F& use, std::index_sequence<kInputs...>) {
    use(first, count, elements.load(kInputs, first, count)...);
  }

  // Calls f(results...) with room for the numbers of each result, and stores them.
  template <typename F>
  void with_results(int64_t first, int64_t count, const F& f) {
    with_results(first, count, f, std::make_index_sequence<Elements::kResults>());
  }

  template <typename F, size_t... kResults>
  void with_results(int64_t first, int64_t count, const F& f, std::index_sequence<kResults...>) {
    Number* const results[] = {elements.room(kResults, first, count)..., nullptr};
    f(results[kResults]...);
    (elements.store(kResults, first, count, results[kResults]), ...);
  }

  Room<Number> kept_;
  int64_t kept_count_ = 0;
};
