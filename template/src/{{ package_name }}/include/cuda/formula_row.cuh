// A row as a formula sees it: sums and maxima over its elements, and a pass that writes its results. cpu/formula_row.h
// offers the same to the CPU. The headers that it includes have the parts: accesses, what is held, sums over the rows,
// and, for kernel.cu, launches.

#pragma once

#include <cstdint>
#include <type_traits>
#include <utility>

#include "cache_hints.cuh"
#include "dependent_launch.cuh"
#include "formula_row_gradient.cuh"
#include "formula_row_held.cuh"
#include "formula_row_kernel.cuh"
#include "formula_row_launch.cuh"
#include "formula_row_parts.cuh"
#include "formula_row_sums.cuh"
#include "formula_row_terms.cuh"
#include "functions.cuh"
#include "running.cuh"
#include "widen.cuh"

// A row, or a part of one. Its reductions are numbered in the order in which the formula calls them. Of rows in parts,
// a launch is a pass: in pass i, reduction i is computed of each part alone, those before it are known of all parts,
// and those after it do not matter; the last pass writes the results.
template <typename Kernel, typename Tensors>
class FormulaRow {
 public:
  using T = typename Tensors::Element;
  using Number = accumulate_t<T>;
  using Group = typename Kernel::Group;
  using Held = HeldRow<Kernel, Tensors>;
  using Sums = RowSums<Kernel, Tensors>;
  using Partial = PartialResult<Number>;

  // Past the last row it has no elements.
  __device__ FormulaRow(Group& group, const Tensors& tensors, int64_t row, int part, Held& held, Sums& sums)
      : group_(group),
        tensors_(tensors),
        held_(held),
        sums_(sums),
        row_(row),
        part_(part),
        valid_(row < tensors.rows.count),
        index_(row_index<Kernel>(tensors.rows, valid_ ? row : 0)),
        start_(row, valid_ ? tensors.rows.n : 0) {
    if constexpr (Kernel::kApart) {
      // Each element is an access of its own: addresses that are computed once are most of what there is to save.
      const int first = group_.template first_access<kHeld>();
#pragma unroll
      for (int i = 0; i < Tensors::kInputs; ++i) own_inputs_[i] = tensors_.inputs[i].row(index_) + first;
#pragma unroll
      for (int i = 0; i < Tensors::kResults; ++i) {
        T* const values = tensors_.results[i].values;
        own_results_[i] = values ? row_of_result(values, joined_of(i)) + first : nullptr;
      }
    }
  }

  __device__ Number size() const { return static_cast<Number>(tensors_.rows.n); }

  __device__ Number count() const { return static_cast<Number>(tensors_.rows.count); }

  __device__ Number batch() const { return static_cast<Number>(tensors_.rows.batch); }

  // The place of the row along the dimension before the last, where rows are the last one.
  __device__ Number line() const { return static_cast<Number>(row_ % tensors_.rows.lines); }

  __device__ Number number(int i) const {
    if constexpr (Kernel::kStays) return held_.numbers.numbers[i];
    return valid_ ? widen(tensors_.numbers[i][row_]) : Number(0);
  }

  __device__ Number wide_number(int i) const {
    if constexpr (Kernel::kStays) return held_.numbers.wide[i];
    return valid_ ? tensors_.wide_numbers[i][row_] : 0;
  }

  // What the forward saved of the row, and of all rows.
  __device__ Number saved(int i) const {
    if constexpr (Kernel::kStays) return held_.numbers.saved[i];
    return valid_ ? tensors_.saved[i][row_] : 0;
  }

  __device__ Number saved_total(int i) const { return *tensors_.saved_given[i]; }

  __device__ bool flag(int i) const {
    if constexpr (Kernel::kStays) return held_.numbers.flags[i];
    return valid_ && tensors_.flags[i][row_];
  }

  __device__ int64_t place(int i) const {
    if constexpr (Kernel::kStays) return held_.numbers.places[i];
    return valid_ ? tensors_.places[i][row_] : 0;
  }

