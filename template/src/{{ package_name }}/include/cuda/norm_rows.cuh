// The rows of a normalisation: a group of threads holds them in registers from the load to the store. The mathematics
// is the op's; it gives functions of a single element.

#pragma once

#include <climits>

#include "accumulate.cuh"
#include "evict_last.cuh"
#include "peeled_row.cuh"
#include "row_group.cuh"
#include "vector.cuh"
#include "widen.cuh"

// How a grid takes rows of n elements. The launch decides, so that one kernel serves rows of many lengths.
struct RowLayout {
  int64_t rows;
  int64_t n;
  int accesses_log2;    // Of short rows, a thread holds 1 << accesses_log2 accesses each
  int rows_per_thread;  // of so many rows.
};

// What is known of all rows of all tensors: that they start at multiples of 16 bytes and are whole vectors, and that
// every thread has all of its accesses; only the former; or nothing.
enum class RowForm { kFull, kAligned, kPeeled };

// What a normalisation reads and writes. Null: no residual, a weight of ones, a bias of zeros.
template <typename T>
struct NormTensors {
  RowMatrix<const T> input;
  RowMatrix<const T> residual;
  RowMatrix<const T> weight;  // One row for all.
  RowMatrix<const T> bias;
  RowMatrix<T> output;
  RowMatrix<T> sum;  // of input and residual; aligned as `output` is
};

// A thread's part of its rows: kAccesses accesses of N elements, where neighbouring threads access neighbouring memory.
// Of a peeled row, 32 threads have an element of its edges besides. `kShort`: a thread may have several rows.
template <typename T, int N, int kAccesses, RowForm kForm, bool kShort, bool kBias>
class NormRows {
 public:
  using Group = RowGroup<false>;
  using Sum = accumulate_t<T>;
  static constexpr int kNumbers = kShort ? kAccesses : 1;
  // A number for each access, which is that of its row.
  struct Numbers {
    Sum values[kNumbers];
    __device__ Sum& operator[](int access) { return values[kShort ? access : 0]; }
    __device__ const Sum& operator[](int access) const { return values[kShort ? access : 0]; }
    template <typename F>
    __device__ void apply(F f) {
#pragma unroll
      for (int i = 0; i < kNumbers; ++i) values[i] = f(values[i]);
    }
  };

  // Loads the input, and adds the residual.
  __device__ NormRows(Group& group, const RowLayout& layout, const NormTensors<T>& tensors)
      : group_(group), layout_(layout), tensors_(tensors) {
    const int rank = group.rank(), lanes = group.lanes();
    const int log2 = kShort ? layout.accesses_log2 : 0, accesses = kShort ? 1 << log2 : kAccesses;
    first_access_ = rank / lanes * lanes * accesses + rank % lanes;
    first_row_ = kShort ? (group.first() - threadIdx.y) * layout.rows_per_thread + threadIdx.y : group.first();
    const int64_t left = layout.rows - first_row_;
    if constexpr (kShort) rows_left_ = left < INT_MAX ? static_cast<int>(left) : INT_MAX;
    if constexpr (kPeeled) {
      const int out = tensors.output.template offset<N>(first_row_);
      const auto shift_of = [&](const RowMatrix<const T>& matrix) {
        return matrix.data ? (matrix.template offset<N>(first_row_) - out) & (N - 1) : 0;
      };
      bool shifted = shift_of(tensors.input) | shift_of(tensors.residual) | shift_of(tensors.weight);
      if constexpr (kBias) shifted |= shift_of(tensors.bias) != 0;
      const PeeledRow<N> peeled(layout.n, out, shifted);
      begin_ = peeled.begin;
      vectors_ = left > 0 ? peeled.vectors : 0;
      has_edge_ = left > 0 && rank < peeled.edges();
      edge_index_ = peeled.edge(rank);
    }
    if constexpr (kForm == RowForm::kAligned) vectors_ = kShort || left > 0 ? static_cast<int>(layout.n) / N : 0;
#pragma unroll
    for (int begin = 0; begin < kAccesses; begin += kBatch) {
      load<kBatch>(tensors.input, begin, &held_[begin]);
    }
    if (has_edge()) edge_ = tensors.input.row(first_row_)[edge_index_];
    if (tensors.residual.data) add();
  }

  // The sum of f(element, access) over each row.
  template <typename F>
  __device__ Numbers sum(F f) {
    Numbers sums{};
#pragma unroll
    for (int access = 0; access < kAccesses; ++access) {
      if constexpr (!kFitsWidened) forget_conversions(held_[access]);
      if (has(access)) {
        const auto values = widen(held_[access]);
#pragma unroll
        for (int k = 0; k < N; ++k) {
          sums[access] += f(values[k], access);
        }
      }
    }
    if (has_edge()) sums[0] += f(widen(edge_), 0);
    return sum_by_row(sums);
  }

  // Writes a number for each row.
  __device__ void write_numbers(Sum* out, const Numbers& numbers) const {
    if (group_.rank() != 0) return;
#pragma unroll
    for (int access = 0; access < (kShort ? kAccesses : 1); ++access) {
      if (starts_row(access) && has_row(access)) out[row(access)] = numbers[access];
    }
  }

