// A row as a formula sees it: sums and maxima over its elements, and a pass that writes its results. cpu/formula_row.h
// offers the same to the CPU.

#pragma once

#include <algorithm>
#include <type_traits>
#include <utility>

#include "evict_last.cuh"
#include "functions.cuh"
#include "gradient_sums.cuh"
#include "row_tensors.h"
#include "thread_group.cuh"
#include "tile.cuh"
#include "widen.cuh"

// Which elements of a row an access has. Of rows that start at multiples of 16 bytes, access i has those from i * N on.
// Index: int where a block holds the row, which is short then.
template <int N, bool kAligned, typename Index>
struct RowStart {
  __device__ RowStart(int64_t, int64_t n) : accesses(static_cast<Index>(n / N)) {}

  __device__ Index first(Index access) const { return access * N; }

  Index accesses;  // of the row
};

// Others lie one after the other, or each as it likes: the accesses are aligned, so a row's first and last one may have
// elements of the rows before and after it.
template <int N, typename Index>
struct RowStart<N, false, Index> {
  __device__ RowStart(int64_t row, int64_t n)
      : shift(static_cast<int>(row * n % N)), accesses(n == 0 ? 0 : static_cast<Index>((n + shift + N - 1) / N)) {}

  __device__ Index first(Index access) const { return access * N - shift; }

  int shift;
  Index accesses;
};

// N elements of an input's row from `first` on; zeros where they are not the row's. Nothing waits for a load here:
// there are predicates, but no branches.
template <int N, bool kAligned, typename Index, typename T>
__device__ Vector<T, N> read_row(const Operand<T>& input, const T* row, Index first, Index n, int64_t end) {
  if constexpr (kAligned) {
    return load_evict_last<N>(row + first, 0, first < n);
  } else {
    // `end` is the number of elements from the row's first one to the last one of the tensor.
    const bool is_aligned = reinterpret_cast<uintptr_t>(input.data) % sizeof(Vector<T, N>) == 0;
    const bool is_vector = input.flat && is_aligned && first + N <= end && first < n;
    Vector<T, N> values = load_evict_last<N>(row + first, 0, is_vector);
#pragma unroll
    for (int k = 0; k < N; ++k) {
      const bool is_inside = first + k >= 0 && first + k < n;
      const T value = !is_vector && is_inside ? row[(first + k) * input.step] : T();
      if (!is_vector) values[k] = value;
    }
    return values;
  }
}

// A thread's part of a row of every input but the late ones, in registers: kHeld accesses of N elements.
template <typename Kernel, typename Tensors>
struct HeldRow {
  using T = typename Tensors::Element;
  static constexpr int N = Kernel::kN, kHeld = Kernel::kHeld;

  Vector<T, N> accesses[kHeld + 1][Tensors::kInputs + 1];

  // Loads row number `row`, all of it at once; past the last row there is nothing.
  template <typename Group>
  __device__ void load(const Group& group, const Tensors& tensors, int64_t row) {
    const int64_t count = tensors.rows.count;
    const int n = row < count ? static_cast<int>(tensors.rows.n) : 0;
    const RowIndex index(tensors.rows, row < count ? row : 0);
    const RowStart<N, Kernel::kAligned, int> start(row, n);
#pragma unroll
    for (int access = 0; access < kHeld; ++access) {
      const int first = start.first(group.template first_access<kHeld>() + access * Group::kStep);
#pragma unroll
      for (int i = 0; i < Tensors::kInputs; ++i) {
        if (Tensors::kLate >> i & 1) continue;
        const Operand<T>& input = tensors.inputs[i];
        accesses[access][i] = read_row<N, Kernel::kAligned>(input, input.row(index), first, n, (count - row) * n);
      }
    }
  }
};

// The sums over the rows of each result of which Kernel::kSummed has a bit.
template <typename Kernel, typename Tensors>
struct RowSums {
  using Sum = accumulate_t<typename Tensors::Element>;
  static constexpr int kHeld = Kernel::kSummed ? Kernel::kHeld : 1;

  ColumnSums<Sum, Kernel::kN, kHeld> results[Tensors::kResults + 1];

  // Writes the block's row of partial sums.
  template <typename Group>
  __device__ void write(const Group& group, const Tensors& tensors) {
    constexpr int kShared = Group::kSharesBlock ? kLaneGroupThreads * kHeld * Kernel::kN : 1;
    __shared__ Sum shared[kShared];
#pragma unroll
    for (int i = 0; i < Tensors::kResults; ++i) {
      const auto& gradient = tensors.results[i];
      if (!(Kernel::kSummed >> i & 1) || !gradient.partial) continue;
      results[i].write(group, shared, gradient.partial + blockIdx.x * gradient.partial_stride, tensors.rows.n);
    }
  }
};

