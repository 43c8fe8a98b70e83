// The gradient of a normalisation of few rows, or of rows that are too long for registers, in one launch. Some blocks
// compute the input's gradient, a block or a cluster for each row; others the parameters', each for a strip of columns
// and all rows. No block waits for another, and there are no partial sums, but rows are read three times: from the L2
// cache, but for the first time, where they are few.

#pragma once

#include <cuda_runtime_api.h>

#include <algorithm>
#include <type_traits>

#include "accumulate.cuh"
#include "gradient_tensors.cuh"
#include "peeled_row.cuh"
#include "reduce.cuh"
#include "row_grid.cuh"
#include "row_group.cuh"
#include "row_matrix.h"
#include "tile.cuh"
#include "vector.cuh"
#include "widen.cuh"

constexpr int kSplitThreads = 512;  // The most threads of a block.
constexpr int kStripVectors = 8;    // The width of a strip: 128 bytes of a row.

// The input's gradient of a row, which the group's threads read twice. `strips` blocks come before those of the rows.
template <typename T, typename Mathematics>
__device__ void gradient_of_row(const GradientTensors<T>& tensors, const Mathematics& mathematics, int64_t strips) {
  using Sum = accumulate_t<T>;
  constexpr int N = kVectorLength<T>;
  RowGroup<false> group;
  const int64_t row = group.first() - strips / cluster::size();
  const int offset = tensors.grad_input.template offset<N>(row);
  bool shifted = false;
  for (const auto* matrix : {&tensors.input, &tensors.grad, &tensors.grad_sum, &tensors.weight}) {
    shifted |= matrix->data && matrix->template offset<N>(row) != offset;
  }
  const PeeledRow<N> peeled(tensors.n, offset, shifted);
  const auto kept = mathematics.load(row);
  const auto visit_places = [&](const auto& f) {
    each_place(peeled, row, group.rank(), group.size(), [&](const auto& place) {
      const auto x = widen(place.load(tensors.input)), dy = widen(place.load(tensors.grad));
      f(place, x, dy, widen(place.load_or(tensors.weight, 1)));
    });
  };
  Vector<Sum, Mathematics::kSums> sums{};
  visit_places([&](const auto& place, const auto& x, const auto& dy, const auto& weight) {
#pragma unroll
    for (int k = 0; k < place.kLength; ++k) {
      const auto terms = mathematics.terms(x[k], dy[k], weight[k], kept);
      for (int i = 0; i < Mathematics::kSums; ++i) sums[i] += terms.sums[i];
    }
  });
  const auto slope = mathematics.slope(group.sum(sums), kept);
  visit_places([&](const auto& place, const auto& x, const auto& dy, const auto& weight) {
    auto result = widen(place.load_or(tensors.grad_sum, 0));
#pragma unroll
    for (int k = 0; k < place.kLength; ++k) {
      const Sum term = mathematics.terms(x[k], dy[k], weight[k], kept).input;
      result[k] += mathematics.gradient(term, x[k], slope);
    }
    place.store(tensors.grad_input, narrow<T>(result));
  });
}

// The parameters' gradients of a strip of columns. Neighbouring threads read neighbouring vectors of a row, and each
// kStripVectors of them a row.
template <typename T, typename Mathematics>
class StripGradient {
 public:
  using Sum = accumulate_t<T>;
  static constexpr int N = kVectorLength<T>;

  __device__ StripGradient(const GradientTensors<T>& tensors, const Mathematics& mathematics, int64_t strip)
      : tensors_(tensors),
        mathematics_(mathematics),
        begin_(strip * kColumns),
        column_(begin_ + threadIdx.x % kStripVectors * N) {}

  __device__ void run() {
    const auto is_aligned = [](const RowMatrix<const T>& matrix) {
      return matrix.template offset<N>(0) == 0 && matrix.stride % N == 0;
    };
    // Predicates, not branches: several loads are in flight at once.
    if (is_aligned(tensors_.input) && is_aligned(tensors_.grad) && tensors_.n % N == 0) {
      add_rows<2, false>(column_ < tensors_.n);
    } else if (column_ >= N && column_ + 2 * N <= tensors_.n) {
      add_rows<1, true>(true);
    } else {
      add_edges();
    }
#pragma unroll
    for (int parameter = 0; parameter < Mathematics::kParameters; ++parameter) {
      if (tensors_.parameters[parameter]) write(parameter);
    }
  }

 private:
  static constexpr int kColumns = kStripVectors * N;

  // Adds up the rows. If `kShifted`, the thread's columns of a row may lie across two aligned vectors, which are inside
  // of the row.
  template <int kAhead, bool kShifted>
  __device__ void add_rows(bool has_columns) {
    const int64_t step = blockDim.x / kStripVectors;
    for (int64_t row = threadIdx.x / kStripVectors; row < tensors_.rows; row += kAhead * step) {
      LoadedColumns<T, N, kShifted> values[kAhead], grads[kAhead];
#pragma unroll
      for (int i = 0; i < kAhead; ++i) {
        const bool valid = has_columns && row + i * step < tensors_.rows;
        values[i].load(tensors_.input, row + i * step, column_, valid);
        grads[i].load(tensors_.grad, row + i * step, column_, valid);
      }
#pragma unroll
      for (int i = 0; i < kAhead; ++i) {
        if (row + i * step >= tensors_.rows) break;
        add(widen(values[i].value()), widen(grads[i].value()), mathematics_.load(row + i * step));
      }
    }
  }

