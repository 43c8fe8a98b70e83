// The gradient of a normalisation of flat rows (flat_rows.cuh): a persistent kernel, which reads each row once for the
// gradients of the input and of the parameters, and the launch. gradient_tensors.cuh says what the op gives.

#pragma once

#include "column_sums.cuh"
#include "dependent_launch.cuh"
#include "flat_rows.cuh"
#include "gradient_tensors.cuh"
#include "pipeline.cuh"
#include "registers.cuh"
#include "widen.cuh"

constexpr int kFlatBackwardThreads = 512;  // Of a multiprocessor, which share its registers.
constexpr int kFlatBackwardBlock = 256;    // Of a block, unless a group has more: each leaves a row of partial sums.

template <typename T, typename Mathematics>
class FlatGradient : public FlatRows<T, Mathematics::kSums> {
  using Base = FlatRows<T, Mathematics::kSums>;
  using Row = typename Mathematics::Row;

 public:
  using Base::N;
  using typename Base::Sum;
  using typename Base::Sums;
  static constexpr int kSums = Mathematics::kSums, kParameters = Mathematics::kParameters;

  static constexpr int kStages = 3;
  using Pipeline = RowPipeline<T, N, kFlatAccesses, kStages>;

  static constexpr int kNumbers = 3 * N;  // Of a group: see numbers_.

  // The dynamic shared memory of a block, in bytes: the pipeline's, in whose place are the sums over columns at the
  // end, and that of the sums over rows.
  static size_t before_row_sums(const row_norm::Grid& grid, const GradientTensors<T>& tensors) {
    const size_t columns = grid.block.y * size_t(tensors.n) * N * sizeof(Sum);
    return std::max(pipeline_bytes(grid, tensors), columns);
  }

  static size_t shared_bytes(const row_norm::Grid& grid, const GradientTensors<T>& tensors) {
    return before_row_sums(grid, tensors) + grid.block.y * (Base::shared_of_group(tensors.n) + kNumbers * sizeof(Row));
  }

  // `before`: the bytes of `shared` before those for the sums over rows.
  __device__ FlatGradient(const GradientTensors<T>& tensors, const Mathematics& mathematics, char* shared, int before)
      : Base(tensors.rows, tensors.n, shared + before),
        pipeline_(shared, tensors.grad_sum.data ? 3 : 2),
        tensors_(tensors),
        mathematics_(mathematics),
        n_(static_cast<int>(tensors.n)),
        shared_(reinterpret_cast<Sum*>(shared)),
        numbers_(
            reinterpret_cast<Row (*)[N]>(
                shared + before + blockDim.y * Base::shared_of_group(n_) + threadIdx.y * kNumbers * sizeof(Row))) {
    each_flat_access([&](int access) {
#pragma unroll
      for (int k = 0; k < N; ++k) {
        const bool has_weight = tensors.weight.data && this->has(access);
        weight_[access][k] = has_weight ? tensors.weight.data[this->column(access, k)] : T(1.0f);
      }
    });
  }

  __device__ void run() {
    const int64_t first = int64_t(blockIdx.x) * blockDim.y + threadIdx.y;
    // The next kernel adds up the partial sums. All blocks of this one are resident, so it delays none of them.
    let_next_kernel_start();
    for (int stage = 0; stage < kStages - 1; ++stage) fetch(first + stage * this->step());
    if (threadIdx.x < N) numbers_[0][threadIdx.x] = load_numbers(first);
    this->synchronise();
    this->each_period([&](int64_t period) {
      if constexpr (kHoldsLess) this->forget_places();
      fetch(period + (kStages - 1) * this->step());
      work_on(period, load_numbers(period + this->step()));
      pipeline_.release();
      current_ = after(current_);
    });
    pipeline_.drain();
    if (!tensors_.partial) return;
#pragma unroll
    for (int parameter = 0; parameter < kParameters; ++parameter) write_sums(parameter);
  }

 private:
  enum Tensor { kInput, kGrad, kGradSum };

  __device__ void fetch_from(Tensor tensor, const RowMatrix<const T>& matrix, int64_t period) {
    this->visit(
        matrix,
        period,
        [&](int access, const Vector<T, N>* from) { pipeline_.fetch(tensor, access, from); },
        [&](int access, const Vector<T, N>& values) { pipeline_.put(tensor, access, values); });
  }

  __device__ void fetch(int64_t period) {
    fetch_from(kInput, tensors_.input, period);
    fetch_from(kGrad, tensors_.grad, period);
    if (tensors_.grad_sum.data) fetch_from(kGradSum, tensors_.grad_sum, period);
    pipeline_.commit();
  }

  // What the forward kept of a row of a period, one for each of the first threads.
  __device__ Row load_numbers(int64_t period) const {
    const int64_t row = period * N + threadIdx.x;
    return threadIdx.x < N && row < tensors_.rows ? mathematics_.load(row) : Row{};
  }

  __device__ Row numbers(int access, bool further) const { return numbers_[current_][this->row(access, further)]; }
  __device__ static int after(int buffer) { return buffer == 2 ? 0 : buffer + 1; }