template <typename Kernel, typename Tensors>
class FormulaRow {
 public:
  using T = typename Tensors::Element;
  using Number = accumulate_t<T>;
  using Group = typename Kernel::Group;
  using Held = HeldRow<Kernel, Tensors>;
  using Sums = RowSums<Kernel, Tensors>;

  // Past the last row it has no elements.
  __device__ FormulaRow(Group& group, const Tensors& tensors, int64_t row, Held& held, Sums& sums)
      : group_(group),
        tensors_(tensors),
        held_(held),
        sums_(sums),
        row_(row),
        valid_(row < tensors.rows.count),
        index_(tensors.rows, valid_ ? row : 0),
        start_(row, valid_ ? tensors.rows.n : 0) {}

  __device__ Number size() const { return static_cast<Number>(tensors_.rows.n); }

  __device__ Number number(int i) const { return valid_ ? widen(tensors_.numbers[i][row_]) : Number(0); }

  template <typename F>
  __device__ Number sum(F term) {
    Number total = 0;
    each<false>([&](int, int, auto... values) { total += term(values...); });
    return group_.sum(total);
  }

  // Two sums by one pass: term(inputs..., first term, second term).
  template <typename F>
  __device__ void sums(Number& first, Number& second, F term) {
    Vector<Number, 2> totals{};
    each<false>([&](int, int, auto... values) {
      Number first_term, second_term;
      term(values..., first_term, second_term);
      totals[0] += first_term;
      totals[1] += second_term;
    });
    totals = group_.sum(totals);
    first = totals[0];
    second = totals[1];
  }

  template <typename F>
  __device__ Number max(F term) {
    Number largest = -math::kInfinity<Number>;
    each<false>([&](int, int, auto... values) { largest = math::maximum(largest, term(values...)); });
    return group_.max(largest);
  }

  template <typename F>
  __device__ Number min(F term) {
    return -max([&](auto... values) { return -term(values...); });
  }

  // f(inputs..., results...) for each element.
  template <typename F>
  __device__ void write(F f) {
    write(f, std::make_index_sequence<Tensors::kResults>());
  }

  __device__ void put(int i, Number value) {
    if (valid_ && group_.rank() == 0 && tensors_.row_results[i]) {
      tensors_.row_results[i][row_] = static_cast<T>(value);
    }
  }

 private:
  static constexpr int N = Kernel::kN, kHeld = Kernel::kHeld;
  static constexpr bool kAligned = Kernel::kAligned;
  using Access = Vector<T, N>[Tensors::kInputs + 1];
  using Index = std::conditional_t<(kHeld > 0), int, int64_t>;

  __device__ Index elements() const { return valid_ ? static_cast<Index>(tensors_.rows.n) : 0; }

  __device__ Vector<T, N> read(int i, Index first) const {
    const Operand<T>& input = tensors_.inputs[i];
    const int64_t end = (tensors_.rows.count - row_) * tensors_.rows.n;
    return read_row<N, kAligned>(input, input.row(index_), first, elements(), end);
  }

  // Calls f(access, k, inputs...) for each element: number k of an access. Calls finish(first) after each access, which
  // begins with element number `first` of the row. kLast: the pass that reads the late inputs.
  template <bool kLast, typename F, typename G>
  __device__ void each(F f, G finish) {
    const auto visit = [&](int access, Index first, const Access& vectors) {
#pragma unroll
      for (int k = 0; k < N; ++k) {
        const bool is_inside = kAligned || (first + k >= 0 && first + k < elements());
        if (is_inside) call(f, access, k, vectors, std::make_index_sequence<Tensors::kInputs>());
      }
      finish(first);
    };
    if constexpr (kHeld > 0) {
#pragma unroll
      for (int access = 0; access < kHeld; ++access) {
        const Index index = group_.template first_access<kHeld>() + access * Group::kStep;
#pragma unroll
        for (int i = 0; i < Tensors::kInputs; ++i) {
          // Elements of 16 bits are widened again in each pass: kept as float32, they would take twice the registers.
          if (!(Tensors::kLate >> i & 1)) forget_conversions(held_.accesses[access][i]);
          if (kLast && (Tensors::kLate >> i & 1)) held_.accesses[access][i] = read(i, start_.first(index));
        }
        if (index < start_.accesses) visit(access, start_.first(index), held_.accesses[access]);
      }
    } else {
      for (Index index = group_.rank(); index < start_.accesses; index += group_.size()) {
        Access vectors;
#pragma unroll
        for (int i = 0; i < Tensors::kInputs; ++i) {
          if (kLast || !(Tensors::kLate >> i & 1)) vectors[i] = read(i, start_.first(index));
        }
        visit(0, start_.first(index), vectors);
      }
    }
  }

