// Sums over the rows of a matrix, one for each column. In two steps, because no block sees every row: each thread
// group, or each block of small groups, adds up its own rows and writes one row of partial sums; a second kernel adds
// those up. There are no atomics, so the order of additions is fixed and the same input gives the same bits.

#pragma once

#include <algorithm>

#include "accumulate.cuh"
#include "dependent_launch.cuh"
#include "reduce.cuh"
#include "thread_group.cuh"
#include "vector.cuh"

// The sums of the columns that a thread works on, kept in registers.
template <typename Sum, int N, int kAccesses>
struct ColumnSums {
  Vector<Sum, N> sums[kAccesses] = {};

  // Writes a row of n sums to `out`, the row of this group, or of this block where groups share one. All threads of the
  // block take part; `shared` has room for kAccesses * N sums of each.
  __device__ void write(const ClusterGroup& group, void*, Sum* out, int64_t n) { put(group, out, n); }

  __device__ void write(const BlockGroup& group, void*, Sum* out, int64_t n) { put(group, out, n); }

  __device__ void write(const SubBlockGroup& group, void* shared, Sum* out, int64_t n) {
    if (blockDim.y == 1) return put(group, out, n);
    Sum* const parts = static_cast<Sum*>(shared);
    __syncthreads();  // Other threads may still read `shared`.
    put(group, parts + threadIdx.y * n, n);
    __syncthreads();
    add(parts, blockDim.y, n, out, n);
  }

  // Adds up the groups of each warp by shuffles, then the warps.
  template <int kLanes>
  __device__ void write(const LaneGroup<kLanes>&, void* shared, Sum* out, int64_t n) {
    const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
    constexpr int kColumns = kLanes * kAccesses * N;
    Sum* const parts = static_cast<Sum*>(shared);
    __syncthreads();  // Other threads may still read `shared`.
#pragma unroll
    for (int access = 0; access < kAccesses; ++access) {
      auto sum = sums[access];
#pragma unroll
      for (int k = 0; k < N; ++k) {
#pragma unroll
        for (int distance = kLanes; distance < kWarp; distance *= 2) {
          sum[k] += __shfl_xor_sync(0xffffffff, sum[k], distance);
        }
      }
      if (lane < kLanes) {
        store(parts + warp * kColumns, access * kLanes + lane, sum);
      }
    }
    __syncthreads();
    add(parts, blockDim.x / kWarp, kColumns, out, n);
  }

 private:
  template <typename Group>
  __device__ void put(const Group& group, Sum* row, int64_t n) const {
#pragma unroll
    for (int access = 0; access < kAccesses; ++access) {
      const int i = group.template first_access<kAccesses>() + access * Group::kStep;
      if (i < n / N) {
        store(row, i, sums[access]);
      }
    }
  }

  // Adds up `count` rows of n sums, which are `stride` sums apart.
  __device__ static void add(const Sum* parts, int count, int64_t stride, Sum* out, int64_t n) {
    for (int64_t column = threadIdx.y * blockDim.x + threadIdx.x; column < n; column += blockDim.x * blockDim.y) {
      Sum sum = parts[column];
      for (int other = 1; other < count; ++other) {
        sum += parts[other * stride + column];
      }
      out[column] = sum;
    }
  }
};

// A term for sum_columns: the element of a matrix of partial sums.
template <typename Sum>
struct Stored {
  const Sum* values;
  int64_t columns;

  __device__ Sum operator()(int64_t row, int64_t column) const { return values[row * columns + column]; }
};

constexpr int kSumColumns = 16;  // A block of sum_columns has a thread for each of these columns
constexpr int kSumLanes = 32;    // and each of these rows.
constexpr int kSumAhead = 8;     // Terms that a thread loads before it adds the first.

// Where the sum of a column is written: of the first n columns to `first`, of the others to `second`. Null: nowhere.
template <typename T>
struct Columns {
  T* first;
  T* second;
  int64_t n;

  __device__ void set(int64_t column, T value) const {
    T* const out = column < n ? first : second;
    if (out) {
      out[column < n ? column : column - n] = value;
    }
  }
};

// The sum of term(row, column) over strips of kSumLanes rows: block row y takes every gridDim.y-th strip from the y-th
// on and writes a row of `columns` sums of its own.
template <typename Sum, typename Term, typename T>
__global__ void __launch_bounds__(kSumColumns* kSumLanes)
    sum_columns(Term term, Columns<T> out, int64_t rows, int64_t columns) {
  __shared__ Sum sums[kSumLanes][kSumColumns];
  const int64_t column = int64_t(blockIdx.x) * kSumColumns + threadIdx.x;
  Sum sum = 0;
  wait_for_kernel_before();
  if (column < columns) {
    const int64_t step = gridDim.y * kSumLanes;
    for (int64_t row = blockIdx.y * kSumLanes + threadIdx.y; row < rows; row += kSumAhead * step) {
      Sum terms[kSumAhead];  // All loads are in flight before the first addition.
#pragma unroll
      for (int i = 0; i < kSumAhead; ++i) {
        terms[i] = row + i * step < rows ? term(row + i * step, column) : Sum(0);
      }
#pragma unroll
      for (int i = 0; i < kSumAhead; ++i) {
        sum += terms[i];
      }
    }
  }
  sums[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
#pragma unroll
  for (int half = kSumLanes / 2; half > 0; half /= 2) {
    if (threadIdx.y < half) {
      sums[threadIdx.y][threadIdx.x] += sums[threadIdx.y + half][threadIdx.x];
    }
    __syncthreads();
  }
  if (threadIdx.y == 0 && column < columns) {
    out.set(blockIdx.y * columns + column, static_cast<T>(sums[0][threadIdx.x]));
  }
}

// How many rows of partial sums to split a matrix into (sum_columns' gridDim.y): about a thousand blocks in all, each
// with rows to add, and few enough partial sums for the second kernel.
inline int64_t row_groups(int64_t rows, int64_t n) {
  const int64_t column_blocks = (n + kSumColumns - 1) / kSumColumns;
  const int64_t groups = std::clamp<int64_t>(1024 / std::max<int64_t>(column_blocks, 1), 1, 128);
  return std::clamp<int64_t>((rows + kSumLanes - 1) / kSumLanes, 1, groups);
}

// Launches sum_columns with `groups` rows of sums. The kernel before it in the stream may let it start early.
template <typename Sum, typename Term, typename T>
cudaError_t launch_sum_columns(
    const Term& term, const Columns<T>& out, int64_t rows, int64_t columns, int64_t groups, cudaStream_t stream) {
  const dim3 blocks((columns + kSumColumns - 1) / kSumColumns, groups), threads(kSumColumns, kSumLanes);
  return launch_dependent(sum_columns<Sum, Term, T>, blocks, threads, stream, term, out, rows, columns);
}
