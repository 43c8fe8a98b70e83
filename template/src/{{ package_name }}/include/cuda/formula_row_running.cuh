// Results of a row's elements that running totals enter: of the elements before them, or behind them.

#pragma once

#include <cstdint>
#include <type_traits>
#include <utility>

#include "formula_row_results.cuh"
#include "running.cuh"

template <typename Kernel, typename Tensors>
class RowRunningTotals : public RowResults<Kernel, Tensors> {
  using Written = RowResults<Kernel, Tensors>;

 public:
  using Number = typename Written::Number;

  using Written::Written;

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

 protected:
  using Access = typename Written::Access;
  using Group = typename Written::Group;
  using Index = typename Written::Index;
  using Numbers = typename Written::Numbers;
  using Partial = typename Written::Partial;
  using Results = typename Written::Results;
  using Written::each;
  using Written::group_;
  using Written::held_;
  using Written::invoke;
  using Written::is_inside;
  using Written::kAligned;
  using Written::kHeld;
  using Written::N;
  using Written::part_;
  using Written::prepare_last;
  using Written::read_all;
  using Written::reductions_;
  using Written::row_;
  using Written::start_;
  using Written::sums_;
  using Written::take;
  using Written::tensors_;
  using Written::valid_;

 private:
  template <bool kBack, typename Join, typename Term, typename F, size_t... kPlaces>
  __device__ void run(Term term, F f, std::index_sequence<kPlaces...> places) {
    const Number none = Join::template none<Number>();
    Number all, carry = none;
    const auto total_of_elements = [&] {
      Number own = none;
      each([&](int, int, Index place, auto... values) { own = Join::join(own, invoke(term, place, values...)); });
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
        prepare_last(access, index);
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
      take(access, k, numbers, results);
    }
    if constexpr (Kernel::kSummed != 0) sums_.add(tensors_, access, results.terms);
    this->template store_results<N>(first, results);
  }

  template <typename F, size_t... kOutputs, typename... Values>
  __device__ static void call_running(
      F& f, Index place, Number running, Numbers& numbers, std::index_sequence<kOutputs...>, Values... values) {
    invoke(f, place, values..., running, numbers.template result<kOutputs>()...);
  }
};