  template <bool kLast, typename F>
  __device__ void each(F f) {
    each<kLast>(f, [](Index) {});
  }

  template <typename F, size_t... kPlaces>
  __device__ static void call(F& f, int access, int k, const Access& vectors, std::index_sequence<kPlaces...>) {
    f(access, k, widen(vectors[kPlaces][k])...);
  }

  template <typename F, size_t... kPlaces>
  __device__ void write(F f, std::index_sequence<kPlaces...>) {
    Vector<T, N> results[Tensors::kResults + 1];
    const auto compute = [&](int access, int k, auto... values) {
      Number numbers[Tensors::kResults + 1];
      f(values..., numbers[kPlaces]...);
#pragma unroll
      for (int i = 0; i < Tensors::kResults; ++i) {
        results[i][k] = static_cast<T>(numbers[i]);
        if constexpr (Kernel::kSummed != 0) {
          if (Kernel::kSummed >> i & 1) sums_.results[i].sums[access][k] += numbers[i];
        }
      }
    };
    each<true>(compute, [&](Index first) {
      const Index n = elements();
#pragma unroll
      for (int i = 0; i < Tensors::kResults; ++i) {
        T* const values = tensors_.results[i].values;
        if (!values) continue;
        T* const row = values + row_ * n;
        if (kAligned || (first >= 0 && first + N <= n)) {
          store_evict_last(row + first, 0, results[i]);
        } else {
#pragma unroll
          for (int k = 0; k < N; ++k) {
            if (first + k >= 0 && first + k < n) row[first + k] = results[i][k];
          }
        }
      }
    });
  }

  Group& group_;
  const Tensors& tensors_;
  Held& held_;
  Sums& sums_;
  const int64_t row_;
  const bool valid_;
  const RowIndex index_;
  const RowStart<N, kAligned, Index> start_;
};

// Calls formula(row) for the rows of a group. kSummed: the results of which sums over the rows are written as well; the
// next row is then loaded while the formula of one is computed, because the blocks stay and are few.
template <typename Kernel, typename Tensors, typename Formula>
__device__ void for_each_row(const Tensors& tensors, const Formula& formula) {
  using Group = typename Kernel::Group;
  using Row = FormulaRow<Kernel, Tensors>;
  Group group;
  typename Row::Held held;
  typename Row::Sums sums;
  const int64_t count = tensors.rows.count;
  if constexpr (Kernel::kSummed == 0) {
    for (int64_t i = group.first(); group.in_turn(i, count); i += group.count()) {
      held.load(group, tensors, i);
      Row row(group, tensors, i, held, sums);
      formula(row);
    }
  } else {
    held.load(group, tensors, group.first());
    for (int64_t i = group.first(); group.in_turn(i, count); i += group.count()) {
      typename Row::Held next;
      next.load(group, tensors, i + group.count());
      Row row(group, tensors, i, held, sums);
      formula(row);
      held = next;
    }
    sums.write(group, tensors);
  }
}

// ---- Which group takes a row ------------------------------------------------------------------------------------

// What a kernel over rows is compiled for: the group that takes a row, the N elements of an access, the accesses that a
// thread holds (0: every pass reads the row again), whether rows start at multiples of 16 bytes, and the results of
// which sums over the rows are written, a bit each.
template <typename Group_, int kN_, int kHeld_, bool kAligned_, int kSummed_>
struct RowKernel {
  using Group = Group_;
  static constexpr int kN = kN_;
  static constexpr int kHeld = kHeld_;
  static constexpr bool kAligned = kAligned_;
  static constexpr int kSummed = kSummed_;

  int threads;  // of a block
  int64_t groups_per_block;
};

// Whether the rows can be read by vectors.
template <typename Tensors>
bool reads_vectors(const Tensors& tensors) {
  constexpr int N = kOperandVector<typename Tensors::Element>;
  const Rows& rows = tensors.rows;
  bool vectors = rows.n % N == 0;
  for (int i = 0; i < Tensors::kInputs; ++i) {
    vectors = vectors && tensors.inputs[i].vectors && tensors.inputs[i].step == 1;
  }
  return vectors;
}

