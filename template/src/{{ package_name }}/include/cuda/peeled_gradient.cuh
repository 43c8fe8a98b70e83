// The gradient of a normalisation of peeled rows (peeled_row.cuh): a persistent kernel's loop, which reads each row
// once for the gradients of the input and of the parameters, and the launch. gradient_tensors.cuh says what the op
// gives; split_gradient.cuh has the kernel for few rows and for long ones.

#pragma once

#include <cuda_pipeline.h>
#include <cuda_runtime_api.h>

#include <algorithm>
#include <numeric>

#include "accumulate.cuh"
#include "column_sums.cuh"
#include "dependent_launch.cuh"
#include "few_rows.h"
#include "flat_gradient.cuh"
#include "gradient_tensors.cuh"
#include "peeled_row.cuh"
#include "registers.cuh"
#include "row_grid.cuh"
#include "row_group.cuh"
#include "row_matrix.h"
#include "split_gradient.cuh"
#include "tile.cuh"
#include "vector.cuh"
#include "wide_gradient.cuh"
#include "widen.cuh"

// Rows of several tensors on their way to shared memory, in stages (cp.async, from compute capability 8.0 on): memory
// is busy while the kernel computes, and no register waits for data in flight. A thread has kAccesses accesses of each
// row; each warp has one more vector beside its threads', since they may read shifted ones.
template <typename Access, int kAccesses, int kStages>
class PeeledStages {
 public:
  // The dynamic shared memory of so many warps, in bytes.
  static constexpr size_t bytes(int warps, int tensors) {
    return sizeof(Access) * kStages * tensors * kVectors * warps;
  }

  __device__ PeeledStages(void* shared, int tensors) : stage_(tensors * kVectors) {
    const int thread = threadIdx.y * blockDim.x + threadIdx.x;
    first_ = static_cast<Access*>(shared) + thread / kWarp * kStages * stage_ + thread % kWarp;
  }

  // Makes an access read as zeros in all tensors and stages. It is never fetched.
  __device__ void clear(int access) {
    for (int i = access * kWarp; i < kStages * stage_; i += kVectors) {
      first_[i] = Access();
    }
  }

  // Starts the copy of an access of a tensor's row into the stage to write; number kAccesses is that of the first lane.
  __device__ void fetch(int tensor, int access, const Access* from) {
    __pipeline_memcpy_async(first_ + (write_ + tensor * kVectors + access * kWarp), from, sizeof(Access));
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
  __device__ Access access(int tensor, int access, int by) const {
    const Access* const from = first_ + (read_ + tensor * kVectors + access * kWarp);
    return by ? shifted(from[0], from[1], by) : from[0];
  }

  // Leaves the stage to read to later copies.
  __device__ void release() { read_ = after(read_); }

 private:
  static constexpr int kVectors = kAccesses * kWarp + 1;  // of a tensor and warp

  __device__ int after(int stage) const { return stage == (kStages - 1) * stage_ ? 0 : stage + stage_; }

  // A warp's part of the shared memory is laid out by stage, tensor, access and lane; `first_` is the lane's.
  int stage_, read_ = 0, write_ = 0;
  Access* first_;
};

// The loop over the rows. All rows of a group have the same offsets in all tensors, or it has a single row: the launch
// sees to that. A thread so works on the same columns in every row, and keeps their weights and sums in registers.
template <typename Config, typename T, typename Mathematics>
class PeeledGradient {
 public:
  using Sum = accumulate_t<T>;
  static constexpr int N = kVectorLength<T>, kAccesses = Config::kAccesses, kStages = Config::kStages;
  static constexpr int kSums = Mathematics::kSums, kParameters = Mathematics::kParameters;