  // Of columns at the rows' ends, element by element.
  __device__ void add_edges() {
    for (int64_t row = threadIdx.x / kStripVectors; row < tensors_.rows; row += blockDim.x / kStripVectors) {
      Vector<T, N> values{}, grads{};
#pragma unroll
      for (int k = 0; k < N; ++k) {
        if (column_ + k >= tensors_.n) break;
        values[k] = tensors_.input.row(row)[column_ + k];
        grads[k] = tensors_.grad.row(row)[column_ + k];
      }
      add(widen(values), widen(grads), mathematics_.load(row));
    }
  }

  __device__ void add(const Vector<Sum, N>& x, const Vector<Sum, N>& dy, const typename Mathematics::Row& row) {
#pragma unroll
    for (int k = 0; k < N; ++k) {
      const auto terms = mathematics_.terms(x[k], dy[k], 1, row);
#pragma unroll
      for (int parameter = 0; parameter < Mathematics::kParameters; ++parameter) {
        sums_[parameter][k] += terms.parameters[parameter];
      }
    }
  }

  // Adds up the sums of the threads that have the same columns: by shuffles those of a warp, then the warps'.
  __device__ void write(int parameter) {
    __shared__ Sum parts[kSplitThreads / kWarp][kColumns];
    auto sums = sums_[parameter];
#pragma unroll
    for (int distance = kStripVectors; distance < kWarp; distance *= 2) {
#pragma unroll
      for (int k = 0; k < N; ++k) {
        sums[k] += __shfl_xor_sync(0xffffffff, sums[k], distance);
      }
    }
    const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp, warps = blockDim.x / kWarp;
    __syncthreads();  // The sums of the parameter before were read.
    if (lane < kStripVectors) store(parts[warp], lane, sums);
    __syncthreads();
    const int64_t column = begin_ + threadIdx.x;
    if (threadIdx.x >= kColumns || column >= tensors_.n) return;
    Sum sum = 0;
    for (int i = 0; i < warps; ++i) {
      sum += parts[i][threadIdx.x];
    }
    tensors_.parameters[parameter][column] = static_cast<T>(sum);
  }

  const GradientTensors<T>& tensors_;
  const Mathematics& mathematics_;
  int64_t begin_, column_;
  Vector<Sum, N> sums_[Mathematics::kParameters] = {};
};

// The first `strips` blocks have strips, since these take longer, and the others rows.
template <typename T, typename Mathematics>
__device__ void split_gradient(const GradientTensors<T>& tensors, const Mathematics& mathematics, int64_t strips) {
  if (blockIdx.x >= strips) {
    gradient_of_row(tensors, mathematics, strips);
  } else if (int64_t(blockIdx.x) * kStripVectors * kVectorLength<T> < tensors.n) {
    StripGradient<T, Mathematics>(tensors, mathematics, blockIdx.x).run();
  }
}

namespace row_norm {

struct SplitGrid {
  Grid grid;
  int64_t strips = 0;  // The blocks that have strips: whole clusters.
};

// A cluster has a row where a block's threads would have more than two vectors each, as long as multiprocessors are
// free: then a block has kVectorsOfBlock at most. Blocks that wait for each other take longer than a second vector.
template <typename T>
SplitGrid split_grid(const GradientTensors<T>& tensors) {
  constexpr int kMaxCluster = 8, kLeastThreads = 128, kVectorsOfBlock = 256;
  const int64_t vectors = tensors.n / kVectorLength<T>, rows = tensors.rows;
  SplitGrid split;
  int& cluster = split.grid.cluster;
  const int64_t multiprocessors = attribute(cudaDevAttrMultiProcessorCount);
  if (vectors > 2 * kSplitThreads && attribute(cudaDevAttrComputeCapabilityMajor) >= 9) {
    while (cluster < kMaxCluster && 2 * cluster * rows <= multiprocessors && vectors > cluster * kVectorsOfBlock) {
      cluster *= 2;
    }
  }
  const bool has_parameters = tensors.parameters[0] || tensors.parameters[1];
  const int64_t strips = has_parameters ? (vectors + kStripVectors) / kStripVectors : 0;
  split.strips = (strips + cluster - 1) / cluster * cluster;
  split.grid.blocks = split.strips + (tensors.grad_input.data ? rows * cluster : 0);
  const int64_t threads = std::max((vectors + cluster - 1) / cluster, rows * kStripVectors);
  // Blocks of half as many threads are all resident at once.
  const bool crowded = split.grid.blocks > 2 * multiprocessors;
  const int most = crowded && vectors > kSplitThreads ? kSplitThreads / 2 : kSplitThreads;
  split.grid.block = dim3(std::clamp<int64_t>((threads + kWarp - 1) / kWarp * kWarp, kLeastThreads, most));
  return split;
}

}  // namespace row_norm