  // Writes f(element, access, weight, bias) to the output.
  template <typename F>
  __device__ void write(F f) {
    constexpr int kFew = kShort || kBias || kAccesses != 4 ? 1 : 2;  // Weights that are held besides, in accesses.
#pragma unroll
    for (int begin = 0; begin < kAccesses; begin += kFew) {
      Vector<T, N> weights[kFew], biases[kFew];
      load_or<kFew>(tensors_.weight, 1, begin, weights);
      if constexpr (kBias) load_or<kFew>(tensors_.bias, -0.0f, begin, biases);
#pragma unroll
      for (int i = 0; i < kFew; ++i) {
        if constexpr (!kFitsWidened) forget_conversions(held_[begin + i]);
        if (!has(begin + i)) continue;
        auto values = widen(held_[begin + i]);
        const auto weight = widen(weights[i]), bias = widen(biases[i]);
#pragma unroll
        for (int k = 0; k < N; ++k) {
          values[k] = f(values[k], begin + i, weight[k], kBias ? bias[k] : Sum(0));
        }
        store_evict_last(vectors_of(tensors_.output, begin + i), index(begin + i), narrow<T>(values));
      }
    }
    if (has_edge()) {
      const Sum weight = tensors_.weight.data ? widen(tensors_.weight.data[edge_index_]) : Sum(1);
      const Sum bias = kBias && tensors_.bias.data ? widen(tensors_.bias.data[edge_index_]) : Sum(-0.0);
      tensors_.output.row(first_row_)[edge_index_] = static_cast<T>(f(widen(edge_), 0, weight, bias));
    }
  }

 private:
  static constexpr bool kPeeled = kForm == RowForm::kPeeled;
  // Whether there are registers to keep the elements in the type that is computed in, so that each is converted once.
  static constexpr bool kFitsWidened = kAccesses * N * sizeof(Sum) <= (kShort ? 64 : 128);
  static constexpr int kBatch = kAccesses < 4 ? kAccesses : 4;  // Loads in flight: more would take too many registers.

  // ---- Where the thread's accesses are ----

  __device__ int row_of_thread(int access) const { return kShort ? access >> layout_.accesses_log2 : 0; }
  __device__ int access_of_row(int access) const {
    return kShort ? access & ((1 << layout_.accesses_log2) - 1) : access;
  }
  __device__ bool starts_row(int access) const { return access_of_row(access) == 0; }
  __device__ int64_t row(int access) const {
    return kShort ? first_row_ + row_of_thread(access) * blockDim.y : first_row_;
  }
  __device__ int index(int access) const {
    return first_access_ + access_of_row(access) * (kShort ? group_.lanes() : kWarp);
  }
  __device__ bool has_row(int access) const {
    if (!kShort) return first_row_ < layout_.rows;
    return row_of_thread(access) < layout_.rows_per_thread && row_of_thread(access) * int(blockDim.y) < rows_left_;
  }
  __device__ bool has(int access) const {
    if (kForm == RowForm::kFull) return true;
    return index(access) < vectors_ && (!kShort || has_row(access));
  }
  __device__ bool has_edge() const { return kPeeled && has_edge_; }

  // By how many elements a tensor's vectors lie past aligned ones.
  template <typename U>
  __device__ int shift(const RowMatrix<U>& matrix) const {
    if (!kPeeled) return 0;
    return (matrix.template offset<N>(first_row_) + begin_) & (N - 1);
  }

  // The address of a row's first vector, or of the aligned one in which that starts.
  template <typename U>
  __device__ U* vectors_of(const RowMatrix<U>& matrix, int access) const {
    U* const start = matrix.row(row(access));
    return kPeeled ? start + (begin_ - shift(matrix)) : start;
  }

  // ---- Loading ----

