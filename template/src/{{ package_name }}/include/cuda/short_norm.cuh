// The forward of a normalisation of short aligned rows, such as heads: up to 64 vectors. A few lanes of a warp share a
// row, no more than it takes: a thread has four accesses, of one row or, where rows are very short, of two or four. As
// many loads are in flight as for long rows, and few shuffles add up a row. The mathematics is the op's; it gives
// functions of a single element and of the access in which that is.

#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "accumulate.cuh"
#include "evict_last.cuh"
#include "norm_tensors.cuh"
#include "reduce.cuh"
#include "row.cuh"
#include "row_grid.cuh"
#include "vector.cuh"
#include "widen.cuh"

constexpr int kShortThreads = 128;     // Of a block.
constexpr int kShortBlocks = 5;        // That a multiprocessor has registers for.
constexpr int kMostShortVectors = 64;  // Of a row.
constexpr int kShortAccesses = 4;      // Of a thread.

// How threads lie over rows: so many lanes, a power of two, share one, and a thread has 2 to the power of `doublings`
// accesses of it.
struct ShortLayout {
  int lanes, doublings;
};

template <typename T>
class ShortNormRows {
 public:
  using Sum = accumulate_t<T>;
  static constexpr int N = kVectorLength<T>, kAccesses = kShortAccesses;
  using Numbers = Vector<Sum, kAccesses>;  // A number of its row for each access.

  // Loads the input, and adds the residual.
  __device__ ShortNormRows(const NormTensors<T>& tensors, const ShortLayout& layout)
      : tensors_(tensors),
        layout_(layout),
        rank_(threadIdx.x & (layout.lanes - 1)),
        vectors_(static_cast<int>(tensors.n / N)),
        step_(blockDim.x / layout.lanes),
        first_row_(int64_t(blockIdx.x) * step_ * (kAccesses >> layout.doublings) + threadIdx.x / layout.lanes) {
    load_rows(tensors.input, held_);
    if (tensors.residual.data) add();
  }

  // The sum of f(element, access) over the row of each access.
  template <typename F>
  __device__ Numbers sum(F f) const {
    Numbers sums{};
    each([&](int access) {
      const auto values = widen(held_[access]);
#pragma unroll
      for (int k = 0; k < N; ++k) {
        sums[access] += f(values[k], access);
      }
    });
    if (layout_.doublings == 2) {
      const Sum total = lanes_sum(sums[0] + sums[1] + (sums[2] + sums[3]));
      sums[0] = sums[1] = sums[2] = sums[3] = total;
    } else if (layout_.doublings == 1) {
      sums[0] = sums[1] = lanes_sum(sums[0] + sums[1]);
      sums[2] = sums[3] = lanes_sum(sums[2] + sums[3]);
    } else {
#pragma unroll
      for (int access = 0; access < kAccesses; ++access) {
        sums[access] = lanes_sum(sums[access]);
      }
    }
    return sums;
  }

  // Writes a number of each row.
  __device__ void write_numbers(Sum* out, const Numbers& numbers) const {
#pragma unroll
    for (int access = 0; access < kAccesses; ++access) {
      if (index(access) == 0 && row(access) < tensors_.rows) out[row(access)] = numbers[access];
    }
  }

  // Writes f(element, weight, bias, access) to the output.
  template <bool kBias, typename F>
  __device__ void write(F f) const {
    each([&](int access) {
      auto values = widen(held_[access]);
      const auto weight = widen(load_or<N>(tensors_.weight.data, index(access), 1));
      const auto bias = widen(load_or<N>(kBias ? tensors_.bias.data : nullptr, index(access), 0));
#pragma unroll
      for (int k = 0; k < N; ++k) {
        values[k] = f(values[k], weight[k], bias[k], access);
      }
      store_evict_last(tensors_.output.row(row(access)), index(access), narrow<T>(values));
    });
  }

 private:
  __device__ int64_t row(int access) const { return first_row_ + (access >> layout_.doublings) * step_; }
  __device__ int index(int access) const { return rank_ + (access & ((1 << layout_.doublings) - 1)) * layout_.lanes; }
  __device__ bool has(int access) const { return row(access) < tensors_.rows && index(access) < vectors_; }

  __device__ Sum lanes_sum(Sum value) const {
    for (int distance = layout_.lanes / 2; distance > 0; distance /= 2) {
      value += __shfl_xor_sync(0xffffffff, value, distance);
    }
    return value;
  }

  // Calls f(access) for each access that the thread has.
  template <typename F>
  __device__ void each(const F& f) const {
#pragma unroll
    for (int access = 0; access < kAccesses; ++access) {
      if (has(access)) f(access);
    }
  }

  __device__ void load_rows(const RowMatrix<const T>& matrix, Vector<T, N>* to) const {
#pragma unroll
    for (int access = 0; access < kAccesses; ++access) {
      to[access] = load_evict_last<N>(matrix.row(row(access)), index(access), has(access));
    }
  }

  // Adds the residual, rounds to T, and stores the result in `sum` as well.
  __device__ void add() {
    Vector<T, N> others[kAccesses];
    load_rows(tensors_.residual, others);
    each([&](int access) {
      held_[access] = plus(held_[access], others[access]);
      store_evict_last(tensors_.sum.row(row(access)), index(access), held_[access]);
    });
  }

  const NormTensors<T>& tensors_;
  const ShortLayout& layout_;
  int rank_, vectors_, step_;
  int64_t first_row_;
  Vector<T, N> held_[kAccesses];
};

namespace row_norm {

// The grid of a kernel over short rows of so many vectors. The lanes of a row read 128 bytes at a time, if it has them.
inline Grid short_grid(int64_t rows, int64_t vectors, ShortLayout* layout) {
  layout->doublings = vectors > 16 ? 2 : vectors > 8 ? 1 : 0;
  layout->lanes = 1;
  while (layout->lanes << layout->doublings < vectors) layout->lanes *= 2;
  const int64_t rows_of_block = kShortThreads / layout->lanes * (kShortAccesses >> layout->doublings);
  return Grid{dim3(kShortThreads), (rows + rows_of_block - 1) / rows_of_block};
}

}  // namespace row_norm
