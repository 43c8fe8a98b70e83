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

// A thread's part of a row of every input, in registers: kHeld accesses of N elements.
template <typename Group, int N, int kHeld, typename Tensors>
struct HeldRow {
  using T = typename Tensors::Element;

  Vector<T, N> accesses[kHeld + 1][Tensors::kInputs + 1];

  // Loads row number `row`, all of it at once; past the last row there is nothing.
  __device__ void load(const Group& group, const Tensors& tensors, int64_t row) {
    const bool valid = row < tensors.rows.count;
    const RowIndex index(tensors.rows, valid ? row : 0);
    const int left = (valid ? static_cast<int>(tensors.rows.n / N) : 0) - group.template first_access<kHeld>();
#pragma unroll
    for (int i = 0; i < Tensors::kInputs; ++i) {
      const Operand<T>& input = tensors.inputs[i];
      const T* const first = input.row(index) + group.template first_access<kHeld>() * N * input.step;
#pragma unroll
      for (int access = 0; access < kHeld; ++access) {
        const int offset = access * Group::kStep;
        if constexpr (N > 1) {
          accesses[access][i] = load_evict_last<N>(first, offset, offset < left);
        } else {
          accesses[access][i][0] = offset < left ? first[offset * input.step] : T();
        }
      }
    }
  }
};

// The sums over the rows of each result of which kSummed has a bit.
template <int N, int kHeld, int kSummed, typename Tensors>
struct RowSums {
  using Sum = accumulate_t<typename Tensors::Element>;

  ColumnSums<Sum, N, (kSummed ? kHeld : 1)> results[Tensors::kResults + 1];

  // Writes the block's row of partial sums.
  template <typename Group>
  __device__ void write(const Group& group, const Tensors& tensors) {
    constexpr int kShared = Group::kSharesBlock ? kLaneGroupThreads * kHeld * N : 1;
    __shared__ Sum shared[kShared];
#pragma unroll
    for (int i = 0; i < Tensors::kResults; ++i) {
      const auto& gradient = tensors.results[i];
      if (!(kSummed >> i & 1) || !gradient.partial) continue;
      results[i].write(group, shared, gradient.partial + blockIdx.x * gradient.partial_stride, tensors.rows.n);
    }
  }
};

// kHeld: the accesses of a row that a thread holds, which are all; 0: every pass reads the row again.
template <typename Group, int N, int kHeld, int kSummed, typename Tensors>
class FormulaRow {
 public:
  using T = typename Tensors::Element;
  using Number = accumulate_t<T>;
  using Held = HeldRow<Group, N, kHeld, Tensors>;
  using Sums = RowSums<N, kHeld, kSummed, Tensors>;

  // Past the last row it has no elements.
  __device__ FormulaRow(Group& group, const Tensors& tensors, int64_t row, Held& held, Sums& sums)
      : group_(group),
        tensors_(tensors),
        held_(held),
        sums_(sums),
        row_(row),
        valid_(row < tensors.rows.count),
        accesses_(valid_ ? static_cast<Index>(tensors.rows.n / N) : 0) {
    if constexpr (kHeld == 0) {
      const RowIndex index(tensors.rows, valid_ ? row : 0);
#pragma unroll
      for (int i = 0; i < Tensors::kInputs; ++i) {
        rows_[i] = tensors.inputs[i].row(index);
      }
    }
  }

  __device__ Number size() const { return static_cast<Number>(tensors_.rows.n); }

  __device__ Number number(int i) const { return valid_ ? widen(tensors_.numbers[i][row_]) : Number(0); }

  template <typename F>
  __device__ Number sum(F term) {
    Number total = 0;
    each([&](int, int, auto... values) { total += term(values...); });
    return group_.sum(total);
  }

  template <typename F>
  __device__ Number max(F term) {
    Number largest = -math::kInfinity<Number>;
    each([&](int, int, auto... values) { largest = math::maximum(largest, term(values...)); });
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
  using Access = Vector<T, N>[Tensors::kInputs + 1];
  using Index = std::conditional_t<kHeld == 0, int64_t, int>;  // of an access: what a block holds is short

  // Calls f(access, k, inputs...) for each element: number k of an access. Calls finish(access, index) after each
  // access, which is number `index` of the row.
  template <typename F, typename G>
  __device__ void each(F f, G finish) {
    const auto visit = [&](int access, Index index, const Access& vectors) {
#pragma unroll
      for (int k = 0; k < N; ++k) {
        call(f, access, k, vectors, std::make_index_sequence<Tensors::kInputs>());
      }
      finish(access, index);
    };
    if constexpr (kHeld > 0) {
      const int first = group_.template first_access<kHeld>();
#pragma unroll
      for (int access = 0; access < kHeld; ++access) {
        // Elements of 16 bits are widened again in each pass: kept as float32, they would take twice the registers.
#pragma unroll
        for (int i = 0; i < Tensors::kInputs; ++i) {
          forget_conversions(held_.accesses[access][i]);
        }
        const int index = first + access * Group::kStep;
        if (index < accesses_) visit(access, index, held_.accesses[access]);
      }
    } else {
      // Some loads are in flight at once.
#pragma unroll(N > 1 ? 1 : 4)
      for (Index index = group_.rank(); index < accesses_; index += group_.size()) {
        Access vectors;
#pragma unroll
        for (int i = 0; i < Tensors::kInputs; ++i) {
          if constexpr (N > 1) {
            vectors[i] = ::load<N>(rows_[i], index);
          } else {
            vectors[i][0] = rows_[i][index * tensors_.inputs[i].step];
          }
        }
        visit(0, index, vectors);
      }
    }
  }

  template <typename F>
  __device__ void each(F f) {
    each(f, [](int, Index) {});
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
        if constexpr (kSummed != 0) {
          if (kSummed >> i & 1) sums_.results[i].sums[access][k] += numbers[i];
        }
      }
    };
    each(compute, [&](int, Index index) {
#pragma unroll
      for (int i = 0; i < Tensors::kResults; ++i) {
        T* const values = tensors_.results[i].values;
        if (values) store_evict_last(values + row_ * tensors_.rows.n, index, results[i]);
      }
    });
  }

  Group& group_;
  const Tensors& tensors_;
  Held& held_;
  Sums& sums_;
  const int64_t row_;
  const bool valid_;
  const Index accesses_;
  const T* rows_[kHeld > 0 ? 1 : Tensors::kInputs + 1];
};

