// Sums, products, maxima and places of them over the elements of a row.

#pragma once

#include <cstdint>
#include <utility>

#include "formula_row_elements.cuh"
#include "formula_row_parts.cuh"
#include "functions.cuh"

// The reductions of a row are numbered in the order in which the formula calls them. Of rows in parts,
// a launch is a pass: in pass i, reduction i is computed of each part alone, those before it are known of all parts,
// and those after it do not matter; the last pass writes the results.
template <typename Kernel, typename Tensors>
class RowReductions : public RowElements<Kernel, Tensors> {
  using Elements = RowElements<Kernel, Tensors>;

 public:
  using Number = typename Elements::Number;
  using Partial = PartialResult<Number>;

  using Elements::Elements;

  template <typename F>
  __device__ Number sum(F term) {
    const auto of_elements = [&] {
      Number total = 0;
      each([&](int, int, Index place, auto... values) { total += invoke(term, place, values...); });
      return Partial{total, 0, 0};
    };
    return reduced(
               Partial{},
               of_elements,
               join_sums,
               [&](const Partial& own) { return Partial{group_.sum(own.first), 0, 0}; })
        .first;
  }

  // Several sums by one pass: term(inputs..., first term, second term, ...).
  template <typename F>
  __device__ void sums(Number& first, Number& second, F term) {
    const Partial all = several_sums<2>(term);
    first = all.first;
    second = all.second;
  }

  template <typename F>
  __device__ void sums(Number& first, Number& second, Number& third, F term) {
    const Partial all = several_sums<3>(term);
    first = all.first;
    second = all.second;
    third = all.third;
  }

  template <typename F>
  __device__ void sums(Number& first, Number& second, Number& third, Number& fourth, F term) {
    const Partial all = several_sums<4>(term);
    first = all.first;
    second = all.second;
    third = all.third;
    fourth = all.fourth;
  }

  template <typename F>
  __device__ Number max(F term) {
    const auto of_elements = [&] {
      Number largest = -math::kInfinity<Number>;
      each([&](int, int, Index place, auto... values) {
        largest = math::maximum(largest, invoke(term, place, values...));
      });
      return Partial{largest, 0, 0};
    };
    const auto larger = [](Partial& left, const Partial& right) {
      left.first = math::maximum(left.first, right.first);
    };
    return reduced(
               Partial{-math::kInfinity<Number>, 0, 0},
               of_elements,
               larger,
               [&](const Partial& own) { return Partial{group_.max(own.first), 0, 0}; })
        .first;
  }

  template <typename F>
  __device__ Number min(F term) {
    return -max([&](auto... values) -> decltype(-term(values...)) { return -term(values...); });
  }

  template <typename F>
  __device__ Number product(F term) {
    const auto of_elements = [&] {
      Number product = 1;
      each([&](int, int, Index place, auto... values) { product *= invoke(term, place, values...); });
      return Partial{product, 0, 0};
    };
    const auto times = [](Partial& left, const Partial& right) { left.first *= right.first; };
    return reduced(
               Partial{1, 0, 0},
               of_elements,
               times,
               [&](const Partial& own) { return Partial{group_.product(own.first), 0, 0}; })
        .first;
  }

  // The first place of the largest term; a NaN is the largest of all.
  template <typename F>
  __device__ int64_t argmax(F term) {
    const auto keep_first = [](Partial& left, const Partial& right) {
      const Ranked<Number> other{right.first, right.place};
      if (other.is_before(Ranked<Number>{left.first, left.place})) left = right;
    };
    const Partial none{-math::kInfinity<Number>, 0, INT64_MAX};
    const auto of_elements = [&] {
      Partial first = none;
      each([&](int, int, Index place, auto... values) {
        keep_first(first, {invoke(term, place, values...), 0, place});
      });
      return first;
    };
    return reduced(
               none,
               of_elements,
               keep_first,
               [&](const Partial& own) {
                 const Ranked<Number> first = group_.argmax(Ranked<Number>{own.first, own.place});
                 return Partial{first.value, 0, first.place};
               })
        .place;
  }

  template <typename F>
  __device__ int64_t argmin(F term) {
    return argmax([&](auto... values) -> decltype(-term(values...)) { return -term(values...); });
  }

 protected:
  using Index = typename Elements::Index;
  using Elements::each;
  using Elements::group_;
  using Elements::invoke;
  using Elements::kInParts;
  using Elements::part_;
  using Elements::reductions_;
  using Elements::row_;
  using Elements::tensors_;
  using Elements::valid_;

 private:
  __device__ static void join_sums(Partial& left, const Partial& right) {
    left.first += right.first;
    left.second += right.second;
    left.third += right.third;
    left.fourth += right.fourth;
  }

  template <int kSums, typename F>
  __device__ Partial several_sums(F& term) {
    // As many as a vector may have.
    constexpr int kLength = kSums == 2 ? 2 : 4;
    using Totals = Vector<Number, kLength>;
    const auto partial_of = [](const Totals& totals) {
      Partial all{totals[0], totals[1], 0};
      if constexpr (kLength == 4) {
        all.third = totals[2];
        all.fourth = totals[3];
      }
      return all;
    };
    const auto of_elements = [&] {
      Totals totals{};
      each([&](int, int, Index place, auto... values) {
        Number terms[kSums];
        call_sums(term, place, terms, std::make_index_sequence<kSums>(), values...);
#pragma unroll
        for (int k = 0; k < kSums; ++k) totals[k] += terms[k];
      });
      return partial_of(totals);
    };
    return reduced(Partial{}, of_elements, join_sums, [&](const Partial& own) {
      Totals totals{};
      totals[0] = own.first;
      totals[1] = own.second;
      if constexpr (kLength == 4) {
        totals[2] = own.third;
        totals[3] = own.fourth;
      }
      return partial_of(group_.sum(totals));
    });
  }

  template <int kSums, typename F, size_t... kTerms, typename... Values>
  __device__ static void call_sums(
      F& term, Index place, Number (&terms)[kSums], std::index_sequence<kTerms...>, Values... values) {
    invoke(term, place, values..., terms[kTerms]...);
  }

  // A reduction of the row: of_elements() is a thread's own result, join() adds another to it, and across() is the
  // group's.
  template <typename F, typename Join, typename Across>
  __device__ Partial reduced(Partial none, const F& of_elements, const Join& join, const Across& across) {
    if constexpr (kInParts) {
      if (tensors_.parts > 1) {
        const int64_t first = (int64_t(reductions_) * tensors_.rows.count + (valid_ ? row_ : 0)) * tensors_.parts;
        Partial* const of_parts = static_cast<Partial*>(tensors_.partial) + first;
        const int reduction = reductions_++;
        if (reduction > tensors_.pass) return none;
        if (reduction == tensors_.pass) {
          const Partial own = across(of_elements());
          if (valid_ && group_.rank() == 0) of_parts[part_] = own;
          return own;
        }
        for (int part = group_.rank(); part < tensors_.parts; part += group_.size()) join(none, of_parts[part]);
        return across(none);
      }
    }
    return across(of_elements());
  }
};
