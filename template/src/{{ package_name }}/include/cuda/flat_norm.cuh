// The forward of a normalisation of short rows that lie one after the other and are no multiple of 16 bytes. With N
// elements in 16 bytes, N such rows are a period of n whole vectors, of which each holds elements of a row and of the
// next one. A group of threads takes a period at a time: every access is a whole aligned vector, and a thread works on
// the same columns in every period, whose parameters it keeps in registers. The mathematics is the op's; it gives
// functions of a single element.

#pragma once

#include <cuda_runtime_api.h>

#include <algorithm>

#include "accumulate.cuh"
#include "evict_last.cuh"
#include "norm_tensors.cuh"
#include "reduce.cuh"
#include "row_grid.cuh"
#include "row_matrix.h"
#include "tile.cuh"
#include "vector.cuh"
#include "widen.cuh"

constexpr int kFlatThreads = 256;  // The most of a block: its blockDim.y groups of blockDim.x.
constexpr int kFlatBlocks = 3;     // That a multiprocessor has registers for.
constexpr int kFlatAccesses = 2;   // Of a thread.

template <typename T>
class FlatNormRows {
 public:
  using Sum = accumulate_t<T>;
  static constexpr int N = kVectorLength<T>;

  // The dynamic shared memory of a group, in numbers of type Sum.
  __host__ __device__ static constexpr int shared_of_group(int n) { return 2 * n + N; }

  // An element of the thread: its access, and whether it is in the second of the vector's rows.
  struct Place {
    int access;
    bool is_second;
  };

  // A number of each row, as far as the thread has elements of it.
  struct Numbers {
    Sum of_first[kFlatAccesses], of_second[kFlatAccesses];

    __device__ Sum operator[](const Place& place) const {
      return place.is_second ? of_second[place.access] : of_first[place.access];
    }
  };

  __device__ FlatNormRows(const NormTensors<T>& tensors, void* shared)
      : tensors_(tensors),
        n_(static_cast<int>(tensors.n)),
        parts_(static_cast<Sum*>(shared) + threadIdx.y * shared_of_group(n_)),
        numbers_(parts_ + 2 * n_) {
#pragma unroll
    for (int access = 0; access < kFlatAccesses; ++access) {
      const int first = vector(access) * N;
      row_[access] = first / n_;
      const int column = first - row_[access] * n_;
      split_[access] = min(N, n_ - column);
#pragma unroll
      for (int k = 0; k < N; ++k) {
        const int i = column + k < n_ ? column + k : column + k - n_;
        weight_[access][k] = tensors.weight.data ? tensors.weight.data[i] : T(1.0f);
        bias_[access][k] = tensors.bias.data ? tensors.bias.data[i] : T(0.0f);
      }
    }
  }

  // Calls normalise() for each of the group's periods, once it is loaded and the residual added.
  template <typename F>
  __device__ void each_period(const F& normalise) {
    const int64_t step = int64_t(gridDim.x) * blockDim.y;
    for (int64_t period = int64_t(blockIdx.x) * blockDim.y + threadIdx.y; period * N < tensors_.rows; period += step) {
      first_row_ = period * N;
      elements_ = static_cast<int>(min(int64_t(N), tensors_.rows - first_row_)) * n_;
      load(tensors_.input, held_);
      if (tensors_.residual.data) add();
      normalise();
    }
  }

  // The number finish(sum of f(element, place) over the row) of each row, which is also written to `out`.
  template <typename F, typename Finish>
  __device__ Numbers numbers(Sum* out, const F& f, const Finish& finish) {
    each([&](int access) {
      forget_conversions(held_[access]);
      const auto values = widen(held_[access]);
      Vector<Sum, 2> parts{};
#pragma unroll
      for (int k = 0; k < N; ++k) {
        const bool is_second = k >= split_[access];
        const Sum term = f(values[k], Place{access, is_second});
        parts[0] += is_second ? Sum(0) : term;
        parts[1] += is_second ? term : Sum(0);
      }
      if (vector(access) < n_) store(parts_, vector(access), parts);
    });
    synchronise();
    // A row's parts: the second one of the vector in which it begins, unless it begins there, and the first ones of the
    // others.
    const int lanes = 1 << (31 - __clz(min(kWarp, int(blockDim.x) / N)));
    const int row = threadIdx.x / lanes, lane = threadIdx.x % lanes;
    Sum total = 0;
    if (row < N) {
      const int begin = row * n_, end = begin + n_;
      for (int i = begin / N + lane; i * N < end; i += lanes) {
        total += parts_[2 * i + (i * N < begin)];
      }
    }
    for (int distance = lanes / 2; distance > 0; distance /= 2) {
      total += __shfl_xor_sync(0xffffffff, total, distance);
    }
    if (row < N && lane == 0) {
      const Sum number = finish(total);
      numbers_[row] = number;
      if (first_row_ + row < tensors_.rows) out[first_row_ + row] = number;
    }
    synchronise();
    Numbers result;
    each([&](int access) {
      result.of_first[access] = numbers_[min(row_[access], N - 1)];
      result.of_second[access] = numbers_[min(row_[access] + 1, N - 1)];
    });
    return result;
  }

