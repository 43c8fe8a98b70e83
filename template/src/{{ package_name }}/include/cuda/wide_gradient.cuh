// The gradient of a normalisation of few long rows, or of rows that are too long for registers, by all blocks of the
// GPU and in two passes, each a launch of one kernel. In the first a block has a strip of columns of all rows: it
// computes the gradients of the parameters there, and leaves what the strip adds to each row's sums. In the second a
// block adds these up and computes the input's gradient of a part of a row. Rows are read twice, the second time mostly
// from the L2 cache: the second pass begins with what the first read last.

#pragma once

#include <cuda_runtime_api.h>

#include <algorithm>
#include <limits>

#include "accumulate.cuh"
#include "cache_hints.cuh"
#include "dependent_launch.cuh"
#include "gradient_tensors.cuh"
#include "peeled_row.cuh"
#include "reduce.cuh"
#include "row_grid.cuh"
#include "row_group.cuh"
#include "row_matrix.h"
#include "tile.cuh"
#include "vector.cuh"
#include "widen.cuh"

constexpr int kWideThreads = 256;  // The most threads of a block.
constexpr int kWideBlocks = 4;     // That a multiprocessor has registers for, on Hopper.

// How a gradient is divided, and which pass a launch is.
template <typename Sum>
struct WideGradient {
  int pass = 0;
  int strip_vectors = 0;  // A strip's width: a power of two.
  int64_t strips = 0;
  int64_t parts = 0;    // Of a row, in the second pass.
  Sum* sums = nullptr;  // What each strip adds to the sums of a row: by rows, strips, sums. Null: no second pass.
};

// The first pass of a strip. Neighbouring threads have neighbouring vectors of a row; the block has several rows at
// once where a strip has fewer vectors than it has threads.
template <typename T, typename Mathematics>
class WideStrip {
 public:
  using Sum = accumulate_t<T>;
  static constexpr int N = kVectorLength<T>;
  static constexpr int kSums = Mathematics::kSums, kParameters = Mathematics::kParameters;

  __device__ WideStrip(const GradientTensors<T>& tensors, const Mathematics& mathematics, const WideGradient<Sum>& wide)
      : tensors_(tensors),
        mathematics_(mathematics),
        wide_(wide),
        width_(wide.strip_vectors),
        vector_(threadIdx.x & (width_ - 1)),
        group_(threadIdx.x / width_),
        groups_(blockDim.x / width_),
        column_((int64_t(blockIdx.x) * width_ + vector_) * N) {
    for (int k = 0; k < N; ++k) {
      weight_[k] = column_ + k < tensors.n && tensors.weight.data ? tensors.weight.data[column_ + k] : T(1.0f);
    }
  }

  __device__ void run() {
    const auto is_aligned = [](const RowMatrix<const T>& matrix) {
      return matrix.template offset<N>(0) == 0 && matrix.stride % N == 0;
    };
    const bool aligned = is_aligned(tensors_.input) && is_aligned(tensors_.grad) && tensors_.n % N == 0;
    for (int64_t first = 0; first < tensors_.rows; first += kBatch) {
      const int rows = static_cast<int>(min(int64_t(kBatch), tensors_.rows - first));
      aligned ? add_rows<2, false>(first, rows) : add_rows<1, true>(first, rows);
      if (wide_.sums) leave_sums(first, rows);
    }
#pragma unroll
    for (int parameter = 0; parameter < kParameters; ++parameter) {
      if (tensors_.parameters[parameter]) write(parameter);
    }
  }

 private:
  static constexpr int kBatch = 64;  // Rows whose sums are in shared memory at once.
  static constexpr int kMostWarps = kWideThreads / kWarp;

