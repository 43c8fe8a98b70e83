// The forward of a normalisation of short rows, such as heads, that start at multiples of 16 bytes. A few lanes of a
// warp share a row, no more than it takes: a thread has four accesses of one row or, where rows are very short, of two
// or four; or six of two rows. As many loads are in flight as for long rows, and few shuffles add up a row. The
// mathematics is the op's; it gives functions of a single element and of the number of its row among the thread's.

#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <type_traits>

#include "accumulate.cuh"
#include "cache_hints.cuh"
#include "norm_tensors.cuh"
#include "row.cuh"
#include "row_grid.cuh"
#include "row_matrix.h"
#include "vector.cuh"
#include "widen.cuh"

constexpr int kShortThreads = 128;  // Of a block.
constexpr int kShortBlocks = 6;     // That a multiprocessor has registers for.

// The rows of a thread that has `held` accesses of each: it has four accesses, or six. Of wide elements it has three:
// more take so many registers that fewer blocks keep memory busy.
template <typename T>
constexpr int rows_of_short_thread(int held) {
  return (held == 3 && sizeof(T) == 8) ? 1 : (4 + held - 1) / held;
}

// A thread's accesses of short rows: kHeld of each of kRows rows, in registers. Two to the power of `lane_bits` lanes
// share a row.
template <typename T, int kHeld>
class ShortNormRows {
 public:
  using Sum = accumulate_t<T>;
  static constexpr int N = kVectorLength<T>, kRows = rows_of_short_thread<T>(kHeld);
  using Numbers = Vector<Sum, kRows>;  // A number of each row.

  // Loads the input and the parameters, and adds the residual.
  __device__ ShortNormRows(const NormTensors<T>& tensors, const RowGroups& groups, int lane_bits)
      : tensors_(tensors),
        lanes_(1 << lane_bits),
        rank_(threadIdx.x & (lanes_ - 1)),
        vectors_(static_cast<int>(tensors.n / N)),
        step_(blockDim.x >> lane_bits),
        first_row_(int64_t(blockIdx.x) * step_ * kRows + (threadIdx.x >> lane_bits)) {
    each([&](int row, int access) {
      const T* const from = row_in_groups(tensors.input, groups, place(row));
      held_[row][access] = load_evict_last<N>(from, index(access), has(row, access));
    });
    if (tensors.residual.data) add();
    // After the residual, beside which there are no registers for them; they are there once the rows are reduced.
    load_parameters(tensors.weight, 1, weight_);
    load_parameters(tensors.bias, 0, bias_);
  }

  // The sum of f(element, row) over each row.
  template <typename F>
  __device__ Numbers sum(F f) {
    Numbers sums{};
    each([&](int row, int access) {
      forget_conversions(held_[row][access]);
      const auto values = widen(held_[row][access]);
      Sum part = 0;
#pragma unroll
      for (int k = 0; k < N; ++k) {
        part += f(values[k], row);
      }
      sums[row] += index(access) < vectors_ ? part : Sum(0);
    });
    for (int distance = lanes_ / 2; distance > 0; distance /= 2) {
      // The shuffles of several rows are in flight at once.
#pragma unroll
      for (int row = 0; row < kRows; ++row) {
        sums[row] += __shfl_xor_sync(0xffffffff, sums[row], distance);
      }
    }
    return sums;
  }

  // Writes a number of each row.
  __device__ void write_numbers(Sum* out, const Numbers& numbers) const {
#pragma unroll
    for (int row = 0; row < kRows; ++row) {
      if (rank_ == 0 && place(row) < tensors_.rows) out[place(row)] = numbers[row];
    }
  }

  // Writes f(element, weight, bias, row) to the output.
  template <typename F>
  __device__ void write(F f) {
    each([&](int row, int access) {
      forget_conversions(held_[row][access]);
      auto values = widen(held_[row][access]);
      const auto weight = widen(weight_[access]), bias = widen(bias_[access]);
#pragma unroll
      for (int k = 0; k < N; ++k) {
        values[k] = f(values[k], weight[k], bias[k], row);
      }
      if (has(row, access)) store_evict_last(tensors_.output.row(place(row)), index(access), narrow<T>(values));
    });
  }

