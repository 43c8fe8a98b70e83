// Short rows of 16-bit elements that lie one after the other and are no multiple of 16 bytes. With N elements in 16
// bytes, N such rows are a period of n whole vectors, of which each holds elements of a row and of the next one. A
// group of threads takes a period at a time: every access is a whole aligned vector, and a thread works on the same
// columns in every period. Wider elements are read faster one at a time, by neighbouring threads.

#pragma once

#include <cuda_runtime_api.h>

#include <algorithm>

#include "accumulate.cuh"
#include "cache_hints.cuh"
#include "reduce.cuh"
#include "registers.cuh"
#include "row_grid.cuh"
#include "row_matrix.h"
#include "tile.cuh"
#include "vector.cuh"

constexpr int kFlatThreads = 256;  // The most of a block: its blockDim.y groups of blockDim.x.
constexpr int kFlatAccesses = 2;   // Of a thread.

template <typename T>
constexpr bool kCanBeFlat = sizeof(T) == 2;

// Calls f(access) for each of a thread's accesses.
template <typename F>
__device__ void each_flat_access(const F& f) {
#pragma unroll
  for (int access = 0; access < kFlatAccesses; ++access) f(access);
}

// A thread's part of the group's periods: where its elements are, and the sums over rows, kSums of each.
template <typename T, int kSums>
class FlatRows {
 public:
  using Sum = accumulate_t<T>;
  using Sums = Vector<Sum, kSums>;
  static constexpr int N = kVectorLength<T>;
  using Accesses = Vector<T, N>[kFlatAccesses];

  // The dynamic shared memory of a group, in bytes.
  __host__ __device__ static size_t shared_of_group(int64_t n) { return (2 * n + N) * sizeof(Sums); }

  __device__ FlatRows(int64_t rows, int64_t n, void* shared)
      : rows_(rows),
        n_(static_cast<int>(n)),
        parts_(static_cast<Sums*>(shared) + threadIdx.y * (2 * n_ + N)),
        totals_(parts_ + 2 * n_) {
    each_flat_access([&](int access) {
      const int first = vector(access) * N;
      row_[access] = first / n_;
      split_[access] = min(N, (row_[access] + 1) * n_ - first);
    });
  }

  // Calls f(period) for each of the group's periods, of which the last may be past the last row. All groups of a block
  // take as many turns.
  template <typename F>
  __device__ void each_period(const F& f) const {
    for (int64_t first = int64_t(blockIdx.x) * blockDim.y; first * N < rows_; first += step()) f(first + threadIdx.y);
  }

  // Makes the compiler compute what follows from the places of accesses again, such as which elements are further ones.
  __device__ void forget_places() {
    each_flat_access([&](int access) { compute_again_from(row_[access], split_[access]); });
  }

  // From one of the group's periods to its next.
  __device__ int64_t step() const { return int64_t(gridDim.x) * blockDim.y; }

  // The elements of a period that there are.
  __device__ int elements(int64_t period) const {
    return static_cast<int>(max(int64_t(0), min(int64_t(N), rows_ - period * N))) * n_;
  }

  // The row of an access' first elements in the period, or that of its further ones.
  __device__ int row(int access, bool further) const { return min(row_[access] + further, N - 1); }
  __device__ bool is_further(int access, int k) const { return k >= split_[access]; }
  __device__ int column(int access, int k) const {
    const int i = vector(access) * N + k - row_[access] * n_;
    return i < n_ ? i : i - n_;
  }
  __device__ int vector(int access) const { return threadIdx.x + access * blockDim.x; }
  __device__ bool has(int access) const { return vector(access) < n_; }

  // Calls f(access, from) for the thread's accesses of a period that are whole vectors, and g(access, values) for those
  // that reach past the last row.
  template <typename F, typename G>
  __device__ void visit(const RowMatrix<const T>& matrix, int64_t period, const F& f, const G& g) const {
    const T* const from = matrix.data + period * N * n_;
    const int elements = this->elements(period), whole = elements / N;
    each_flat_access([&](int access) {
      if (vector(access) < whole) f(access, reinterpret_cast<const Vector<T, N>*>(from) + vector(access));
    });
    if (whole == n_) return;
    each_flat_access([&](int access) {
      if (!has(access) || vector(access) < whole) return;
      Vector<T, N> values{};
#pragma unroll
      for (int k = 0; k < N; ++k) {
        const int i = vector(access) * N + k;
        if (i < elements) values[k] = from[i];
      }
      g(access, values);
    });
  }