  __device__ PeeledGradient(const GradientTensors<T>& tensors, const Mathematics& mathematics, void* shared)
      : tensors_(tensors), mathematics_(mathematics), shared_(shared), stages_(shared, tensors.grad_sum.data ? 3 : 2) {
    const int rank = group_.rank();
    first_access_ = rank / kWarp * kWarp * kAccesses + rank % kWarp;
    const int offset = offset_of(group_.first());
    const auto shift_of = [&](const RowMatrix<const T>& matrix) {
      if (!matrix.data) return 0;
      return (matrix.template offset<N>(group_.first()) - offset) & (N - 1);
    };
    shifts_ = shift_of(tensors.input) | shift_of(tensors.grad) << 4 | shift_of(tensors.grad_sum) << 8;
    const PeeledRow<N> peeled(tensors.n, offset, shifts_ | shift_of(tensors.weight));
    begin_ = peeled.begin;
    vectors_ = peeled.vectors;
#pragma unroll
    for (int access = 0; access < kAccesses; ++access) {
      if (index(access) >= vectors_) stages_.clear(access);
    }
    edge_ = rank < peeled.edges() ? peeled.edge(rank) : -1;
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
    for (int64_t row = group_.first(); row < rows; row += count) {
      __syncwarp();  // Other lanes have read what the next copies replace.
      if constexpr (kForgetsPlaces) compute_again_from(first_access_, begin_, shifts_);
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

  // The terms of the input's gradient are kept in registers if there is room beside the sums, else computed again.
  static constexpr bool kKeepsTerms = kParameters * kAccesses * N * sizeof(Sum) <= 64;

  // Terms of float64 leave no registers for addresses on Hopper either.
  static constexpr bool kForgetsPlaces = kHoldsLess || (kKeepsTerms && sizeof(Sum) == 8);

  using Row = typename Mathematics::Row;

  // By how many elements a row lies past aligned vectors where the accesses are to be aligned.
  __device__ int offset_of(int64_t row) const {
    return tensors_.grad_input.data ? tensors_.grad_input.template offset<N>(row)
                                    : tensors_.input.template offset<N>(row);
  }

  __device__ bool has_edge() const { return edge_ >= 0; }
  __device__ int shift(Tensor tensor) const { return shifts_ >> 4 * tensor & 15; }
  __device__ int index(int access) const { return first_access_ + access * kWarp; }

  __device__ void fetch_from(Tensor tensor, const RowMatrix<const T>& matrix, int64_t row) {
    const int by = shift(tensor), count = vectors_ == 0 ? 0 : vectors_ + (by != 0);
    const auto* const from = reinterpret_cast<const Vector<T, N>*>(matrix.row(row) + begin_ - by);
#pragma unroll
    for (int access = 0; access < kAccesses; ++access) {
      if (index(access) < count) stages_.fetch(tensor, access, from + index(access));
    }
    if (by && threadIdx.x % kWarp == 0 && index(kAccesses) < count) {
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
      weights_[access] = RowPlace<N>{0, begin_ + int64_t(index(access)) * N}.load_or(tensors_.weight, 1);
    }
    edge_weight_ = has_edge() ? widen(RowPlace<1>{0, edge_}.load_or(tensors_.weight, 1)[0]) : Sum(0);
  }

  // An access of the stage to read; zeros past the last vector.
  __device__ Vector<Sum, N> read(Tensor tensor, int access) const {
    const int by = shift(tensor);
    if (by && index(access) >= vectors_) return {};
    return widen(stages_.access(tensor, access, by));
  }

  __device__ void work_on(int64_t row, const Row& numbers) {
    const bool valid = row < tensors_.rows, has_edge = valid && this->has_edge();
    const T edge_x = has_edge ? tensors_.input.row(row)[edge_] : T(0.0f);
    const T edge_dy = has_edge ? tensors_.grad.row(row)[edge_] : T(0.0f);
    stages_.wait();
    __syncwarp();  // The copies of other lanes have arrived.
    Vector<Sum, kSums> sums{};
    Vector<Sum, N> kept_terms[kKeepsTerms ? kAccesses : 1];
#pragma unroll
    for (int access = 0; valid && access < kAccesses; ++access) {
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

  // Writes a parameter's sums over the rows of this block, or of this block's part of a cluster. In shared memory they
  // are laid out by columns, of which neighbouring threads then write neighbouring ones.
  __device__ void write_sums(int parameter) {
    const int n = static_cast<int>(tensors_.n), part = blockDim.x * kAccesses * N, groups = blockDim.y;
    // A group that is alone in its block has the columns of its vectors there, and its edges need no sum.
    const bool alone = groups == 1;
    const int first = alone ? begin_ + cluster::rank() * part : 0;
    const int end = alone ? min(begin_ + vectors_ * N, first + part) : n;
    // Each group's sums lie so that its vectors are aligned.
    const int stride = alone ? 0 : (n + 2 * N - 1) / N * N;
    const int offset = alone ? 0 : offset_of(group_.first() - threadIdx.y);
    const int step = alone ? 0 : offset_of(1) - offset_of(0);  // Modulo N, from one group to the next.
    Sum* const parts = static_cast<Sum*>(shared_);
    Sum* const mine = parts + threadIdx.y * stride + ((offset + threadIdx.y * step) & (N - 1));
    __syncthreads();  // Other threads may still read `shared`.
#pragma unroll
    for (int access = 0; access < kAccesses; ++access) {
      if (index(access) < vectors_) store(mine + begin_ - first + index(access) * N, 0, sums_[parameter][access]);
    }
    if (has_edge() && alone) write_sum(parameter, edge_, edge_sums_[parameter]);
    if (has_edge() && !alone) mine[edge_] = edge_sums_[parameter];
    __syncthreads();
    for (int column = threadIdx.y * blockDim.x + threadIdx.x; column < end - first; column += blockDim.x * groups) {
      Sum sum = 0;
      for (int group = 0; group < groups; ++group) {
        sum += parts[group * stride + ((offset + group * step) & (N - 1)) + column];
      }
      write_sum(parameter, first + column, sum);
    }
  }

  const GradientTensors<T>& tensors_;
  const Mathematics& mathematics_;
  void* shared_;
  RowGroup<true> group_;
  PeeledStages<Vector<T, N>, kAccesses, kStages> stages_;
  int shifts_;  // Four bits for each tensor.
  int first_access_, begin_, vectors_;
  int edge_;  // -1 for none.
  Vector<T, N> weights_[kAccesses];
  Sum edge_weight_;
  Vector<Sum, N> sums_[kParameters][kAccesses] = {};
  Sum edge_sums_[kParameters] = {};
};

namespace row_norm {

// What the persistent kernel for peeled rows is compiled for: the accesses that a thread holds, twice as many where one
// has four elements or two; the stages of its pipeline; and its launch bounds.
template <typename Tuned, typename T>
struct PeeledBackwardConfig {
  static constexpr int kAccesses = std::min(2, Tuned::backward_accesses) * (sizeof(T) > 2 ? 2 : 1);
  static constexpr int kThreads = Tuned::backward_threads;
  static constexpr int kBlocks = std::max(1, Tuned::backward_resident_threads / kThreads);
  static constexpr int kStages = sizeof(T) > 2 ? std::min(3, Tuned::backward_stages) : Tuned::backward_stages;

  static constexpr size_t shared(int warps, int tensors) {
    return PeeledStages<Vector<T, kVectorLength<T>>, kAccesses, kStages>::bytes(warps, tensors);
  }
};

// The groups of a persistent kernel that are resident at once.
template <typename... Parameters>
int64_t resident_groups(void (*kernel)(Parameters...), Grid grid, size_t shared, int resident_threads) {
  if (grid.cluster > 1) {
    int clusters = 0;
    cudaLaunchAttribute cluster;
    grid.blocks = grid.cluster;
    const auto configuration = configure(grid, shared, nullptr, &cluster);
    if (allow_shared(kernel, shared) != cudaSuccess) return 1;
    if (cudaOccupancyMaxActiveClusters(&clusters, kernel, &configuration) != cudaSuccess) return 1;
    return std::max(1, clusters);
  }
  constexpr size_t kReserved = 3072;  // Static shared memory of a block, and what CUDA reserves.
  const int64_t fit = attribute(cudaDevAttrMaxSharedMemoryPerMultiprocessor) / (shared + kReserved);
  const int64_t blocks = resident_threads / static_cast<int>(grid.block.x * grid.block.y);
  return std::clamp<int64_t>(blocks, 1, std::max<int64_t>(1, fit)) * attribute(cudaDevAttrMultiProcessorCount) *
         grid.block.y;
}

// The launch of the persistent kernel; false if not even a cluster holds a row.
template <typename Config, typename Tuned, typename T, typename Kernel>
bool peeled_backward_grid(const GradientTensors<T>& tensors, Kernel kernel, Grid* grid, size_t* shared) {
  constexpr int N = kVectorLength<T>, kMostGroups = 4;
  const int read = tensors.grad_sum.data ? 3 : 2, multiprocessors = attribute(cudaDevAttrMultiProcessorCount);
  const size_t per_thread = (Config::shared(1, read) + kWarp - 1) / kWarp;
  const int most = threads_with_shared(Tuned::backward_threads, per_thread);
  if (!hold_in_blocks(tensors.n / N, Config::kAccesses, most, tensors.rows, grid)) return false;
  if (grid->cluster == 1) {
    // Several groups in a block, if that leaves no multiprocessor without rows.
    const int64_t groups = std::min<int64_t>(most / grid->block.x, tensors.rows / (kRowsPerGroup * multiprocessors));
    grid->block.y = static_cast<unsigned>(std::clamp<int64_t>(groups, 1, kMostGroups));
  }
  *shared = Config::shared(grid->block.x * grid->block.y / kWarp, read);
  const int groups = grid->block.y;
  const int64_t resident = resident_groups(kernel, *grid, *shared, Tuned::backward_resident_threads);
  const int64_t wanted = (tensors.rows + kRowsPerGroup - 1) / kRowsPerGroup;
  int64_t blocks = std::min(resident / groups, (wanted + groups - 1) / groups);
  if (blocks * groups < tensors.rows) {
    // All rows of a group have the same offsets if as many rows as there are groups are whole vectors.
    const int64_t step = N / std::gcd(groups, N);
    blocks = std::max(step, blocks / step * step);
  }
  grid->blocks = blocks * grid->cluster;
  return true;
}

// Launches the gradient of the input, and the two steps of the parameters' gradients; with `scratch_size`, it only says
// how many numbers of scratch memory these need. `Kernels` has the persistent kernel and the split one.
template <typename Tuned, typename Kernels, typename T, typename Mathematics>
cudaError_t launch_peeled_backward(
    GradientTensors<T> tensors,
    const Mathematics& mathematics,
    accumulate_t<T>* scratch,
    int64_t* scratch_size,
    cudaStream_t stream) {
  using Sum = accumulate_t<T>;
  using Config = PeeledBackwardConfig<Tuned, T>;
  const auto kernel = Kernels::template persistent<Config>();
  const bool few = are_few_rows(tensors.rows, tensors.n * sizeof(T));
  if constexpr (kCanBeFlat<T>) {
    if (!few && are_flat(tensors)) {
      return launch_flat_gradient(Kernels::flat(), tensors, mathematics, scratch, scratch_size, stream);
    }
  }
  Grid grid;
  size_t shared = 0;
  if (few || !peeled_backward_grid<Config, Tuned>(tensors, kernel, &grid, &shared)) {
    if (tensors.n * int64_t(sizeof(T)) >= kLeastWideBytes) {
      if (!scratch_size) return launch_wide_gradient(Kernels::wide(), tensors, mathematics, scratch, stream);
      *scratch_size = wide_scratch_size<T, Mathematics>(tensors);
      return cudaSuccess;
    }
    if (scratch_size) return cudaSuccess;
    const SplitGrid split = split_grid(tensors);
    return launch_grid(Kernels::split(), split.grid, 0, stream, tensors, mathematics, split.strips);
  }
  const int64_t columns = Mathematics::kParameters * tensors.n, partials = grid.blocks / grid.cluster;
  const bool has_partials = partials > 1 && (tensors.parameters[0] || tensors.parameters[1]);
  if (scratch_size) {
    *scratch_size = has_partials ? columns * partials : 0;
    return cudaSuccess;
  }
  if (has_partials) tensors.partial = scratch;
  const auto error = launch_grid(kernel, grid, shared, stream, tensors, mathematics);
  if (error != cudaSuccess || !has_partials) return error;
  const Columns<T> results{tensors.parameters[0], tensors.parameters[1], tensors.n};
  return launch_sum_columns<Sum>(Stored<Sum>{scratch, columns}, results, partials, columns, 1, stream);
}

}  // namespace row_norm