  __device__ void work_on(int64_t period, const Row& next) {
    pipeline_.wait();
    each_flat_access([&](int access) {
      Sums first{}, further{};
      each_term(access, [&](int k, bool is_further, const auto& terms, Sum) {
#pragma unroll
        for (int s = 0; s < kSums; ++s) {
          first[s] += is_further ? Sum(0) : terms.sums[s];
          further[s] += is_further ? terms.sums[s] : Sum(0);
        }
#pragma unroll
        for (int parameter = 0; parameter < kParameters; ++parameter) {
          sums_[parameter][access][k] += terms.parameters[parameter];
        }
      });
      this->leave(access, first, further);
    });
    if (threadIdx.x < N) numbers_[after(current_)][threadIdx.x] = next;
    this->add_up([](int, const Sums& sums) { return sums; });
    if (!tensors_.grad_input.data) return;
    each_flat_access([&](int access) {
      if (!this->has(access)) return;
      const auto first = mathematics_.slope(this->total(access, false), numbers(access, false));
      const auto further = mathematics_.slope(this->total(access, true), numbers(access, true));
      Vector<Sum, N> result{};
      if (tensors_.grad_sum.data) result = widen(pipeline_.access(kGradSum, access));
      each_term(access, [&](int k, bool is_further, const auto& terms, Sum x) {
        result[k] +=
            is_further ? mathematics_.gradient(terms.input, x, further) : mathematics_.gradient(terms.input, x, first);
      });
      this->put(tensors_.grad_input, period, access, narrow<T>(result));
    });
  }

  // Calls f(k, whether it is in the vector's second row, what it contributes, x) for each element of an access.
  template <typename F>
  __device__ void each_term(int access, const F& f) {
    forget_conversions(weight_[access]);
    const auto x = widen(pipeline_.access(kInput, access)), dy = widen(pipeline_.access(kGrad, access));
    const auto weight = widen(weight_[access]);
    const Row first = numbers(access, false), further = numbers(access, true);
#pragma unroll
    for (int k = 0; k < N; ++k) {
      const bool is_further = this->is_further(access, k);
      f(k, is_further, mathematics_.terms(x[k], dy[k], weight[k], is_further ? further : first), x[k]);
    }
  }

  // Writes a parameter's sums over the rows of the block: those of a column are N in each group, one of each row.
  __device__ void write_sums(int parameter) {
    const int period = n_ * N, groups = blockDim.y;
    __syncthreads();  // Other threads may still read `shared`.
    each_flat_access([&](int access) {
      if (this->has(access)) store(shared_ + threadIdx.y * period, this->vector(access), sums_[parameter][access]);
    });
    __syncthreads();
    for (int column = threadIdx.y * blockDim.x + threadIdx.x; column < n_; column += blockDim.x * groups) {
      Sum sum = 0;
      for (int i = column; i < groups * period; i += n_) sum += shared_[i];
      tensors_.partial[(int64_t(blockIdx.x) * kParameters + parameter) * n_ + column] = sum;
    }
  }

  static size_t pipeline_bytes(const row_norm::Grid& grid, const GradientTensors<T>& tensors) {
    return Pipeline::bytes(grid.block.x * grid.block.y, tensors.grad_sum.data ? 3 : 2);
  }

  Pipeline pipeline_;
  const GradientTensors<T>& tensors_;
  const Mathematics& mathematics_;
  int n_;
  Sum* shared_;
  // Of the rows of a period, by turns: while one is read, slower threads still read the one before, and the next is
  // written.
  Row (*numbers_)[N];
  int current_ = 0;
  typename Base::Accesses weight_;
  Vector<Sum, N> sums_[kParameters][kFlatAccesses] = {};
};

namespace row_norm {

// Whether the kernel above takes such rows. Longer ones are peeled: fewer of their elements are at the edges.
template <typename T>
bool are_flat(const GradientTensors<T>& tensors) {
  constexpr int kMost = 255;
  const int64_t n = tensors.n;
  return n <= kMost && are_flat<T>(n, tensors.input, tensors.grad, tensors.grad_sum, tensors.grad_input);
}

// Launches the gradient of the input, and the two steps of the parameters' gradients; with `scratch_size`, it only says
// how many numbers of scratch memory these need.
template <typename T, typename Mathematics>
cudaError_t launch_flat_gradient(
    void (*kernel)(GradientTensors<T>, Mathematics, int),
    GradientTensors<T> tensors,
    const Mathematics& mathematics,
    accumulate_t<T>* scratch,
    int64_t* scratch_size,
    cudaStream_t stream) {
  using Sum = accumulate_t<T>;
  using Kernel = FlatGradient<T, Mathematics>;
  const size_t most_shared = attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin);
  int most_threads = kFlatBackwardBlock;
  Grid grid = flat_grid<T>(tensors.rows, tensors.n, most_threads, kFlatBackwardThreads);
  while (grid.block.y > 1 && Kernel::shared_bytes(grid, tensors) > most_shared) {
    most_threads /= 2;
    grid = flat_grid<T>(tensors.rows, tensors.n, most_threads, kFlatBackwardThreads);
  }
  const int64_t columns = Mathematics::kParameters * tensors.n;
  const bool has_parameters = tensors.parameters[0] || tensors.parameters[1];
  if (scratch_size) {
    *scratch_size = has_parameters ? columns * grid.blocks : 0;
    return cudaSuccess;
  }
  if (has_parameters) tensors.partial = scratch;
  const size_t shared = Kernel::shared_bytes(grid, tensors), before = Kernel::before_row_sums(grid, tensors);
  const auto error = launch_grid(kernel, grid, shared, stream, tensors, mathematics, static_cast<int>(before));
  if (error != cudaSuccess || !has_parameters) return error;
  const Columns<T> results{tensors.parameters[0], tensors.parameters[1], tensors.n};
  return launch_sum_columns<Sum>(Stored<Sum>{scratch, columns}, results, grid.blocks, columns, 1, stream);
}

}  // namespace row_norm