  // Loads the thread's accesses of a period; zeros past the last row.
  __device__ void load(const RowMatrix<const T>& matrix, int64_t period, Accesses& to) const {
    const int whole = elements(period) / N;
    const T* const from = matrix.data + period * N * n_;
    // Predicates, not branches: all loads are in flight at once.
    each_flat_access(
        [&](int access) { to[access] = load_evict_last<N>(from, vector(access), vector(access) < whole); });
    if (whole == n_) return;
    visit(matrix, period, [](int, auto) {}, [&](int access, const Vector<T, N>& values) { to[access] = values; });
  }

  __device__ void put(const RowMatrix<T>& matrix, int64_t period, int access, const Vector<T, N>& values) const {
    T* const to = matrix.data + period * N * n_;
    const int first = vector(access) * N, elements = this->elements(period);
    if (first + N <= elements) {
      store_evict_last(to, vector(access), values);
      return;
    }
#pragma unroll
    for (int k = 0; k < N; ++k) {
      if (first + k < elements) to[first + k] = values[k];
    }
  }

  // Leaves what an access adds to the sums of its rows.
  __device__ void leave(int access, const Sums& first, const Sums& further) {
    if (!has(access)) return;
    parts_[2 * vector(access)] = first;
    parts_[2 * vector(access) + 1] = further;
  }

  // Calls f(row of the period, sums) by a thread for each row, once all accesses have left theirs. What f returns is
  // `total` for all threads then.
  template <typename F>
  __device__ void add_up(const F& f) {
    synchronise();
    // A row's parts: the further elements of the vector in which it begins, unless it begins that, and the first ones
    // of the others.
    const int lanes = 1 << (31 - __clz(min(kWarp, int(blockDim.x) / N)));
    const int row = threadIdx.x / lanes, lane = threadIdx.x % lanes;
    Sums sums{};
    if (row < N) {
      const int begin = row * n_, end = begin + n_;
      for (int i = begin / N + lane; i * N < end; i += lanes) {
        sums += parts_[2 * i + (i * N < begin)];
      }
    }
    for (int distance = lanes / 2; distance > 0; distance /= 2) {
#pragma unroll
      for (int s = 0; s < kSums; ++s) sums[s] += __shfl_xor_sync(0xffffffff, sums[s], distance);
    }
    if (row < N && lane == 0) totals_[row] = f(row, sums);
    synchronise();
  }

  __device__ Sums total(int access, bool further) const { return totals_[row(access, further)]; }

  __device__ static void synchronise() { blockDim.x == kWarp ? __syncwarp() : __syncthreads(); }

 private:
  int64_t rows_;
  int n_;
  Sums *parts_, *totals_;
  int row_[kFlatAccesses], split_[kFlatAccesses];  // A vector's first row in the period, and how many elements it has.
};

namespace row_norm {

// Whether all matrices, of rows of n elements, have kernels for such rows.
template <typename T, typename... Matrices>
bool are_flat(int64_t n, const Matrices&... matrices) {
  constexpr int N = kVectorLength<T>;
  const auto is_flat = [&](const auto& matrix) {
    return !matrix.data || (matrix.stride == n && matrix.template offset<N>(0) == 0);
  };
  return N <= n && n <= kFlatThreads * kFlatAccesses && (is_flat(matrices) && ...);
}

// Blocks of up to `most` threads, or of one group; as many as are resident at once with so many threads of a
// multiprocessor, or fewer for few rows.
template <typename T>
Grid flat_grid(int64_t rows, int64_t n, int most, int resident_threads) {
  const int threads = threads_for(n, kFlatAccesses);
  const int64_t periods = (rows + kVectorLength<T> - 1) / kVectorLength<T>;
  const int64_t multiprocessors = attribute(cudaDevAttrMultiProcessorCount);
  const int64_t groups = std::clamp<int64_t>(periods / multiprocessors, 1, std::max(1, most / threads));
  const int64_t resident = multiprocessors * (resident_threads / (threads * groups));
  const dim3 block(threads, static_cast<unsigned>(groups));
  return Grid{block, std::min(resident, (periods + groups - 1) / groups)};
}

}  // namespace row_norm