  // 0; NaN for a place that the row does not have, which makes what is computed of its element NaN: the host learns of
  // no error without waiting for the kernel.
  __device__ Number checked_zero(int64_t place) const {
    return place >= 0 && place < tensors_.rows.n ? Number(0) : math::kNaN<Number>;
  }

  // A number that all rows have in common, and a sum over all rows.
  __device__ Number given(int i) const { return widen(*tensors_.given[i]); }

  __device__ Number wide_given(int i) const { return *tensors_.wide_given[i]; }

  __device__ Number total(int i) const { return tensors_.totals[i]; }

  // The row with term(those of the inputs that have these numbers) of each element.
  template <int... kOfInputs, typename F>
  __device__ auto keep(Inputs<kOfInputs...>, F term) {
    using Kept = KeptTerm<F, kOfInputs...>;
    return KeptRow<FormulaRow, Kept>(*this, Kept{term});
  }

  // The same of a term of the inputs alone.
  template <int... kOfInputs, typename F>
  __device__ auto keep_for_rows(Inputs<kOfInputs...> inputs, F term) {
    return keep(inputs, term);
  }

  // The row with such a term in registers, which are worth it where the term is a long one; computed again where no
  // inputs are held.
  template <int... kOfInputs, typename F>
  __device__ auto hold(Inputs<kOfInputs...> inputs, F term) {
    if constexpr (kHeld == 0) {
      return keep(inputs, term);
    } else {
      each<false>([&](int access, int k, Index, auto... values) {
        terms_[access * N + k] = term(value_at<kOfInputs>(values...)...);
      });
      return KeptRow<FormulaRow, HeldTerm<Number>>(*this, HeldTerm<Number>{terms_, &element_});
    }
  }

  template <int... kOfInputs, typename F>
  __device__ auto hold_for_rows(Inputs<kOfInputs...> inputs, F term) {
    return hold(inputs, term);
  }

  // The term of the element at a place, which is read alone; `otherwise` where the row has none there.
  template <typename F>
  __device__ Number at(int64_t place, Number otherwise, F term) const {
    if (!valid_ || place < 0 || place >= tensors_.rows.n) return otherwise;
    return term_at(place, term, std::make_index_sequence<Tensors::kInputs>());
  }

