// The gradient of a normalisation of rows: a persistent kernel's loop, which reads each row once for the gradients of
// the input and of the parameters. The mathematics is the op's, of a single element:
//
//     struct Mathematics {
//       static constexpr int kSums = 1;        // over a row, that the input's gradient depends on
//       static constexpr int kParameters = 1;  // with gradients that are sums over the rows
//       struct Row;                            // what the forward kept of a row
//       struct Slope;                          // of a row, once its sums are known
//       Row load(int64_t row) const;
//       GradientTerms<Sum, kSums, kParameters> terms(Sum x, Sum dy, Sum weight, const Row&) const;
//       Slope slope(const Vector<Sum, kSums>&, const Row&) const;
//       Sum gradient(Sum term, Sum x, const Slope&) const;  // `term` is terms().input
//     };

#pragma once

#include <cuda_pipeline.h>

#include "accumulate.cuh"
#include "dependent_launch.cuh"
#include "peeled_row.cuh"
#include "row_group.cuh"
#include "row_matrix.h"
#include "vector.cuh"
#include "widen.cuh"

// What an element contributes: to the input's gradient, to the sums over its row, and to the parameters' gradients.
template <typename Sum, int kSums, int kParameters>
struct GradientTerms {
  Sum input;
  Sum sums[kSums];
  Sum parameters[kParameters];
};

// What the kernel reads and writes. Null: no further gradient to add, a weight of ones, a result that is not needed.
template <typename T>
struct GradientTensors {
  using Sum = accumulate_t<T>;
  RowMatrix<const T> input;
  RowMatrix<const T> grad;
  RowMatrix<const T> grad_sum;
  RowMatrix<const T> weight;  // One row for all.
  RowMatrix<T> grad_input;
  T* parameters[2];  // The gradients of the parameters, where one group computes them,
  Sum* partial;      // or a row of partial sums for each block, or each cluster: all of the first parameter, then all of
                     // the second.
  int64_t rows, n;
  bool aligned;  // Every row of every tensor starts at a multiple of 16 bytes and is whole vectors.
  bool cluster_of_rows;  // The blocks of a cluster take rows of their own, and add up their sums; else they share rows.
};

// Rows of several tensors on their way to shared memory, in stages (cp.async, from compute capability 8.0 on): memory is
// busy while the kernel computes, and no register waits for data in flight. A thread has kAccesses accesses of each row;
// the lanes of a warp that share a row have one more vector beside theirs, since they may read shifted ones.
// `kWholeWarps`: these are all 32.
template <typename Access, int kAccesses, int kStages, bool kWholeWarps>
class RowStages {
 public:
  // The dynamic shared memory of a block, in bytes, where `lanes` threads of a warp share a row.
  static constexpr size_t bytes(int threads, int lanes, int tensors) {
    return sizeof(Access) * kStages * tensors * (kAccesses * lanes + 1) * (threads / lanes);
  }

  // Fills the stages with zeros: what is never fetched, past the last vector, reads as zeros.
  __device__ RowStages(void* shared, int tensors, int lanes)
      : lanes_(lanes), stage_(tensors * tensor()) {
    const int thread = threadIdx.y * blockDim.x + threadIdx.x, lane = thread % lanes;
    first_ = static_cast<Access*>(shared) + thread / lanes * kStages * stage_ + lane;
    for (int i = 0; i < kStages * stage_ - lane; i += lanes) {
      first_[i] = Access();
    }
    __syncwarp();
  }

  // Starts the copy of an access of a tensor's row into the stage to write; number kAccesses is that of the first lane.
  __device__ void fetch(int tensor, int access, const Access* from) {
    __pipeline_memcpy_async(first_ + (write_ + tensor * this->tensor() + access * lanes()), from, sizeof(Access));
  }

  // Ends the stage to write, also where nothing was fetched for it.
  __device__ void commit() {
    __pipeline_commit();
    write_ = after(write_);
  }

  // Waits for what this thread fetched for the stage to read, once kStages stages are committed.
  __device__ void wait() const { __pipeline_wait_prior(kStages - 1); }
  __device__ void drain() const { __pipeline_wait_prior(0); }

