// Sums over all rows of what each row adds to them, in a fixed order: the same input gives the same bits.

#pragma once

#include "formula_row.cuh"
#include "row_tensors.h"
#include "thread_group.cuh"

constexpr int kTotalThreads = 1024;

// Sums over all rows as a formula sees them that computes results of them.
template <typename Tensors>
class FormulaTotals {
 public:
  using Number = typename Tensors::Sum;

  Number totals[kMostTotals];

  __device__ explicit FormulaTotals(const Tensors& tensors) : tensors_(tensors) {}

  __device__ Number size() const { return static_cast<Number>(tensors_.rows.n); }

  __device__ Number count() const { return static_cast<Number>(tensors_.rows.count); }

  __device__ Number batch() const { return static_cast<Number>(tensors_.rows.batch); }

  __device__ Number total(int i) const { return totals[i]; }

  __device__ void put_total(int i, Number value) {
    *tensors_.total_results[i] = static_cast<typename Tensors::Element>(value);
  }

  __device__ void put_wide_total(int i, Number value) { *tensors_.wide_totals[i] = static_cast<float>(value); }

  // For the backward.
  __device__ void save(int i, Number value) { *tensors_.saved_totals[i] = value; }

 private:
  const Tensors& tensors_;
};

// The sum of `count` numbers, in every thread of the block.
template <typename Sum>
__device__ Sum sum_of_block(BlockGroup& group, const Sum* numbers, int64_t count) {
  Sum total = 0;
#pragma unroll 8
  for (int64_t i = threadIdx.x; i < count; i += blockDim.x) total += numbers[i];
  return group.sum(total);
}

// Slice blockIdx.x of the terms of sum blockIdx.y: its sum goes behind all terms.
template <typename Sum>
__global__ void __launch_bounds__(kTotalThreads) add_slices(Sum* terms, int64_t rows) {
  BlockGroup group;
  const int64_t first = rows * blockIdx.x / gridDim.x, last = rows * (blockIdx.x + 1) / gridDim.x;
  const Sum total = sum_of_block(group, terms + blockIdx.y * rows + first, last - first);
  if (threadIdx.x == 0) terms[gridDim.y * rows + blockIdx.y * gridDim.x + blockIdx.x] = total;
}

// Calls formula(totals) in one thread of a block, when the block has added up all terms or slices.
template <int kTotals, typename Tensors, typename Formula>
__device__ void with_totals(const Tensors& tensors, const Formula& formula) {
  const int64_t rows = tensors.rows.count, slices = slices_of_terms(rows), count = slices > 1 ? slices : rows;
  const auto* const numbers = slices > 1 ? tensors.terms + kTotals * rows : tensors.terms;
  BlockGroup group;
  FormulaTotals<Tensors> totals(tensors);
#pragma unroll
  for (int i = 0; i < kTotals; ++i) totals.totals[i] = sum_of_block(group, numbers + i * count, count);
  if (threadIdx.x == 0) formula(totals);
}

// Leaves the sums themselves.
template <int kTotals, typename Tensors>
__global__ void __launch_bounds__(kTotalThreads) store_totals(Tensors tensors) {
  with_totals<kTotals>(tensors, [&](const auto& totals) {
    for (int i = 0; i < kTotals; ++i) tensors.totals[i] = totals.total(i);
  });
}

// So few rows that one block computes what they add, if it needs no elements for that.
constexpr int64_t kRowsOfOneBlock = 4 * kTotalThreads;

// A thread for each row of which no elements are needed.
using NumbersOfRow = RowKernel<LaneGroup<1>, 1, 1, true, 0, true>;

// Calls formula(row) for all rows, which add to the sums, and leaves these: by one block.
template <int kTotals, typename Tensors, typename Formula>
__device__ void store_totals_of_numbers(const Tensors& tensors, const Formula& formula) {
  let_next_kernel_start();
  for_each_row<NumbersOfRow>(tensors, formula);
  __syncthreads();
  with_totals<kTotals>(tensors, [&](const auto& totals) {
    for (int i = 0; i < kTotals; ++i) tensors.totals[i] = totals.total(i);
  });
}

// Calls launch(blocks, threads) for what computes of the sums, after a kernel of rows that has ended with `error`.
template <int kTotals, typename Tensors, typename Launch>
cudaError_t launch_totals(const Tensors& tensors, cudaError_t error, cudaStream_t stream, const Launch& launch) {
  if (error != cudaSuccess) return error;
  const int64_t slices = slices_of_terms(tensors.rows.count);
  if (slices > 1) {
    add_slices<<<dim3(slices, kTotals), kTotalThreads, 0, stream>>>(tensors.terms, tensors.rows.count);
    error = cudaGetLastError();
    if (error != cudaSuccess) return error;
  }
  launch(1, kTotalThreads);
  return cudaGetLastError();
}
