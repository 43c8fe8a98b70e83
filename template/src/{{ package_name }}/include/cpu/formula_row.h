// A row as a formula sees it: sums and maxima over its elements, and a pass that writes its results.
// cuda/formula_row.cuh offers the same to GPUs.

#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include "functions.h"
#include "pairwise.h"

// Number is the type to compute in; the row's elements are numbers already.
template <typename Number, int kInputs, int kNumbers, int kResults, int kRowResults>
class FormulaRow {
 public:
  int64_t n = 0;
  const Number* inputs[kInputs + 1];
  Number numbers[kNumbers + 1];
  Number* results[kResults + 1];
  Number row_results[kRowResults + 1];

  Number size() const { return static_cast<Number>(n); }

  Number number(int i) const { return numbers[i]; }

  template <typename F>
  Number sum(F term) const {
    return pairwise_sum<Number>(0, n, [&](int64_t i) { return call(term, i, std::make_index_sequence<kInputs>()); });
  }

  // Two sums: term(inputs..., first term, second term). A pass each, which compilers can vectorise.
  template <typename F>
  void sums(Number& first, Number& second, F term) const {
    Number terms[2];
    const auto first_term = [&](auto... values) { return term(values..., terms[0], terms[1]), terms[0]; };
    const auto second_term = [&](auto... values) { return term(values..., terms[0], terms[1]), terms[1]; };
    first = sum(first_term);
    second = sum(second_term);
  }

  template <typename F>
  Number max(F term) const {
    constexpr int64_t kLanes = 16;  // Independent maxima, which the compiler can keep in vector registers.
    constexpr auto kPlaces = std::make_index_sequence<kInputs>();
    Number lanes[kLanes];
    for (Number& lane : lanes) lane = -math::kInfinity<Number>;
    int64_t i = 0;
    for (; i + kLanes <= n; i += kLanes) {
      for (int64_t lane = 0; lane < kLanes; ++lane) {
        lanes[lane] = math::maximum(lanes[lane], call(term, i + lane, kPlaces));
      }
    }
    Number largest = -math::kInfinity<Number>;
    for (; i < n; ++i) largest = math::maximum(largest, call(term, i, kPlaces));
    for (const Number lane : lanes) largest = math::maximum(largest, lane);
    return largest;
  }

  template <typename F>
  Number min(F term) const {
    return -max([&](auto... values) { return -term(values...); });
  }

  // f(inputs..., results...) for each element.
  template <typename F>
  void write(F f) const {
    write(f, std::make_index_sequence<kInputs>(), std::make_index_sequence<kResults>());
  }

  void put(int i, Number value) { row_results[i] = value; }

 private:
  template <typename F, size_t... kPlaces>
  Number call(F& f, int64_t i, std::index_sequence<kPlaces...>) const {
    return f(inputs[kPlaces][i]...);
  }

  template <typename F, size_t... kPlaces, size_t... kOutputs>
  void write(F f, std::index_sequence<kPlaces...>, std::index_sequence<kOutputs...>) const {
    for (int64_t i = 0; i < n; ++i) {
      f(inputs[kPlaces][i]..., results[kOutputs][i]...);
    }
  }
};