  // An access in the stage to read, or what lies `by` elements behind its first.
  __device__ Access access(int tensor, int access, int by = 0) const {
    const Access* const from = first_ + (read_ + tensor * this->tensor() + access * lanes());
    return by ? shifted(from[0], from[1], by) : from[0];
  }

  // Leaves the stage to read to later copies.
  __device__ void release() { read_ = after(read_); }

 private:
  __device__ int lanes() const { return kWholeWarps ? kWarp : lanes_; }
  __device__ int tensor() const { return kAccesses * lanes() + 1; }
  __device__ int after(int stage) const { return stage == (kStages - 1) * stage_ ? 0 : stage + stage_; }

  // The lanes' part of the shared memory is laid out by stage, tensor, access and lane; `first_` is the lane's.
  int lanes_, stage_;
  int read_ = 0, write_ = 0;
  Access* first_;
};

// The loop over the rows. All rows of a group have the same offsets in all tensors, or it has a single row: the launch
// sees to that. A thread so works on the same columns in every row, and keeps their weights and sums in registers.
template <typename Config, typename T, typename Mathematics>
class GradientOfRows {
 public:
  using Sum = accumulate_t<T>;
  static constexpr int N = Config::kN, kAccesses = Config::kAccesses, kStages = Config::kStages;
  static constexpr int kSums = Mathematics::kSums, kParameters = Mathematics::kParameters;

  __device__ GradientOfRows(const GradientTensors<T>& tensors, const Mathematics& mathematics, void* shared)
      : tensors_(tensors),
        mathematics_(mathematics),
        shared_(shared),
        group_(!tensors.cluster_of_rows),
        stages_(shared, tensors.grad_sum.data ? 3 : 2, lanes()) {
    const int rank = group_.rank(), lanes = this->lanes();
    first_access_ = rank / lanes * lanes * kAccesses + rank % lanes;
    const int offset = Config::kPeeled ? offset_of(group_.first()) : 0;
    const auto shift_of = [&](const RowMatrix<const T>& matrix) {
      if (!Config::kPeeled || !matrix.data) return 0;
      return (matrix.template offset<N>(group_.first()) - offset) & (N - 1);
    };
    shifts_ = shift_of(tensors.input) | shift_of(tensors.grad) << 4 | shift_of(tensors.grad_sum) << 8;
    const PeeledRow<N> peeled(tensors.n, offset, shifts_ | shift_of(tensors.weight));
    begin_ = peeled.begin;
    vectors_ = peeled.vectors;
    edge_ = Config::kPeeled && rank < peeled.edges() ? peeled.edge(rank) : -1;
  }

  __device__ void run() {
    const int64_t rows = tensors_.rows, count = group_.count();
    // The next kernel adds up the partial sums. All blocks of this one are resident, so it delays none of them.
    let_next_kernel_start();
    for (int stage = 0; stage < kStages - 1; ++stage) {
      fetch(group_.first() + stage * count);
    }
    load_weights();
    auto next = load_row(group_.first());  // A row ahead.
    for (int64_t row = group_.first(); row - group_.groups_before_in_warp() < rows; row += count) {
      if (Config::kPeeled) __syncwarp();  // Other lanes have read what the next copies replace.
      fetch(row + (kStages - 1) * count);
      const auto current = next;
      next = load_row(row + count);
      work_on(row, current);
      stages_.release();
    }
    if (!tensors_.partial && !tensors_.parameters[0] && !tensors_.parameters[1]) return;
    stages_.drain();
#pragma unroll
    for (int parameter = 0; parameter < kParameters; ++parameter) {
      write_sums(parameter);
    }
  }

 private:
  enum Tensor { kInput, kGrad, kGradSum };

  using Row = typename Mathematics::Row;


  // By how many elements a row lies past aligned vectors where the accesses are to be aligned.
  __device__ int offset_of(int64_t row) const {
    return tensors_.grad_input.data ? tensors_.grad_input.template offset<N>(row)
                                    : tensors_.input.template offset<N>(row);
  }