  // Adds up `rows` rows from `first` on. All threads of the block take as many turns.
  template <int kAhead, bool kShifted>
  __device__ void add_rows(int64_t first, int rows) {
    const bool is_inside = kShifted ? column_ >= N && column_ + 2 * N <= tensors_.n : column_ < tensors_.n;
    for (int begin = 0; begin < rows; begin += kAhead * groups_) {
      LoadedColumns<T, N, kShifted> values[kAhead], grads[kAhead];
      typename Mathematics::Row numbers[kAhead];
      const auto place = [&](int i) { return begin + i * groups_ + group_; };
#pragma unroll
      for (int i = 0; i < kAhead; ++i) {
        const bool valid = place(i) < rows;
        values[i].load(tensors_.input, first + place(i), column_, valid && is_inside);
        grads[i].load(tensors_.grad, first + place(i), column_, valid && is_inside);
        numbers[i] = valid ? mathematics_.load(first + place(i)) : typename Mathematics::Row{};
      }
      if (kShifted && !is_inside) {
#pragma unroll
        for (int i = 0; i < kAhead; ++i) {
          if (place(i) >= rows) continue;
          values[i].load_elements(tensors_.input, first + place(i), column_, tensors_.n);
          grads[i].load_elements(tensors_.grad, first + place(i), column_, tensors_.n);
        }
      }
      Vector<Sum, kSums> sums[kAhead] = {};
#pragma unroll
      for (int i = 0; i < kAhead; ++i) {
        const auto x = widen(values[i].value()), dy = widen(grads[i].value()), weight = widen(weight_);
#pragma unroll
        for (int k = 0; k < N; ++k) {
          const auto terms = mathematics_.terms(x[k], dy[k], weight[k], numbers[i]);
#pragma unroll
          for (int s = 0; s < kSums; ++s) sums[i][s] += terms.sums[s];
#pragma unroll
          for (int parameter = 0; parameter < kParameters; ++parameter) {
            parameters_[parameter][k] += terms.parameters[parameter];
          }
        }
      }
      if (!wide_.sums) continue;
      const int lanes = min(width_, kWarp);
      for (int distance = lanes / 2; distance > 0; distance /= 2) {
#pragma unroll
        for (int i = 0; i < kAhead; ++i) {
#pragma unroll
          for (int s = 0; s < kSums; ++s) sums[i][s] += __shfl_xor_sync(0xffffffff, sums[i][s], distance);
        }
      }
      if ((threadIdx.x & (lanes - 1)) != 0) continue;
#pragma unroll
      for (int i = 0; i < kAhead; ++i) {
        if (place(i) >= rows) continue;
        for (int s = 0; s < kSums; ++s) row_sums()[(s * kBatch + place(i)) * kMostWarps + vector_ / kWarp] = sums[i][s];
      }
    }
  }

  // The sums of a batch's rows, of each warp that has vectors of one.
  __device__ static Sum* row_sums() {
    __shared__ Sum sums[kSums * kBatch * kMostWarps];
    return sums;
  }

  __device__ void leave_sums(int64_t first, int rows) const {
    __syncthreads();
    const int warps = (width_ + kWarp - 1) / kWarp;
    for (int i = threadIdx.x; i < rows * kSums; i += blockDim.x) {
      const int row = i / kSums, s = i % kSums;
      Sum sum = 0;
      for (int warp = 0; warp < warps; ++warp) sum += row_sums()[(s * kBatch + row) * kMostWarps + warp];
      wide_.sums[((first + row) * wide_.strips + blockIdx.x) * kSums + s] = sum;
    }
    __syncthreads();
  }

  // Adds up a parameter's sums of the threads that have the same columns: by shuffles those of a warp, then the others.
  __device__ void write(int parameter) {
    __shared__ Sum parts[kWideThreads * N];
    auto sums = parameters_[parameter];
    for (int distance = width_; distance < kWarp; distance *= 2) {
#pragma unroll
      for (int k = 0; k < N; ++k) {
        sums[k] += __shfl_xor_sync(0xffffffff, sums[k], distance);
      }
    }
    const int columns = width_ * N, lanes = max(width_, kWarp), count = blockDim.x / lanes;
    const int lane = threadIdx.x & (lanes - 1);
    __syncthreads();  // The sums of the parameter before were read.
    if (lane < width_) store(parts + threadIdx.x / lanes * columns, lane, sums);
    __syncthreads();
    const int64_t begin = int64_t(blockIdx.x) * columns;
    for (int i = threadIdx.x; i < columns && begin + i < tensors_.n; i += blockDim.x) {
      Sum sum = 0;
      for (int part = 0; part < count; ++part) sum += parts[part * columns + i];
      tensors_.parameters[parameter][begin + i] = static_cast<T>(sum);
    }
  }