// Calls visit(kernel) with the RowKernel for rows of this length, in blocks of up to kThreads threads that hold kHeld
// accesses each. kSummed: only for aligned rows that a block can hold; `otherwise` is returned for others.
template <int kSummed, int kThreads, int kHeld, typename Tensors, typename Result, typename Visit>
Result visit_rows(const Tensors& tensors, Result otherwise, const Visit& visit) {
  constexpr int N = kOperandVector<typename Tensors::Element>;
  const bool aligned = reads_vectors(tensors);
  const int64_t accesses = tensors.rows.n / N + (aligned ? 0 : 2);
  // Elements that are looked at one by one take registers of their own.
  constexpr int kUnaligned = std::max(1, kHeld / 2);
  const int held = aligned ? kHeld : kUnaligned;
  const bool is_held = accesses <= int64_t(kThreads) * held;
  const int threads = is_held ? threads_for(std::max<int64_t>(accesses, 1), held) : kThreads;
  if (aligned && accesses <= kWarp * kHeld) {
    return visit(RowKernel<LaneGroup<kWarp>, N, kHeld, true, kSummed>{kLaneGroupThreads, kLaneGroupThreads / kWarp});
  }
  if (aligned && is_held) return visit(RowKernel<BlockGroup, N, kHeld, true, kSummed>{threads, 1});
  if constexpr (kSummed == 0) {
    if (is_held) return visit(RowKernel<BlockGroup, N, kUnaligned, false, 0>{threads, 1});
    return visit(RowKernel<BlockGroup, N, 0, false, 0>{threads, 1});
  }
  return otherwise;
}

// The launch bounds of a kernel for rows.
template <typename Kernel, int kMostThreads, int kResidentThreads>
struct RowBounds {
  static constexpr int kThreads = Kernel::Group::kOfOneWarp ? kLaneGroupThreads : kMostThreads;
  static constexpr int kBlocks = kResidentThreads / kThreads;
};

// Calls launch(kernel, blocks) with a group for each row.
template <int kThreads, int kHeld, typename Tensors, typename Launch>
cudaError_t launch_rows(const Tensors& tensors, const Launch& launch) {
  return visit_rows<0, kThreads, kHeld>(tensors, cudaErrorInvalidValue, [&](const auto& kernel) {
    constexpr int64_t kMost = 1 << 30;
    const int64_t blocks = (tensors.rows.count + kernel.groups_per_block - 1) / kernel.groups_per_block;
    launch(kernel, static_cast<unsigned>(std::min(kMost, blocks)));
    return cudaGetLastError();
  });
}

// ---- Gradients that are sums over the rows ----------------------------------------------------------------------

template <typename Tensors>
bool has_sums(const Tensors& tensors) {
  return std::any_of(tensors.results, tensors.results + Tensors::kResults, [](const auto& result) {
    return result.partial != nullptr;
  });
}

// The rows of partial sums of such gradients, one a block: as many blocks as the multiprocessors hold at once, so that
// each adds up several rows. 0 for rows that a block cannot hold.
template <int kSummed, int kThreads, int kHeld, int kResidentThreads, typename Tensors>
int64_t rows_of_partial_sums(const Tensors& tensors) {
  return visit_rows<kSummed, kThreads, kHeld>(tensors, int64_t(0), [&](const auto& kernel) {
    const int64_t per_multiprocessor = std::max(1, kResidentThreads / kernel.threads);
    const int64_t useful = tensors.rows.count / (kRowsPerGroup * kernel.groups_per_block);
    return std::clamp<int64_t>(useful, 1, per_multiprocessor * attribute(cudaDevAttrMultiProcessorCount));
  });
}

// Calls launch(kernel, blocks), then adds up the partial sums.
template <int kSummed, int kThreads, int kHeld, int kResidentThreads, typename Tensors, typename Launch>
cudaError_t launch_sums(const Tensors& tensors, cudaStream_t stream, const Launch& launch) {
  const int64_t blocks = rows_of_partial_sums<kSummed, kThreads, kHeld, kResidentThreads>(tensors);
  cudaError_t error = visit_rows<kSummed, kThreads, kHeld>(tensors, cudaErrorInvalidValue, [&](const auto& kernel) {
    launch(kernel, static_cast<unsigned>(blocks));
    return cudaGetLastError();
  });
  for (const auto& gradient : tensors.results) {
    if (error == cudaSuccess) error = add_partial_sums(gradient, blocks, tensors.rows.n, stream);
  }
  return error;
}