  __device__ bool has_edge() const { return Config::kPeeled && edge_ >= 0; }
  __device__ int shift(Tensor tensor) const { return Config::kPeeled ? shifts_ >> 4 * tensor & 15 : 0; }
  __device__ int index(int access) const { return first_access_ + access * lanes(); }
  __device__ int lanes() const { return Config::kWholeWarps ? kWarp : group_.lanes(); }

  __device__ void fetch_from(Tensor tensor, const RowMatrix<const T>& matrix, int64_t row) {
    const int by = shift(tensor), count = vectors_ == 0 ? 0 : vectors_ + (by != 0);
    const auto* const from = reinterpret_cast<const Vector<T, N>*>(matrix.row(row) + begin_ - by);
#pragma unroll
    for (int access = 0; access < kAccesses; ++access) {
      if (index(access) < count) stages_.fetch(tensor, access, from + index(access));
    }
    if (by && group_.rank() % lanes() == 0 && index(kAccesses) < count) {
      stages_.fetch(tensor, kAccesses, from + index(kAccesses));
    }
  }

  __device__ void fetch(int64_t row) {
    if (row < tensors_.rows) {
      fetch_from(kInput, tensors_.input, row);
      fetch_from(kGrad, tensors_.grad, row);
      if (tensors_.grad_sum.data) fetch_from(kGradSum, tensors_.grad_sum, row);
    }
    stages_.commit();
  }

  __device__ Row load_row(int64_t row) const { return row < tensors_.rows ? mathematics_.load(row) : Row{}; }

  __device__ void load_weights() {
#pragma unroll
    for (int access = 0; access < kAccesses; ++access) {
      weights_[access] = Vector<T, N>();
      if (index(access) >= vectors_) continue;
      if constexpr (Config::kPeeled) {
        weights_[access] = RowPlace<N>{0, begin_ + int64_t(index(access)) * N}.load_or(tensors_.weight, 1);
      } else {
        weights_[access] = load_or<N>(tensors_.weight.data, index(access), 1);
      }
    }
    edge_weight_ = has_edge() ? widen(RowPlace<1>{0, edge_}.load_or(tensors_.weight, 1)[0]) : Sum(0);
  }

  // An access of the stage to read; zeros past the last vector.
  __device__ Vector<Sum, N> read(Tensor tensor, int access) const {
    auto values = stages_.access(tensor, access, shift(tensor));
    if (shift(tensor) && index(access) >= vectors_) values = Vector<T, N>();
    return widen(values);
  }

  __device__ void work_on(int64_t row, const Row& numbers) {
    // The terms of the input's gradient are kept in registers if there is room beside the sums, else computed again.
    constexpr bool kKeepsTerms = kParameters * kAccesses * N * sizeof(Sum) <= (Config::kPeeled ? 64 : 128);
    const bool valid = row < tensors_.rows, has_edge = valid && this->has_edge();
    const T edge_x = has_edge ? tensors_.input.row(row)[edge_] : T(0.0f);
    const T edge_dy = has_edge ? tensors_.grad.row(row)[edge_] : T(0.0f);
    stages_.wait();
    if (Config::kPeeled) __syncwarp();  // The copies of other lanes have arrived.
    Vector<Sum, kSums> sums{};
    Vector<Sum, N> kept_terms[kKeepsTerms ? kAccesses : 1];
#pragma unroll
    for (int access = 0; valid && access < kAccesses; ++access) {
      if constexpr (kAccesses > 2) forget_conversions(weights_[access]);
      const auto x = read(kInput, access), dy = read(kGrad, access), weight = widen(weights_[access]);
#pragma unroll
      for (int k = 0; k < N; ++k) {
        const auto terms = mathematics_.terms(x[k], dy[k], weight[k], numbers);
        if constexpr (kKeepsTerms) kept_terms[access][k] = terms.input;
        add(terms, sums, [&](int parameter) -> Sum& { return sums_[parameter][access][k]; });
      }
    }
    if (has_edge) {
      const auto terms = mathematics_.terms(widen(edge_x), widen(edge_dy), edge_weight_, numbers);
      add(terms, sums, [&](int parameter) -> Sum& { return edge_sums_[parameter]; });
    }
    const auto slope = mathematics_.slope(group_.sum(sums), numbers);
    if (!valid || !tensors_.grad_input.data) return;
    T* const out = tensors_.grad_input.row(row);
#pragma unroll
    for (int access = 0; access < kAccesses; ++access) {
      if (index(access) >= vectors_) continue;
      const auto x = read(kInput, access);
      Vector<Sum, N> result;
      if constexpr (kKeepsTerms) {
        result = kept_terms[access];
      } else {
        const auto dy = read(kGrad, access);
        forget_conversions(weights_[access]);
        const auto weight = widen(weights_[access]);
#pragma unroll
        for (int k = 0; k < N; ++k) {
          result[k] = mathematics_.terms(x[k], dy[k], weight[k], numbers).input;
        }
      }
#pragma unroll
      for (int k = 0; k < N; ++k) {
        result[k] = mathematics_.gradient(result[k], x[k], slope);
      }
      if (tensors_.grad_sum.data) result += read(kGradSum, access);
      store(out + begin_, index(access), narrow<T>(result));
    }
    if (has_edge) {
      const Sum term = mathematics_.terms(widen(edge_x), widen(edge_dy), edge_weight_, numbers).input;
      Sum result = mathematics_.gradient(term, widen(edge_x), slope);
      if (tensors_.grad_sum.data) result += widen(tensors_.grad_sum.row(row)[edge_]);
      out[edge_] = static_cast<T>(result);
    }
  }

