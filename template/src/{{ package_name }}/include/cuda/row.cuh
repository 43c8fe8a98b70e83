// The part of a row that one thread works on, and reads more than once.

#pragma once

#include "accumulate.cuh"
#include "cache_hints.cuh"
#include "vector.cuh"
#include "widen.cuh"

// The sum of two vectors, each element rounded once.
template <typename T, int N>
__device__ Vector<T, N> plus(const Vector<T, N>& a, const Vector<T, N>& b) {
  auto sum = widen(a);
  sum += widen(b);
  return narrow<T>(sum);
}

// Whether a thread has the registers to keep its part of a row in the type that it computes in, so that each element is
// converted once.
template <typename T, int N, int kAccesses>
constexpr bool kFitsWidened = kAccesses * N * sizeof(accumulate_t<T>) <= 128;

// Whether a kernel has a version for full rows, without bounds checks: with more accesses a thread, the loads that are
// then in flight at once would take too many registers.
template <int kAccesses>
constexpr bool kHasFullRows = kAccesses > 0 && kAccesses <= 4;

// Whether a thread has the registers to hold a parameter beside its part of a row.
template <int N, int kAccesses>
constexpr bool kHoldsParameter = N > 1 && kAccesses > 0 && kAccesses <= 4;

// A thread's part of a row, held in registers: at most kAccesses accesses of N elements, where neighbouring threads
// access neighbouring memory. In a full row each thread has all kAccesses, so there are no bounds checks.
template <typename Group, typename T, int N, int kAccesses, bool kFull = false>
class RowFragment {
 public:
  // `accesses`: those of the whole row; 0 where the group has no row.
  __device__ RowFragment(const Group& group, const T* row, int accesses)
      : first_(group.template first_access<kAccesses>()), left_(accesses - first_) {
#pragma unroll
    for (int access = 0; access < kAccesses; ++access) {
      held_[access] = load_evict_last<N>(row, index(access), has(access));
    }
  }

  // The same accesses of a parameter that all rows share, such as a weight: every element is `otherwise` where it is
  // null. Loaded beside the row, it is there once the row is reduced; loaded after that, a thread would wait for memory
  // twice.
  __device__ RowFragment(const RowFragment& row, const T* parameter, float otherwise)
      : first_(row.first_), left_(row.left_) {
    Vector<T, N> all;
#pragma unroll
    for (int k = 0; k < N; ++k) {
      all[k] = static_cast<T>(otherwise);
    }
#pragma unroll
    for (int access = 0; access < kAccesses; ++access) {
      held_[access] = load_evict_last<N>(parameter, index(access), parameter && has(access), all);
    }
  }

  // Calls f(i, values) for each access: `values` are elements N * i to N * i + N - 1 of the row, widened.
  template <typename F>
  __device__ void each(F f) {
#pragma unroll
    for (int access = 0; access < kAccesses; ++access) {
      if constexpr (!kFitsWidened<T, N, kAccesses>) forget_conversions(held_[access]);
      if (has(access)) f(index(access), widen(held_[access]));
    }
  }

  // The same with a parameter's: calls f(i, values, of_parameter).
  template <typename F>
  __device__ void each_with(const RowFragment& parameter, F f) {
#pragma unroll
    for (int access = 0; access < kAccesses; ++access) {
      if constexpr (!kFitsWidened<T, N, kAccesses>) forget_conversions(held_[access]);
      if (has(access)) f(index(access), widen(held_[access]), widen(parameter.held_[access]));
    }
  }

  // Adds another row, rounds to T, and stores the result in `sum` as well.
  __device__ void add(const T* other, T* sum) {
    // Otherwise the compiler keeps an address for each access, and runs out of registers.
    const T* from = other + int64_t(first_) * N;
    T* to = sum + int64_t(first_) * N;
    compute_here(from);
    compute_here(to);
    // In batches of a few loads in flight: all at once would take too many registers.
    constexpr int kBatch = kAccesses < 4 ? kAccesses : 4;
#pragma unroll
    for (int begin = 0; begin < kAccesses; begin += kBatch) {
      Vector<T, N> others[kBatch];
#pragma unroll
      for (int i = 0; i < kBatch; ++i) {
        others[i] = load_evict_last<N>(from, (begin + i) * Group::kStep, has(begin + i));
      }
#pragma unroll
      for (int i = 0; i < kBatch; ++i) {
        held_[begin + i] = plus(held_[begin + i], others[i]);
        if (has(begin + i)) store_evict_last(to, (begin + i) * Group::kStep, held_[begin + i]);
      }
    }
  }

 private:
  __device__ bool has(int access) const { return kFull || access * Group::kStep < left_; }
  __device__ int index(int access) const { return first_ + access * Group::kStep; }

  int first_, left_;  // The thread's first access, and how many there are from it to the row's end.
  Vector<T, N> held_[kAccesses];
};

// Of a row that is too long for registers (kAccesses = 0): read from memory each time, mostly from the L2 cache.
template <typename Group, typename T, int N>
class RowFragment<Group, T, N, 0, false> {
 public:
  __device__ RowFragment(const Group& group, const T* row, int64_t accesses)
      : first_(group.rank()), step_(group.size()), accesses_(accesses), row_(row) {}

  template <typename F>
  __device__ void each(F f) {
    for (int64_t i = first_; i < accesses_; i += step_) {
      f(i, widen(load<N>(row_, i)));
    }
  }

  __device__ void add(const T* other, T* sum) {
    for (int64_t i = first_; i < accesses_; i += step_) {
      store(sum, i, plus(load<N>(row_, i), load<N>(other, i)));
    }
    row_ = sum;
  }

 private:
  int64_t first_, step_, accesses_;
  const T* row_;
};

// The names that these had, for ops that were written with them.
template <typename Group, typename T, int N, int kAccesses, bool kFull = false>
using Row = RowFragment<Group, T, N, kAccesses, kFull>;
template <int kAccesses>
constexpr bool kCanBeWhole = kHasFullRows<kAccesses>;