  const GradientTensors<T>& tensors_;
  const Mathematics& mathematics_;
  const WideGradient<Sum>& wide_;
  int width_, vector_, group_, groups_;
  int64_t column_;
  Vector<T, N> weight_;
  Vector<Sum, N> parameters_[kParameters] = {};
};

// The second pass of a part of a row.
template <typename T, typename Mathematics>
class WidePart {
 public:
  using Sum = accumulate_t<T>;
  static constexpr int N = kVectorLength<T>, kSums = Mathematics::kSums;

  __device__ WidePart(const GradientTensors<T>& tensors, const Mathematics& mathematics, const WideGradient<Sum>& wide)
      : tensors_(tensors), mathematics_(mathematics), wide_(wide) {
    const int64_t block = gridDim.x - 1 - blockIdx.x;
    row_ = block % tensors.rows;
    rank_ = static_cast<int>(block / tensors.rows * blockDim.x + threadIdx.x);
    const int offset = tensors.grad_input.template offset<N>(row_);
    bool shifted = false;
    for (const auto* matrix : {&tensors.input, &tensors.grad, &tensors.grad_sum, &tensors.weight}) {
      shifted |= matrix->data && matrix->template offset<N>(row_) != offset;
    }
    peeled_ = PeeledRow<N>(tensors.n, offset, shifted);
  }

  __device__ void run() {
    // What the first pass does not write is loaded while that ends.
    const int threads = static_cast<int>(wide_.parts * blockDim.x);
    const auto numbers = mathematics_.load(row_);
    Access access = load(rank_);
    Vector<T, 1> edge_x{}, edge_dy{}, edge_weight{};
    const bool has_edge = rank_ < peeled_.edges();
    const RowPlace<1> edge{row_, has_edge ? peeled_.edge(rank_) : 0};
    if (has_edge) {
      edge_x = edge.load(tensors_.input);
      edge_dy = edge.load(tensors_.grad);
      edge_weight = edge.load_or(tensors_.weight, 1);
    }
    wait_for_kernel_before();
    const auto slope = mathematics_.slope(row_sums(), numbers);
    const auto gradient = [&](const auto& place, const auto& x, const auto& dy, const auto& weight) {
      auto result = widen(place.load_or(tensors_.grad_sum, 0));
#pragma unroll
      for (int k = 0; k < place.kLength; ++k) {
        const Sum term = mathematics_.terms(x[k], dy[k], weight[k], numbers).input;
        result[k] += mathematics_.gradient(term, x[k], slope);
      }
      place.store(tensors_.grad_input, narrow<T>(result));
    };
    if (has_edge) gradient(edge, widen(edge_x), widen(edge_dy), widen(edge_weight));
#pragma unroll 1
    for (int64_t i = rank_; i < peeled_.vectors; i += threads) {
      const RowPlace<N> place{row_, peeled_.begin + i * N};
      gradient(place, widen(access.input.joined()), widen(access.grad.joined()), widen(access.weight.joined()));
      access = load(i + threads);
    }
  }

 private:
  // A vector of a tensor, and the next one where it lies across two aligned ones: `by` elements into the first.
  struct Pair {
    Vector<T, N> first, next;
    int by;

    __device__ Vector<T, N> joined() const { return by ? shifted(first, next, by) : first; }
  };

  struct Access {
    Pair input, grad, weight;
  };

  // Predicates, not branches: all loads are in flight at once.
  __device__ Pair load_pair(const RowMatrix<const T>& matrix, int64_t i) const {
    const bool valid = matrix.data && i < peeled_.vectors;
    const int by = static_cast<int>((matrix.template offset<N>(row_) + peeled_.begin) % N);
    const T* const from = matrix.row(row_) + peeled_.begin - by;
    Vector<T, N> otherwise;
#pragma unroll
    for (int k = 0; k < N; ++k) otherwise[k] = T(1.0f);
    const auto first = load_evict_last<N>(from, i, valid, otherwise);
    return {first, load_evict_last<N>(from, i + 1, valid && by, otherwise), by};
  }