 private:
  using Accesses = Vector<T, N>[kHeld];

  __device__ int64_t place(int row) const { return first_row_ + row * step_; }
  __device__ int index(int access) const { return rank_ + access * lanes_; }
  __device__ bool has(int row, int access) const { return place(row) < tensors_.rows && index(access) < vectors_; }

  // Calls f(row, access) for all accesses of so many of the thread's rows, also those past the end.
  template <int kCount = kRows, typename F>
  __device__ static void each(const F& f) {
#pragma unroll
    for (int row = 0; row < kCount; ++row) {
#pragma unroll
      for (int access = 0; access < kHeld; ++access) {
        f(row, access);
      }
    }
  }

  __device__ void load_parameters(const RowMatrix<const T>& row, float otherwise, Accesses& to) const {
    Vector<T, N> all;
#pragma unroll
    for (int k = 0; k < N; ++k) {
      all[k] = static_cast<T>(otherwise);
    }
#pragma unroll
    for (int access = 0; access < kHeld; ++access) {
      to[access] = load_evict_last<N>(row.data, index(access), row.data && index(access) < vectors_, all);
    }
  }

  // Adds the residual, rounds to T, and stores the result in `sum` as well.
  __device__ void add() {
    // In batches of up to four loads in flight: six beside the row would take too many registers.
    constexpr int kBatch = kHeld < 4 ? 4 / kHeld : 1;
#pragma unroll
    for (int begin = 0; begin < kRows; begin += kBatch) {
      Accesses others[kBatch];
      each<kBatch>([&](int i, int access) {
        const int row = begin + i;
        others[i][access] = load_evict_last<N>(tensors_.residual.row(place(row)), index(access), has(row, access));
      });
      each<kBatch>([&](int i, int access) {
        const int row = begin + i;
        held_[row][access] = plus(held_[row][access], others[i][access]);
        if (has(row, access)) store_evict_last(tensors_.sum.row(place(row)), index(access), held_[row][access]);
      });
    }
  }

  const NormTensors<T>& tensors_;
  int lanes_, rank_, vectors_, step_;
  int64_t first_row_;
  Accesses held_[kRows], weight_, bias_;
};

namespace row_norm {

// Calls visit(held, grid, lane_bits) for a kernel over short rows of so many vectors of T, of which a thread has
// `held`, an integral constant. The lanes of a row read 128 bytes at a time, if it has them.
template <typename T, typename Visit, bool kHoldsThree = true>
cudaError_t visit_short(int64_t rows, int64_t vectors, const Visit& visit) {
  const auto visit_held = [&](auto held) {
    int lane_bits = 0;
    while (int64_t(held) << lane_bits < vectors) ++lane_bits;
    const int64_t rows_of_block = int64_t(kShortThreads >> lane_bits) * rows_of_short_thread<T>(held);
    return visit(held, Grid{dim3(kShortThreads), (rows + rows_of_block - 1) / rows_of_block}, lane_bits);
  };
  // Three rather than four that the same lanes would have in part.
  if constexpr (kHoldsThree) {
    if ((vectors > 16 && vectors <= 24) || (vectors > 32 && vectors <= 48)) {
      return visit_held(std::integral_constant<int, 3>());
    }
  }
  if (vectors > 16) return visit_held(std::integral_constant<int, 4>());
  if (vectors > 8) return visit_held(std::integral_constant<int, 2>());
  return visit_held(std::integral_constant<int, 1>());
}

// For ops that were written when it did not have the elements' type, on which the rows depend of a thread that has
// three.
template <typename Visit>
cudaError_t visit_short(int64_t rows, int64_t vectors, const Visit& visit) {
  return visit_short<float, Visit, false>(rows, vectors, visit);
}

}  // namespace row_norm
