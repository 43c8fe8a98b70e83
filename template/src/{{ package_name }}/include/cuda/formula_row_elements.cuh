// The elements of a row as passes over it see them, and the numbers that a row has, or all rows have in common.

#pragma once

#include <cstdint>
#include <type_traits>
#include <utility>

#include "cache_hints.cuh"
#include "formula_row_held.cuh"
#include "formula_row_kernel.cuh"
#include "formula_row_parts.cuh"
#include "formula_row_sums.cuh"
#include "functions.cuh"
#include "widen.cuh"

// A row, or a part of one. Of rows in parts, a launch is a pass: see RowReductions.
template <typename Kernel, typename Tensors>
class RowElements {
 public:
  using T = typename Tensors::Element;
  using Number = accumulate_t<T>;
  using Group = typename Kernel::Group;
  using Held = HeldRow<Kernel, Tensors>;
  using Sums = RowSums<Kernel, Tensors>;
  using Index = typename Kernel::Index;

  // Past the last row it has no elements.
  __device__ RowElements(Group& group, const Tensors& tensors, int64_t row, int part, Held& held, Sums& sums)
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

  // The term of the element at a place, which is read alone; `otherwise` where the row has none there.
  template <typename F>
  __device__ Number at(int64_t place, Number otherwise, F term) const {
    if (!valid_ || place < 0 || place >= tensors_.rows.n) return otherwise;
    return term_at(place, term, std::make_index_sequence<Tensors::kInputs>());
  }

 protected:
  static constexpr int N = Kernel::kN, kHeld = Kernel::kHeld;
  static constexpr bool kAligned = Kernel::kAligned, kPeeled = Kernel::kPeeled;
  static constexpr bool kInParts = kHeld == 0;
  using Access = Vector<T, N>[Tensors::kInputs + 1];

  __device__ bool is_last_pass() const { return !kInParts || tensors_.parts == 1 || reductions_ == tensors_.pass; }

  __device__ bool puts() const { return valid_ && group_.rank() == 0 && part_ == 0 && is_last_pass(); }

  __device__ Index elements() const { return valid_ ? static_cast<Index>(tensors_.rows.n) : 0; }

  __device__ Vector<T, N> read(int i, Index first) const {
    const Operand<T>& input = tensors_.inputs[i];
    const int64_t end = (tensors_.rows.count - row_) * tensors_.rows.n;
    return read_row<N, kAligned, kInParts>(input, tensors_.rows, input.row(index_), first, elements(), end);
  }

  __device__ void read_all(Access& vectors, Index index) const {
#pragma unroll
    for (int i = 0; i < Tensors::kInputs; ++i) vectors[i] = read(i, start_.first(index));
  }

  __device__ bool is_inside(Index first, int k) const {
    return kAligned || kPeeled || (first + k >= 0 && first + k < elements());
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

  // Calls f(access, k, place, inputs...) for each element: number k of an access, at its place in the row.
  template <typename F>
  __device__ void each(F f) {
    pass<false>(f, [](int, Index, auto) {});
  }

  // The same in the pass that reads the late inputs. Calls finish(access, first, size) after each access, which has
  // `size` elements from number `first` of the row on.
  template <typename F, typename G>
  __device__ void each_of_last_pass(F f, G finish) {
    pass<true>(f, finish);
  }

  // Before the last pass over an access that is held.
  __device__ void prepare_last(int access, Index index) { prepare<true>(access, index); }

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
  int element_ = 0;     // that a pass is at
  int reductions_ = 0;  // that the formula has called

 private:
  static constexpr bool kHasEdges = kPeeled && !Kernel::kApart;
  // The accesses to each input that are in flight where none are held.
  static constexpr int kAhead = kAligned && Tensors::kInputs < 3 ? 2 : 1;
  // Those whose late inputs are loaded at once where they are held.
  static constexpr int kTogether = Kernel::kApart ? 4 : 1;

  // Where a part of the row ends, in accesses.
  __device__ Index end_of_part(int part) const {
    return static_cast<Index>(int64_t(start_.accesses) * part / tensors_.parts);
  }

  template <typename F, size_t... kPlaces>
  __device__ Number term_at(int64_t place, F& term, std::index_sequence<kPlaces...>) const {
    const auto element = [&](const Operand<T>& input) { return input.row(index_)[input.offset(tensors_.rows, place)]; };
    return invoke(term, place, widen(element(tensors_.inputs[kPlaces]))...);
  }

  // kLast: the pass that reads the late inputs.
  template <bool kLast, typename F, typename G>
  __device__ void pass(F f, G finish) {
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

  // Before a pass over an access that is held. kLast: as of `pass`.
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

  template <typename F, size_t... kPlaces>
  __device__ void call(F& f, int access, int k, Index place, const Access& vectors, std::index_sequence<kPlaces...>) {
    element_ = access * N + k;
    f(access, k, place, widen_at(vectors[kPlaces], k)...);
  }
};