  // Writes f(element, weight, bias, place) to the output.
  template <typename F>
  __device__ void write(const F& f) {
    each([&](int access) {
      forget_conversions(held_[access]);
      forget_conversions(weight_[access]);
      forget_conversions(bias_[access]);
      auto values = widen(held_[access]);
      const auto weight = widen(weight_[access]), bias = widen(bias_[access]);
#pragma unroll
      for (int k = 0; k < N; ++k) {
        values[k] = f(values[k], weight[k], bias[k], Place{access, k >= split_[access]});
      }
      put(tensors_.output, access, narrow<T>(values));
    });
  }

 private:
  using Accesses = Vector<T, N>[kFlatAccesses];

  __device__ int vector(int access) const { return threadIdx.x + access * blockDim.x; }

  template <typename F>
  __device__ static void each(const F& f) {
#pragma unroll
    for (int access = 0; access < kFlatAccesses; ++access) f(access);
  }

  __device__ static void synchronise() { blockDim.x == kWarp ? __syncwarp() : __syncthreads(); }

  // The period's first element.
  template <typename U>
  __device__ U* begin_of(const RowMatrix<U>& matrix) const {
    return matrix.data + first_row_ * n_;
  }

  // Loads the thread's accesses; zeros past the last row.
  __device__ void load(const RowMatrix<const T>& matrix, Accesses& to) const {
    const T* const from = begin_of(matrix);
    each([&](int access) {
      to[access] = load_evict_last<N>(from, vector(access), (vector(access) + 1) * N <= elements_);
    });
    // The last row's last elements, where they fill no vector.
    const int last = elements_ / N;
    if (elements_ % N == 0 || last % blockDim.x != threadIdx.x) return;
    each([&](int access) {
#pragma unroll
      for (int k = 0; k < N; ++k) {
        const int i = last * N + k;
        if (vector(access) == last && i < elements_) to[access][k] = from[i];
      }
    });
  }

  __device__ void put(const RowMatrix<T>& matrix, int access, const Vector<T, N>& values) const {
    T* const to = begin_of(matrix);
    const int first = vector(access) * N;
    if (first + N <= elements_) {
      store_evict_last(to, vector(access), values);
      return;
    }
#pragma unroll
    for (int k = 0; k < N; ++k) {
      if (first + k < elements_) to[first + k] = values[k];
    }
  }

  // Adds the residual, rounds to T, and stores the result in `sum` as well.
  __device__ void add() {
    Accesses others;
    load(tensors_.residual, others);
    each([&](int access) {
      auto sum = widen(held_[access]);
      sum += widen(others[access]);
      held_[access] = narrow<T>(sum);
      put(tensors_.sum, access, held_[access]);
    });
  }

  const NormTensors<T>& tensors_;
  int n_, elements_;  // Elements of the period that there are.
  int64_t first_row_;
  Sum *parts_, *numbers_;
  int row_[kFlatAccesses], split_[kFlatAccesses];  // A vector's first row in the period, and how many elements it has.
  Accesses held_, weight_, bias_;
};

namespace row_norm {

// Whether the kernel above takes such rows.
template <typename T>
bool are_flat(const NormTensors<T>& tensors) {
  constexpr int N = kVectorLength<T>;
  const auto is_flat = [&](const auto& matrix) {
    return !matrix.data || (matrix.stride == tensors.n && matrix.template offset<N>(0) == 0);
  };
  return tensors.n >= N && tensors.n <= kFlatThreads * kFlatAccesses && is_flat(tensors.input) &&
         is_flat(tensors.residual) && is_flat(tensors.output) && is_flat(tensors.sum);
}

// The launch, and the dynamic shared memory of a block.
template <typename T>
Grid flat_grid(const NormTensors<T>& tensors, size_t* shared) {
  constexpr int kGroups = 4;  // Of a warp each.
  const int threads = threads_for(tensors.n, kFlatAccesses), groups = threads == kWarp ? kGroups : 1;
  const int64_t periods = (tensors.rows + kVectorLength<T> - 1) / kVectorLength<T>;
  const int64_t resident = int64_t(attribute(cudaDevAttrMultiProcessorCount)) * (kFlatThreads * kFlatBlocks / (threads * groups));
  *shared = groups * FlatNormRows<T>::shared_of_group(static_cast<int>(tensors.n)) * sizeof(accumulate_t<T>);
  return Grid{dim3(threads, groups), std::min(resident, (periods + groups - 1) / groups)};
}

}  // namespace row_norm
