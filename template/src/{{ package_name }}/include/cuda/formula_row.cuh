// A row as a formula sees it: sums and maxima over its elements, and a pass that writes its results. cpu/formula_row.h
// offers the same to the CPU. Each of the classes that it is made of adds to the one before: elements, reductions,
// results, running totals.

#pragma once

#include <cstdint>

#include "dependent_launch.cuh"
#include "formula_row_gradient.cuh"
#include "formula_row_launch.cuh"
#include "formula_row_running.cuh"
#include "formula_row_terms.cuh"
#include "functions.cuh"

template <typename Kernel, typename Tensors>
class FormulaRow : public RowRunningTotals<Kernel, Tensors> {
  using Totals = RowRunningTotals<Kernel, Tensors>;

 public:
  using Number = typename Totals::Number;

  using Totals::Totals;

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
      each([&](int access, int k, Index, auto... values) {
        terms_[access * N + k] = term(value_at<kOfInputs>(values...)...);
      });
      return KeptRow<FormulaRow, HeldTerm<Number>>(*this, HeldTerm<Number>{terms_, &element_});
    }
  }

  template <int... kOfInputs, typename F>
  __device__ auto hold_for_rows(Inputs<kOfInputs...> inputs, F term) {
    return hold(inputs, term);
  }

 private:
  using Index = typename Totals::Index;
  using Totals::each;
  using Totals::element_;
  using Totals::kHeld;
  using Totals::N;

  Number terms_[kHeld * N + 1];  // that are held, of the elements of each access and of an edge
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