  // Accesses begin to begin + kCount - 1.
  template <int kCount>
  __device__ void load(const RowMatrix<const T>& matrix, int begin, Vector<T, N>* to) const {
    const int by = shift(matrix);
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      to[i] = load_evict_last<N>(vectors_of(matrix, begin + i), index(begin + i), has(begin + i));
    }
    if (kPeeled && by) {
      Vector<T, N> next[kCount];
#pragma unroll
      for (int i = 0; i < kCount; ++i) {
        next[i] = load_evict_last<N>(vectors_of(matrix, begin + i), index(begin + i) + 1, has(begin + i));
      }
#pragma unroll
      for (int i = 0; i < kCount; ++i) {
        to[i] = shifted(to[i], next[i], by);
      }
    }
  }

  template <int kCount>
  __device__ void load_or(const RowMatrix<const T>& matrix, float otherwise, int begin, Vector<T, N>* to) const {
    if (matrix.data) return load<kCount>(matrix, begin, to);
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      to[i] = ::load_or<N>(static_cast<const T*>(nullptr), 0, otherwise);
    }
  }

  // Adds the residual, rounds to T, and stores the result in `sum` as well.
  __device__ void add() {
    constexpr int kAdded = (kPeeled || kAccesses > 4) && kBatch > 2 ? 2 : kBatch;
#pragma unroll
    for (int begin = 0; begin < kAccesses; begin += kAdded) {
      Vector<T, N> others[kAdded];
      load<kAdded>(tensors_.residual, begin, others);
#pragma unroll
      for (int i = 0; i < kAdded; ++i) {
        auto& held = held_[begin + i];
        auto sum = widen(held);
        sum += widen(others[i]);
        held = narrow<T>(sum);
        if (has(begin + i)) store_evict_last(vectors_of(tensors_.sum, begin + i), index(begin + i), held);
      }
    }
    if (has_edge()) {
      edge_ = static_cast<T>(widen(edge_) + widen(tensors_.residual.row(first_row_)[edge_index_]));
      tensors_.sum.row(first_row_)[edge_index_] = edge_;
    }
  }

  // ---- Reducing ----

  __device__ Numbers sum_by_row(Numbers sums) {
    if constexpr (!kShort) {
      sums[0] = group_.sum(sums[0]);
      return sums;
    } else {
      return sum_by_short_row(sums);
    }
  }

  __device__ Numbers sum_by_short_row(Numbers sums) {
    if (layout_.rows_per_thread == 1) {
      Sum total = sums[0];
#pragma unroll
      for (int i = 1; i < kNumbers; ++i) {
        total += sums[i];
      }
      total = group_.sum(total);
      sums.apply([&](Sum) { return total; });
      return sums;
    }
#pragma unroll
    for (int step = 1; step < kAccesses; step *= 2) {
      if (step >> layout_.accesses_log2) break;
      const Numbers parts = sums;
#pragma unroll
      for (int i = 0; i < kNumbers; ++i) {
        sums[i] += parts[i ^ step];
      }
    }
    sums.apply([&](Sum sum) { return group_.sum_of_lanes(sum); });
    return sums;
  }

  Group& group_;
  const RowLayout& layout_;
  const NormTensors<T>& tensors_;
  int64_t first_row_;
  int rows_left_;  // From the thread's first row on.
  int first_access_;
  int begin_, vectors_, edge_index_;  // Of a peeled row.
  bool has_edge_;
  T edge_;
  Vector<T, N> held_[kAccesses];
};

// A row that is too long for registers, which a block reads from memory each time, mostly from the L2 cache.
template <typename T, int N>
class LongNormRow {
 public:
  using Sum = accumulate_t<T>;
  // A number for the row, which takes an access as those of NormRows do.
  struct Numbers {
    Sum value;
    __device__ Sum operator[](int) const { return value; }
    template <typename F>
    __device__ void apply(F f) {
      value = f(value);
    }
  };

  __device__ LongNormRow(RowGroup<false>& group, const RowLayout& layout, const NormTensors<T>& tensors)
      : group_(group), row_(group.first()), tensors_(tensors), values_(tensors.input) {
    const int out = tensors.output.template offset<N>(row_);
    const auto shifted = [&](const RowMatrix<const T>& matrix) {
      return matrix.data && matrix.template offset<N>(row_) != out;
    };
    const bool any =
        shifted(tensors.input) || shifted(tensors.residual) || shifted(tensors.weight) || shifted(tensors.bias);
    peeled_ = PeeledRow<N>(layout.n, out, any);
    if (!tensors.residual.data) return;
    each([&](const auto& place) {
      auto sum = widen(place.load(tensors.input));
      sum += widen(place.load(tensors.residual));
      place.store(tensors.sum, narrow<T>(sum));
    });
    values_ = {tensors.sum.data, tensors.sum.stride};
  }

  template <typename F>
  __device__ Numbers sum(F f) {
    Sum total = 0;
    each([&](const auto& place) {
      const auto values = widen(place.load(values_));
#pragma unroll
      for (int k = 0; k < place.kLength; ++k) {
        total += f(values[k], 0);
      }
    });
    return {group_.sum(total)};
  }

  __device__ void write_numbers(Sum* out, const Numbers& numbers) const {
    if (group_.rank() == 0) out[row_] = numbers.value;
  }

  template <typename F>
  __device__ void write(F f) {
    each([&](const auto& place) {
      auto values = widen(place.load(values_));
      const auto weight = widen(place.load_or(tensors_.weight, 1)),
                 bias = widen(place.load_or(tensors_.bias, -0.0f));
#pragma unroll
      for (int k = 0; k < place.kLength; ++k) {
        values[k] = f(values[k], 0, weight[k], bias[k]);
      }
      place.store(tensors_.output, narrow<T>(values));
    });
  }

 private:
  template <typename F>
  __device__ void each(const F& f) const {
    each_place(peeled_, row_, group_.rank(), blockDim.x, f);
  }

  RowGroup<false>& group_;
  int64_t row_;
  const NormTensors<T>& tensors_;
  RowMatrix<const T> values_;
  PeeledRow<N> peeled_;
};