  template <typename F>
  __device__ Number sum(F term) {
    const auto of_elements = [&] {
      Number total = 0;
      each<false>([&](int, int, Index place, auto... values) { total += invoke(term, place, values...); });
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
      each<false>([&](int, int, Index place, auto... values) {
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
      each<false>([&](int, int, Index place, auto... values) { product *= invoke(term, place, values...); });
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
      each<false>([&](int, int, Index place, auto... values) {
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

  // f(inputs..., results...) for each element.
  template <typename F>
  __device__ void write(F f) {
    if (is_last_pass()) write(f, std::make_index_sequence<Tensors::kResults>());
  }

  // f(inputs..., running, results...) for each element: `running` is the sum of term(inputs...) of the row's elements
  // up to this one.
  template <typename Term, typename F>
  __device__ void write_running_sums(Term term, F f) {
    run<false, Sum>(term, f, std::make_index_sequence<Tensors::kInputs>());
  }

  // From this one on.
  template <typename Term, typename F>
  __device__ void write_running_sums_back(Term term, F f) {
    run<true, Sum>(term, f, std::make_index_sequence<Tensors::kInputs>());
  }

  template <typename Term, typename F>
  __device__ void write_running_products(Term term, F f) {
    run<false, Product>(term, f, std::make_index_sequence<Tensors::kInputs>());
  }

  template <typename Term, typename F>
  __device__ void write_running_products_back(Term term, F f) {
    run<true, Product>(term, f, std::make_index_sequence<Tensors::kInputs>());
  }

  template <typename Term, typename F>
  __device__ void write_running_maxima(Term term, F f) {
    run<false, Max>(term, f, std::make_index_sequence<Tensors::kInputs>());
  }

  template <typename Term, typename F>
  __device__ void write_running_maxima_back(Term term, F f) {
    run<true, Max>(term, f, std::make_index_sequence<Tensors::kInputs>());
  }

  template <typename Term, typename F>
  __device__ void write_running_minima(Term term, F f) {
    run<false, Min>(term, f, std::make_index_sequence<Tensors::kInputs>());
  }

  template <typename Term, typename F>
  __device__ void write_running_minima_back(Term term, F f) {
    run<true, Min>(term, f, std::make_index_sequence<Tensors::kInputs>());
  }

  template <typename Term, typename F>
  __device__ void write_running_log_sums(Term term, F f) {
    run<false, LogSum>(term, f, std::make_index_sequence<Tensors::kInputs>());
  }

  template <typename Term, typename F>
  __device__ void write_running_log_sums_back(Term term, F f) {
    run<true, LogSum>(term, f, std::make_index_sequence<Tensors::kInputs>());
  }

  __device__ void put(int i, Number value) {
    if (puts() && tensors_.row_results[i]) tensors_.row_results[i][row_] = static_cast<T>(value);
  }

  // Adds to sum i over all rows.
  __device__ void add(int i, Number value) {
    if (puts()) tensors_.terms[i * tensors_.rows.count + row_] = value;
  }

  __device__ void put_place(int i, int64_t place) {
    if (puts()) tensors_.place_results[i][row_] = place;
  }

  __device__ void put_wide(int i, Number value) {
    if (puts()) tensors_.wide_results[i][row_] = static_cast<float>(value);
  }

  __device__ void put_flag(int i, bool value) {
    if (puts()) tensors_.flag_results[i][row_] = value;
  }

  // For the backward.
  __device__ void save(int i, Number value) {
    if (puts()) tensors_.saved_results[i][row_] = value;
  }

 private:
  static constexpr int N = Kernel::kN, kHeld = Kernel::kHeld;
  static constexpr bool kAligned = Kernel::kAligned, kPeeled = Kernel::kPeeled;
  static constexpr bool kHasEdges = kPeeled && !Kernel::kApart;
  static constexpr bool kInParts = kHeld == 0;
  // The accesses to each input that are in flight where none are held.
  static constexpr int kAhead = kAligned && Tensors::kInputs < 3 ? 2 : 1;
  // Those whose late inputs are loaded at once where they are held.
  static constexpr int kTogether = Kernel::kApart ? 4 : 1;
  using Access = Vector<T, N>[Tensors::kInputs + 1];
  using Index = typename Kernel::Index;

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
      each<false>([&](int, int, Index place, auto... values) {
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

  template <typename F, size_t... kPlaces>
  __device__ Number term_at(int64_t place, F& term, std::index_sequence<kPlaces...>) const {
    const auto element = [&](const Operand<T>& input) { return input.row(index_)[input.offset(tensors_.rows, place)]; };
    return invoke(term, place, widen(element(tensors_.inputs[kPlaces]))...);
  }

  // A formula that needs an element's place in the row takes it first.
  template <typename F, typename... Values>
  __device__ static decltype(auto) invoke(F& f, int64_t place, Values&&... values) {
    if constexpr (std::is_invocable_v<F&, int64_t, Values&&...>) {
      return f(place, values...);
    } else {
      return f(values...);
    }
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

  __device__ bool is_last_pass() const { return !kInParts || tensors_.parts == 1 || reductions_ == tensors_.pass; }

  __device__ bool puts() const { return valid_ && group_.rank() == 0 && part_ == 0 && is_last_pass(); }

  // Where a part of the row ends, in accesses.
  __device__ Index end_of_part(int part) const {
    return static_cast<Index>(int64_t(start_.accesses) * part / tensors_.parts);
  }

  __device__ Index elements() const { return valid_ ? static_cast<Index>(tensors_.rows.n) : 0; }

  __device__ Vector<T, N> read(int i, Index first) const {
    const Operand<T>& input = tensors_.inputs[i];
    const int64_t end = (tensors_.rows.count - row_) * tensors_.rows.n;
    return read_row<N, kAligned, kInParts>(input, tensors_.rows, input.row(index_), first, elements(), end);
  }

  // Calls f(access, k, place, inputs...) for each element: number k of an access, at its place in the row. Calls
  // finish(access, first, size) after each access, which has `size` elements from number `first` of the row on. kLast:
  // the pass that reads the late inputs.
  template <bool kLast, typename F, typename G>
  __device__ void each(F f, G finish) {
    const auto visit = [&](int access, Index first, const Access& vectors) {
#pragma unroll
      for (int k = 0; k < N; ++k) {
        if (is_inside(first, k)) {
          call(f, access, k, first + k, vectors, std::make_index_sequence<Tensors::kInputs>());
        }
      }
      finish(access, first, std::integral_constant<int, N>());
    };
    if constexpr (kHeld > 0) {
      const auto index_of = [&](int access) { return group_.template first_access<kHeld>() + access * Group::kStep; };
#pragma unroll
      for (int first = 0; first < kHeld; first += kTogether) {
#pragma unroll
        for (int access = first; access < first + kTogether; ++access) prepare<kLast>(access, index_of(access));
#pragma unroll
        for (int access = first; access < first + kTogether; ++access) {
          const Index index = index_of(access);
          if (index < start_.accesses) visit(access, start_.first(index), held_.accesses[access]);
        }
      }
      if constexpr (kHasEdges) visit_edge<kLast>(f, finish, std::make_index_sequence<Tensors::kInputs>());
    } else {
      const Index end = end_of_part(part_ + 1), step = group_.size();
      const Index begin = end_of_part(part_) + group_.rank();
      for (Index index = begin; index < end; index += kAhead * step) {
        Access vectors[kAhead];
#pragma unroll
        for (int ahead = 0; ahead < kAhead; ++ahead) {
#pragma unroll
          for (int i = 0; i < Tensors::kInputs; ++i) {
            const Index first = start_.first(index + ahead * step);
            if (kLast || !(Tensors::kLate >> i & 1)) vectors[ahead][i] = read(i, first);
          }
        }
#pragma unroll
        for (int ahead = 0; ahead < kAhead; ++ahead) {
          if (index + ahead * step < end) visit(0, start_.first(index + ahead * step), vectors[ahead]);
        }
      }
    }
  }

  // The element of a peeled row's ends that the thread has.
  template <bool kLast, typename F, typename G, size_t... kPlaces>
  __device__ void visit_edge(F& f, G& finish, std::index_sequence<kPlaces...>) {
    if (group_.rank() >= start_.edges) return;
    const int place = start_.edge(group_.rank());
    element_ = kHeld * N;
#pragma unroll
    for (int i = 0; i < Tensors::kInputs; ++i) {
      const Operand<T>& input = tensors_.inputs[i];
      if (kLast && (Tensors::kLate >> i & 1)) held_.edges[i] = input.row(index_)[place * input.step];
    }
    f(kHeld, 0, place, widen(held_.edges[kPlaces])...);
    finish(kHeld, place, std::integral_constant<int, 1>());
  }

  // Before a pass over an access that is held. kLast: as of `each`.
  template <bool kLast>
  __device__ void prepare(int access, Index index) {
#pragma unroll
    for (int i = 0; i < Tensors::kInputs; ++i) {
      // Elements of 16 bits are widened again in each pass: kept as float32, they would take twice the registers.
      if (!(Tensors::kLate >> i & 1)) forget_conversions(held_.accesses[access][i]);
      if (kLast && !Held::is_held(i)) held_.accesses[access][i] = read_late(i, access, index);
    }
  }

  __device__ Vector<T, N> read_late(int i, int access, Index index) const {
    if constexpr (Kernel::kApart) {
      return {index < start_.accesses ? own_inputs_[i][access * Group::kStep] : T()};
    } else if constexpr (kPeeled) {
      const Operand<T>& input = tensors_.inputs[i];
      const T* const row = input.row(index_);
      const bool is_valid = index < start_.accesses, has_vectors = has_peeled_vectors<N>(input);
      const auto values = load_evict_last<N>(row + start_.first(index), 0, is_valid && has_vectors);
      return has_vectors ? values : read_apart<N>(input, row, start_.first(index), is_valid);
    } else {
      return read(i, start_.first(index));
    }
  }

  template <bool kLast, typename F>
  __device__ void each(F f) {
    each<kLast>(f, [](int, Index, auto) {});
  }

  template <typename F, size_t... kPlaces>
  __device__ void call(F& f, int access, int k, Index place, const Access& vectors, std::index_sequence<kPlaces...>) {
    element_ = access * N + k;
    f(access, k, place, widen_at(vectors[kPlaces], k)...);
  }

  // The results of an element, as a formula assigns them: a code is an integer already.
  struct Numbers {
    Number numbers[Tensors::kResults + 1];
    uint8_t codes[Tensors::kCodes ? Tensors::kResults : 1];

    template <size_t kPlace>
    __device__ auto& result() {
      if constexpr ((Tensors::kCodes >> kPlace & 1) != 0) {
        return codes[kPlace];
      } else {
        return numbers[kPlace];
      }
    }
  };

  struct Results {
    Vector<T, N> values[Tensors::kResults + 1];
    Vector<uint8_t, N> codes[Tensors::kCodes ? Tensors::kResults : 1];
    Vector<float, N> wide[Tensors::kWide ? Tensors::kResults : 1];
    typename Sums::Terms terms;  // of sums over the rows
  };

  template <typename F, size_t... kPlaces>
  __device__ void write(F f, std::index_sequence<kPlaces...>) {
    Results results;
    const auto compute = [&](int access, int k, Index place, auto... values) {
      Numbers numbers;
      invoke(f, place, values..., numbers.template result<kPlaces>()...);
      keep(access, k, numbers, results);
    };
    each<true>(compute, [&](int access, Index first, auto size) {
      if constexpr (Kernel::kSummed != 0 && size == N) sums_.add(tensors_, access, results.terms);
      if constexpr (Kernel::kApart) {
        store_own(access, results);
      } else {
        store_results<size>(first, results);
      }
    });
  }

  // Results of element k of an access, rounded, and as terms of sums over the rows.
  __device__ void keep(int access, int k, const Numbers& numbers, Results& results) {
#pragma unroll
    for (int i = 0; i < Tensors::kResults; ++i) {
      if constexpr (Tensors::kCodes != 0) {
        if (Tensors::kCodes >> i & 1) {
          results.codes[i][k] = numbers.codes[i];
          continue;
        }
      }
      if constexpr (Tensors::kWide != 0) {
        if (Tensors::kWide >> i & 1) {
          results.wide[i][k] = static_cast<float>(numbers.numbers[i]);
          continue;
        }
      }
      results.values[i][k] = static_cast<T>(numbers.numbers[i]);
      if constexpr (Kernel::kSummed != 0) {
        if (!(Kernel::kSummed >> i & 1)) continue;
        if (access < kHeld) {
          results.terms[Sums::number_of(i)][k] = numbers.numbers[i];
        } else {
          sums_.add_edge(i, numbers.numbers[i]);
        }
      }
    }
  }

  // Writes the results of an access, which begins with element number `first` of the row; or of one element.
  template <int kSize>
  __device__ void store_results(Index first, const Results& results) const {
#pragma unroll
    for (int i = 0; i < Tensors::kResults; ++i) {
      if constexpr (Tensors::kCodes != 0) {
        if (Tensors::kCodes >> i & 1) {
          store_result<kSize>(tensors_.codes[i], 0, first, results.codes[i]);
          continue;
        }
      }
      if constexpr (Tensors::kWide != 0) {
        if (Tensors::kWide >> i & 1) {
          store_result<kSize>(tensors_.wide_rows[i], 0, first, results.wide[i]);
          continue;
        }
      }
      store_result<kSize>(tensors_.results[i].values, joined_of(i), first, results.values[i]);
    }
  }

  // Writes the results of an element of a row that lies apart.
  __device__ void store_own(int access, const Results& results) const {
#pragma unroll
    for (int i = 0; i < Tensors::kResults; ++i) {
      if (own_results_[i]) own_results_[i][access * Group::kStep] = results.values[i][0];
    }
  }

  // Of how many parts the rows of a result are joined; 0: of none.
  __device__ int joined_of(int i) const { return Tensors::kJoined >> i & 1 ? tensors_.joined[i] : 0; }

  template <typename Element>
  __device__ Element* row_of_result(Element* values, int joined) const {
    return values + (joined ? row_ * joined : row_) * elements();
  }

  // `values`: of all rows; null: not needed. `joined`: of how many parts the result's rows are joined; 0: of none.
  template <int kSize, typename Element>
  __device__ void store_result(Element* values, int joined, Index first, const Vector<Element, N>& result) const {
    const Index n = elements();
    if (!values) return;
    const Operand<T>& layout = tensors_.layout;
    if (kInParts && !layout.flat) {
      Element* const row = values + (layout.row(index_) - layout.data);
#pragma unroll
      for (int k = 0; k < N; ++k) {
        if (first + k >= 0 && first + k < n) row[layout.offset(tensors_.rows, first + k)] = result[k];
      }
      return;
    }
    Element* const row = row_of_result(values, joined);
    if constexpr (kSize == 1) {
      row[first] = result[0];
    } else if (kAligned || (!joined && (kPeeled || (first >= 0 && first + N <= n)))) {
      store_evict_last(row + first, 0, result);
    } else {
#pragma unroll
      for (int k = 0; k < N; ++k) {
        if (first + k >= 0 && first + k < n) row[first + k] = result[k];
      }
    }
  }

  // ---- Running totals

  template <bool kBack, typename Join, typename Term, typename F, size_t... kPlaces>
  __device__ void run(Term term, F f, std::index_sequence<kPlaces...> places) {
    const Number none = Join::template none<Number>();
    Number all, carry = none;
    const auto total_of_elements = [&] {
      Number own = none;
      each<false>(
          [&](int, int, Index place, auto... values) { own = Join::join(own, invoke(term, place, values...)); });
      return own;
    };
    if constexpr (kHeld > 0) {
      static_assert(kAligned, "running totals take the elements in their order");
      lanes_before<kBack, Join>(total_of_elements(), &all);
      carry = warps_before<kBack, Join>(group_, all, &all);
#pragma unroll
      for (int i = 0; i < kHeld; ++i) {
        const int access = kBack ? kHeld - 1 - i : i;
        const Index index = group_.template first_access<kHeld>() + access * Group::kStep;
        prepare<true>(access, index);
        const Index first = start_.first(index);
        const bool is_valid = index < start_.accesses;
        Number running[N];
        const Number own = run_access<kBack, Join>(term, first, is_valid, held_.accesses[access], running, places);
        const Number before = Join::join(carry, lanes_before<kBack, Join>(own, &all));
        carry = Join::join(carry, all);
        if (is_valid) write_run<Join>(f, access, first, held_.accesses[access], running, before, places);
      }
    } else {
      const Index accesses = start_.accesses, parts = tensors_.parts;
      Index begin = accesses * part_ / parts, end = parts == 1 ? accesses : accesses * (part_ + 1) / parts;
      if (parts > 1 && !carry_of_parts<kBack, Join>(total_of_elements, &carry)) return;
      if constexpr (std::is_same_v<Group, ColumnGroup>) {
        // Each warp has a part of the row.
        const Index n = end - begin;
        end = begin + n * (group_.rank() + 1) / group_.size();
        begin += n * group_.rank() / group_.size();
        Number own = none;
        for (Index index = begin; index < end; ++index) {
          Access vectors;
          read_all(vectors, index);
          Number running[N];
          own = Join::join(own, run_access<kBack, Join>(term, start_.first(index), true, vectors, running, places));
        }
        carry = Join::join(carry, warps_before<kBack, Join>(group_, own, &all));
        for (Index i = begin; i < end; ++i) {
          const Index index = kBack ? begin + end - 1 - i : i;
          Access vectors;
          read_all(vectors, index);
          Number running[N];
          const Number total = run_access<kBack, Join>(term, start_.first(index), true, vectors, running, places);
          write_run<Join>(f, 0, start_.first(index), vectors, running, carry, places);
          carry = Join::join(carry, total);
        }
      } else {
        for (Index tile = begin; tile < end; tile += group_.size()) {
          // The threads take the accesses of a tile in their order; against it, the last tile comes first.
          const Index index = kBack ? end - (tile - begin) - group_.size() + group_.rank() : tile + group_.rank();
          const bool is_valid = index >= begin && index < end;
          Access vectors = {};
          if (is_valid) read_all(vectors, index);
          Number running[N];
          const Index first = start_.first(index);
          const Number own = run_access<kBack, Join>(term, first, is_valid, vectors, running, places);
          Number of_warp;
          const Number in_warp = lanes_before<kBack, Join>(own, &of_warp);
          const Number before = Join::join(warps_before<kBack, Join>(group_, of_warp, &all), in_warp);
          if (is_valid) write_run<Join>(f, 0, first, vectors, running, Join::join(carry, before), places);
          carry = Join::join(carry, all);
        }
      }
    }
  }

  // Of a row in parts: in the pass of this reduction, leaves what the part has and returns false; in the last pass,
  // sets what the parts before it have.
  template <bool kBack, typename Join, typename F>
  __device__ bool carry_of_parts(const F& total_of_elements, Number* carry) {
    const int64_t first = (int64_t(reductions_) * tensors_.rows.count + (valid_ ? row_ : 0)) * tensors_.parts;
    Partial* const of_parts = static_cast<Partial*>(tensors_.partial) + first;
    const int reduction = reductions_++;
    if (reduction == tensors_.pass) {
      const Number own = Join::across(group_, total_of_elements());
      if (valid_ && group_.rank() == 0) of_parts[part_].first = own;
    }
    if (reduction >= tensors_.pass) return false;
    const int begin = kBack ? part_ + 1 : 0, end = kBack ? tensors_.parts : part_;
    for (int part = begin + group_.rank(); part < end; part += group_.size()) {
      *carry = Join::join(*carry, of_parts[part].first);
    }
    *carry = Join::across(group_, *carry);
    return true;
  }

  __device__ void read_all(Access& vectors, Index index) const {
#pragma unroll
    for (int i = 0; i < Tensors::kInputs; ++i) vectors[i] = read(i, start_.first(index));
  }

  __device__ bool is_inside(Index first, int k) const {
    return kAligned || kPeeled || (first + k >= 0 && first + k < elements());
  }

  // The running totals of an access alone, and its total.
  template <bool kBack, typename Join, typename Term, size_t... kPlaces>
  __device__ Number run_access(
      Term& term,
      Index first,
      bool is_valid,
      const Access& vectors,
      Number (&running)[N],
      std::index_sequence<kPlaces...>) const {
    Number total = Join::template none<Number>();
#pragma unroll
    for (int i = 0; i < N; ++i) {
      const int k = kBack ? N - 1 - i : i;
      if (is_valid && is_inside(first, k)) {
        total = Join::join(total, invoke(term, first + k, widen_at(vectors[kPlaces], k)...));
      }
      running[k] = total;
    }
    return total;
  }

  // Writes the results of an access, before which the row has `before`.
  template <typename Join, typename F, size_t... kPlaces>
  __device__ void write_run(
      F& f,
      int access,
      Index first,
      const Access& vectors,
      const Number (&running)[N],
      Number before,
      std::index_sequence<kPlaces...>) {
    Results results;
#pragma unroll
    for (int k = 0; k < N; ++k) {
      if (!is_inside(first, k)) continue;
      Numbers numbers;
      call_running(
          f,
          first + k,
          Join::join(before, running[k]),
          numbers,
          std::make_index_sequence<Tensors::kResults>(),
          widen_at(vectors[kPlaces], k)...);
      keep(access, k, numbers, results);
    }
    if constexpr (Kernel::kSummed != 0) sums_.add(tensors_, access, results.terms);
    store_results<N>(first, results);
  }

  template <typename F, size_t... kOutputs, typename... Values>
  __device__ static void call_running(
      F& f, Index place, Number running, Numbers& numbers, std::index_sequence<kOutputs...>, Values... values) {
    invoke(f, place, values..., running, numbers.template result<kOutputs>()...);
  }

  Group& group_;
  const Tensors& tensors_;
  Held& held_;
  Sums& sums_;
  const int64_t row_;
  const int part_;
  const bool valid_;
  const RowIndex index_;
  const typename Kernel::Start start_;
  const T* own_inputs_[Kernel::kApart ? Tensors::kInputs + 1 : 1];
  T* own_results_[Kernel::kApart ? Tensors::kResults + 1 : 1];
  Number terms_[kHeld * N + 1];  // that are held, of the elements of each access and of an edge
  int element_ = 0;
  int reductions_ = 0;
};

// Calls formula(row) for the rows of a group. kSummed: the results of which sums over the rows are written as well.
// Groups that stay keep what all rows have in common, and copy the next row while the formula of one is computed.
template <typename Kernel, typename Tensors, typename Formula>
__device__ void for_each_row(const Tensors& tensors, const Formula& formula) {
  using Group = typename Kernel::Group;
  using Row = FormulaRow<Kernel, Tensors>;
  extern __shared__ __align__(32) char shared[];
  Group group;
  typename Row::Held held;
  typename Row::Sums sums(shared, tensors.summed);
  const int64_t count = tensors.rows.count;
  // The kernel before may compute sums over all rows that this one reads.
  if (tensors.totals) wait_for_kernel_before();
  if constexpr (Kernel::kHeld == 0) {
    const int part = blockIdx.y;
    for (int64_t i = group.first(); group.in_turn(i, count); i += group.count()) {
      Row row(group, tensors, i, part, held, sums);
      formula(row);
    }
  } else if constexpr (Kernel::kStays) {
    typename Row::Held::Waiting waiting(shared + Row::Sums::bytes(blockDim.x, tensors.summed), __popc(tensors.waiting));
    held.fetch(waiting, group, tensors, group.first());
    held.load_some(group, tensors, group.first(), tensors.common);
    RowNumbers<Tensors> next;
    next.load(tensors, group.first());
    for (int64_t i = group.first(); group.in_turn(i, count); i += group.count()) {
      held.load_some(group, tensors, i, ~(tensors.common | tensors.waiting));
      held.take(waiting, tensors);
      held.fetch(waiting, group, tensors, i + group.count());
      held.numbers = next;
      next.load(tensors, i + group.count());
      Row row(group, tensors, i, 0, held, sums);
      formula(row);
    }
    waiting.drain();
    if constexpr (Kernel::kSummed != 0) {
      let_next_kernel_start();  // The one that adds up what the blocks leave.
      sums.write(group, tensors);
    }
  } else {
    for (int64_t i = group.first(); group.in_turn(i, count); i += group.count()) {
      held.load(group, tensors, i);
      Row row(group, tensors, i, 0, held, sums);
      formula(row);
    }
    if constexpr (Kernel::kSummed != 0) sums.write(group, tensors);
  }
}

// How many accesses a thread holds beside a term of each element. Those of 16 bits have twice as many terms.
template <typename T>
constexpr int accesses_beside_terms(int accesses) {
  return sizeof(T) == 2 && accesses > 1 ? accesses / 2 : accesses;
}