// Calls formula(row) for the rows of a group. kSummed: the results of which sums over the rows are written as well; the
// next row is then loaded while the formula of one is computed, because the blocks stay and are few.
template <typename Kernel, typename Tensors, typename Formula>
__device__ void for_each_row(const Tensors& tensors, const Formula& formula) {
  using Group = typename Kernel::Group;
  using Row = FormulaRow<Group, Kernel::kN, Kernel::kHeld, Kernel::kSummed, Tensors>;
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

// What a kernel over rows is compiled for.
template <typename Group_, int kN_, int kHeld_, int kSummed_>
struct RowKernel {
  using Group = Group_;
  static constexpr int kN = kN_;
  static constexpr int kHeld = kHeld_;
  static constexpr int kSummed = kSummed_;

  int threads;  // of a block
  int64_t groups_per_block;
};

// Elements of a row that a thread holds, of each input: by vectors 16, in 64 bytes at most; one by one, each in a
// register of its own, 8.
template <typename T, int N>
constexpr int kHeldElements = N == 1 ? 8 : std::min<int>(16, 64 / sizeof(T));

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

// Calls visit(kernel) with the RowKernel for rows of this length, in blocks of up to kThreads threads. kSummed: only
// for rows that a block can hold; `otherwise` is returned for others.
template <int kSummed, int kThreads, typename Tensors, typename Result, typename Visit>
Result visit_rows(const Tensors& tensors, Result otherwise, const Visit& visit) {
  using T = typename Tensors::Element;
  constexpr int N = kOperandVector<T>, kByVectors = kHeldElements<T, N>, kOneByOne = kHeldElements<T, 1>;
  const int64_t n = tensors.rows.n;
  const bool vectors = reads_vectors(tensors);
  const int held = vectors ? kByVectors : kOneByOne;
  const bool is_held = n <= int64_t(kThreads) * held;
  const int threads = is_held ? threads_for(std::max<int64_t>(n, 1), held) : kThreads;
  if (vectors && n <= kWarp * kByVectors) {
    return visit(RowKernel<LaneGroup<kWarp>, N, kByVectors / N, kSummed>{kLaneGroupThreads, kLaneGroupThreads / kWarp});
  }
  if (vectors && is_held) return visit(RowKernel<BlockGroup, N, kByVectors / N, kSummed>{threads, 1});
  if (is_held) return visit(RowKernel<BlockGroup, 1, kOneByOne, kSummed>{threads, 1});
  if constexpr (kSummed == 0) {
    if (vectors) return visit(RowKernel<BlockGroup, N, 0, 0>{threads, 1});
    return visit(RowKernel<BlockGroup, 1, 0, 0>{threads, 1});
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
template <int kThreads, typename Tensors, typename Launch>
cudaError_t launch_rows(const Tensors& tensors, const Launch& launch) {
  return visit_rows<0, kThreads>(tensors, cudaErrorInvalidValue, [&](const auto& kernel) {
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
template <int kSummed, int kThreads, int kResidentThreads, typename Tensors>
int64_t rows_of_partial_sums(const Tensors& tensors) {
  return visit_rows<kSummed, kThreads>(tensors, int64_t(0), [&](const auto& kernel) {
    const int64_t per_multiprocessor = std::max(1, kResidentThreads / kernel.threads);
    const int64_t useful = tensors.rows.count / (kRowsPerGroup * kernel.groups_per_block);
    return std::clamp<int64_t>(useful, 1, per_multiprocessor * attribute(cudaDevAttrMultiProcessorCount));
  });
}

// Calls launch(kernel, blocks), then adds up the partial sums.
template <int kSummed, int kThreads, int kResidentThreads, typename Tensors, typename Launch>
cudaError_t launch_sums(const Tensors& tensors, cudaStream_t stream, const Launch& launch) {
  const int64_t blocks = rows_of_partial_sums<kSummed, kThreads, kResidentThreads>(tensors);
  cudaError_t error = visit_rows<kSummed, kThreads>(tensors, cudaErrorInvalidValue, [&](const auto& kernel) {
    launch(kernel, static_cast<unsigned>(blocks));
    return cudaGetLastError();
  });
  for (const auto& gradient : tensors.results) {
    if (error == cudaSuccess) error = add_partial_sums(gradient, blocks, tensors.rows.n, stream);
  }
  return error;
}
