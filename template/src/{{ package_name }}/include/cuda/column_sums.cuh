// Sums over the rows of a matrix, one for each column. In two steps, since no block sees every row: each team, or each
// block of small teams, adds up its own rows and leaves one row of sums; a second kernel adds those. There are no
// atomics, which would add in another order each time.

#pragma once

#include <algorithm>

#include "accumulate.cuh"
#include "dependent_launch.cuh"
#include "reduce.cuh"
#include "team.cuh"
#include "vector.cuh"

// The sums of the columns that a thread works on, kept in registers.
template <typename Sum, int N, int kAccesses>
struct ColumnSums {
  Vector<Sum, N> sums[kAccesses] = {};

  // Leaves a row of n sums in `out`, which belongs to this team, or to this block if teams share it. All threads of the
  // block take part; `shared` holds kAccesses * N sums for each of them.
  __device__ void write(const ClusterTeam& team, void*, Sum* out, int64_t n) { put(team, out, n); }

  __device__ void write(const BlockTeam& team, void*, Sum* out, int64_t n) { put(team, out, n); }

  __device__ void write(const PartTeam& team, void* shared, Sum* out, int64_t n) {
    if (blockDim.y == 1) return put(team, out, n);
    Sum* const parts = static_cast<Sum*>(shared);
    __syncthreads();  // Whoever still uses `shared` comes first.
    put(team, parts + threadIdx.y * n, n);
    __syncthreads();
    add(parts, blockDim.y, n, out, n);
  }

  // Adds up the teams of each warp by shuffles, then the warps.
  template <int kLanes>
  __device__ void write(const LaneTeam<kLanes>&, void* shared, Sum* out, int64_t n) {
    const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
    constexpr int kColumns = kLanes * kAccesses * N;
    Sum* const parts = static_cast<Sum*>(shared);
    __syncthreads();  // Whoever still uses `shared` comes first.
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
  template <typename Team>
  __device__ void put(const Team& team, Sum* row, int64_t n) const {
#pragma unroll
    for (int access = 0; access < kAccesses; ++access) {
      const int i = team.template first_access<kAccesses>() + access * Team::kStep;
      if (i < n / N) {
        store(row, i, sums[access]);
      }
    }
  }

  // Adds up rows of n sums, so many apart.
  __device__ static void add(const Sum* parts, int count, int64_t apart, Sum* out, int64_t n) {
    for (int64_t column = threadIdx.y * blockDim.x + threadIdx.x; column < n; column += blockDim.x * blockDim.y) {
      Sum sum = parts[column];
      for (int other = 1; other < count; ++other) {
        sum += parts[other * apart + column];
      }
      out[column] = sum;
    }
  }
};

// An element of a matrix that holds sums already: see sum_columns.
template <typename Sum>
struct Stored {
  const Sum* values;
  int64_t columns;

  __device__ Sum operator()(int64_t row, int64_t column) const { return values[row * columns + column]; }
};

constexpr int kSumColumns = 16;
constexpr int kSumLanes = 32;
constexpr int kSumAhead = 8;

// Where the sum of a column goes: columns from n on to the second place. Null means nowhere.
template <typename T>
struct Columns {
  T* first;
  T* second;
  int64_t n;

  __device__ void set(int64_t column, T value) const {
    T* const place = column < n ? first : second;
    if (place) {
      place[column < n ? column : column - n] = value;
    }
  }
};

// The sum of term(row, column) over every gridDim.y-th group of kSumLanes rows, from the blockIdx.y-th on: each such
// sum goes to a row of its own, of `columns` elements.
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
      Sum terms[kSumAhead];  // All are asked for before the first is added.
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

// Into how many groups to split the rows of a matrix that is summed where it lies: about a thousand blocks in all, each
// with rows to sum, and few enough groups for the second kernel.
inline int64_t row_groups(int64_t rows, int64_t n) {
  const int64_t column_blocks = (n + kSumColumns - 1) / kSumColumns;
  const int64_t groups = std::clamp<int64_t>(1024 / std::max<int64_t>(column_blocks, 1), 1, 128);
  return std::clamp<int64_t>((rows + kSumLanes - 1) / kSumLanes, 1, groups);
}

// Launches sum_columns for so many groups of rows. The kernel before it in the stream may let it start early.
template <typename Sum, typename Term, typename T>
cudaError_t launch_sum_columns(
    const Term& term, const Columns<T>& out, int64_t rows, int64_t columns, int64_t groups, cudaStream_t stream) {
  const dim3 blocks((columns + kSumColumns - 1) / kSumColumns, groups), threads(kSumColumns, kSumLanes);
  return launch_dependent(sum_columns<Sum, Term, T>, blocks, threads, stream, term, out, rows, columns);
}