  template <typename Terms, typename SumOf>
  __device__ static void add(const Terms& terms, Vector<Sum, kSums>& sums, const SumOf& sum_of) {
#pragma unroll
    for (int i = 0; i < kSums; ++i) {
      sums[i] += terms.sums[i];
    }
#pragma unroll
    for (int i = 0; i < kParameters; ++i) {
      sum_of(i) += terms.parameters[i];
    }
  }

  __device__ void write_sum(int parameter, int64_t column, Sum sum) const {
    if (tensors_.partial) {
      const int64_t row = blockIdx.x / cluster::size();
      tensors_.partial[(row * kParameters + parameter) * tensors_.n + column] = sum;
    } else if (tensors_.parameters[parameter]) {
      tensors_.parameters[parameter][column] = static_cast<T>(sum);
    }
  }

  // Writes a parameter's sums over the rows of this block, or of this cluster. In shared memory they are laid out by
  // columns, of which neighbouring threads then write neighbouring ones.
  __device__ void write_sums(int parameter) {
    Sum* const parts = static_cast<Sum*>(shared_);
    const int64_t n = tensors_.n, part = int64_t(blockDim.x) * kAccesses * N;
    // A group that is alone in its block, or has several, has the columns of its vectors here; its edges need no sum.
    const bool alone = blockDim.y == 1 && !tensors_.cluster_of_rows;
    const int64_t first = alone ? begin_ + group_.block() * part : 0;
    const int64_t end = alone ? min(begin_ + int64_t(vectors_) * N, first + part) : n;
    // Where column `first` is in the sums of a group: vectors stay aligned.
    const auto sums_of = [&](int block, int group) {
      if (alone) return parts;
      const int64_t row = (blockIdx.x - own_block() + block) * int64_t(blockDim.y) + group;
      Sum* const of_block = tensors_.cluster_of_rows ? cluster::shared_of(block, parts) : parts;
      return of_block + group * ((n + 2 * N - 1) / N * N) + (Config::kPeeled ? offset_of(row) : 0);
    };
    Sum* const mine = sums_of(own_block(), threadIdx.y);
    synchronise();  // Other threads may still read `shared`.
#pragma unroll
    for (int access = 0; access < kAccesses; ++access) {
      if (index(access) < vectors_) {
        store(mine + begin_ - first + int64_t(index(access)) * N, 0, sums_[parameter][access]);
      }
    }
    if (has_edge() && alone) write_sum(parameter, edge_, edge_sums_[parameter]);
    if (has_edge() && !alone) mine[edge_] = edge_sums_[parameter];
    synchronise();
    const int blocks = tensors_.cluster_of_rows ? cluster::size() : 1, threads = blockDim.x * blockDim.y;
    const int thread = (own_block() * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
    for (int64_t column = first + thread; column < end; column += blocks * threads) {
      Sum sum = 0;
      for (int block = 0; block < blocks; ++block) {
        for (int group = 0; group < blockDim.y; ++group) {
          sum += sums_of(block, group)[column - first];
        }
      }
      write_sum(parameter, column, sum);
    }
    if (tensors_.cluster_of_rows) synchronise();  // A block ends when no other reads its sums.
  }

  // The block's number among those whose sums are added up.
  __device__ int own_block() const { return tensors_.cluster_of_rows ? cluster::rank() : 0; }

  __device__ void synchronise() const {
    if (!tensors_.cluster_of_rows) return __syncthreads();
    cluster::arrive();
    cluster::wait();
  }

  const GradientTensors<T>& tensors_;
  const Mathematics& mathematics_;
  void* shared_;
  RowGroup<true> group_;
  RowStages<Vector<T, N>, kAccesses, kStages, Config::kWholeWarps> stages_;
  int shifts_;  // Four bits for each tensor.
  int first_access_, begin_, vectors_;
  int edge_;  // -1 for none.
  Vector<T, N> weights_[kAccesses];
  Sum edge_weight_;
  Vector<Sum, N> sums_[kParameters][kAccesses] = {};
  Sum edge_sums_[kParameters] = {};
};

// The input's gradient of rows that are too long for registers: a block reads each twice.
template <int N, typename T, typename Mathematics>
__device__ void gradient_of_long_rows(const GradientTensors<T>& tensors, const Mathematics& mathematics) {
  using Sum = accumulate_t<T>;
  RowGroup<false> group;
  for (int64_t row = group.first(); row < tensors.rows; row += group.count()) {
    const int offset = tensors.grad_input.template offset<N>(row);
    bool shifted = false;
    for (const auto* matrix : {&tensors.input, &tensors.grad, &tensors.grad_sum, &tensors.weight}) {
      shifted |= matrix->data && matrix->template offset<N>(row) != offset;
    }
    const PeeledRow<N> peeled(tensors.n, offset, shifted);
    const auto kept = mathematics.load(row);
    const auto each = [&](const auto& f) {
      each_place(peeled, row, group.rank(), blockDim.x, [&](const auto& place) {
        const auto x = widen(place.load(tensors.input)), dy = widen(place.load(tensors.grad));
        f(place, x, dy, widen(place.load_or(tensors.weight, 1)));
      });
    };
    Vector<Sum, Mathematics::kSums> sums{};
    each([&](const auto& place, const auto& x, const auto& dy, const auto& weight) {
#pragma unroll
      for (int k = 0; k < place.kLength; ++k) {
        const auto terms = mathematics.terms(x[k], dy[k], weight[k], kept);
        for (int i = 0; i < Mathematics::kSums; ++i) sums[i] += terms.sums[i];
      }
    });
    const auto slope = mathematics.slope(group.sum(sums), kept);
    each([&](const auto& place, const auto& x, const auto& dy, const auto& weight) {
      auto result = widen(place.load_or(tensors.grad_sum, 0));
#pragma unroll
      for (int k = 0; k < place.kLength; ++k) {
        const Sum term = mathematics.terms(x[k], dy[k], weight[k], kept).input;
        result[k] += mathematics.gradient(term, x[k], slope);
      }
      place.store(tensors.grad_input, narrow<T>(result));
    });
  }
}

// A term of the parameters' gradients, by row and column: the first parameter's columns, then the second's.
template <typename T, typename Mathematics>
struct ParameterTerm {
  RowMatrix<const T> input, grad;
  Mathematics mathematics;
  int64_t n;

  __device__ accumulate_t<T> operator()(int64_t row, int64_t column) const {
    const int64_t parameter = column / n, i = column - parameter * n;
    const auto terms =
        mathematics.terms(widen(input.row(row)[i]), widen(grad.row(row)[i]), 1, mathematics.load(row));
    return Mathematics::kParameters > 1 && parameter ? terms.parameters[Mathematics::kParameters - 1]
                                                     : terms.parameters[0];
  }
};