  __device__ Access load(int64_t i) const {
    return {load_pair(tensors_.input, i), load_pair(tensors_.grad, i), load_pair(tensors_.weight, i)};
  }

  __device__ Vector<Sum, kSums> row_sums() {
    RowGroup<false> group;
    Vector<Sum, kSums> sums{};
    const auto* const of_strips = reinterpret_cast<const Vector<Sum, kSums>*>(wide_.sums) + row_ * wide_.strips;
#pragma unroll 4
    for (int64_t strip = threadIdx.x; strip < wide_.strips; strip += blockDim.x) {
      sums += of_strips[strip];
    }
    return group.sum(sums);
  }

  const GradientTensors<T>& tensors_;
  const Mathematics& mathematics_;
  const WideGradient<Sum>& wide_;
  int64_t row_;
  int rank_;
  PeeledRow<N> peeled_;
};

template <typename T, typename Mathematics>
__device__ void wide_gradient(
    const GradientTensors<T>& tensors, const Mathematics& mathematics, const WideGradient<accumulate_t<T>>& wide) {
  if (wide.pass == 0) {
    let_next_kernel_start();
    WideStrip<T, Mathematics>(tensors, mathematics, wide).run();
  } else {
    WidePart<T, Mathematics>(tensors, mathematics, wide).run();
  }
}

namespace row_norm {

// Strips are so wide that all of them are resident at once.
template <typename T>
WideGradient<accumulate_t<T>> divide_gradient(const GradientTensors<T>& tensors) {
  constexpr int kLeastVectors = 8, kVectorsOfThread = 2;
  const int64_t multiprocessors = attribute(cudaDevAttrMultiProcessorCount);
  const int64_t vectors = (tensors.n + kVectorLength<T> - 1) / kVectorLength<T>;
  WideGradient<accumulate_t<T>> wide;
  const int64_t blocks = kWideBlocks * multiprocessors;
  wide.strip_vectors = kLeastVectors;
  while (wide.strip_vectors < kWideThreads && vectors > blocks * wide.strip_vectors) wide.strip_vectors *= 2;
  wide.strips = (vectors + wide.strip_vectors - 1) / wide.strip_vectors;
  const auto parts_of = [&](int per_thread) {
    return (vectors + kWideThreads * per_thread - 1) / (kWideThreads * per_thread);
  };
  int per_thread = kVectorsOfThread;
  while (per_thread > 1 && tensors.rows * parts_of(per_thread) < blocks) per_thread /= 2;
  wide.parts = parts_of(per_thread);
  return wide;
}

template <typename T, typename Mathematics>
int64_t wide_scratch_size(const GradientTensors<T>& tensors) {
  return tensors.grad_input.data ? tensors.rows * divide_gradient(tensors).strips * Mathematics::kSums : 0;
}

template <typename T, typename Mathematics>
cudaError_t launch_wide_gradient(
    void (*kernel)(GradientTensors<T>, Mathematics, WideGradient<accumulate_t<T>>),
    const GradientTensors<T>& tensors,
    const Mathematics& mathematics,
    accumulate_t<T>* scratch,
    cudaStream_t stream) {
  auto wide = divide_gradient(tensors);
  if (tensors.grad_input.data) wide.sums = scratch;
  if (wide.strips > std::numeric_limits<int>::max() || tensors.rows * wide.parts > std::numeric_limits<int>::max()) {
    return cudaErrorInvalidConfiguration;
  }
  int threads = wide.strip_vectors;  // Enough for all rows.
  while (threads < kWideThreads && (threads < kWarp || threads < wide.strip_vectors * tensors.rows)) threads *= 2;
  const auto error = launch_grid(kernel, Grid{dim3(threads), wide.strips}, 0, stream, tensors, mathematics, wide);
  if (error != cudaSuccess || !wide.sums) return error;
  wide.pass = 1;
  const dim3 blocks(static_cast<unsigned>(tensors.rows * wide.parts));
  return launch_dependent(kernel, blocks, dim3(kWideThreads), stream, tensors, mathematics, wide);
}

}  // namespace row_norm
