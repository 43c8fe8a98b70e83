// The part of a row that one thread works on, and goes over more than once.

#pragma once

#include "accumulate.cuh"
#include "vector.cuh"

// The sum of two vectors, each element rounded once.
template <typename T, int N>
__device__ Vector<T, N> plus(const Vector<T, N>& a, const Vector<T, N>& b) {
  Vector<T, N> result;
#pragma unroll
  for (int k = 0; k < N; ++k) {
    result[k] = static_cast<T>(widen(a[k]) + widen(b[k]));
  }
  return result;
}

// Held in registers: at most kAccesses accesses of N elements, such that neighbouring threads read neighbouring memory.
template <typename Team, typename T, int N, int kAccesses>
class Row {
 public:
  // `accesses` of a team without a row is 0.
  __device__ Row(const Team& team, const T* row, int accesses)
      : first_(team.template first_access<kAccesses>()), accesses_(accesses) {
#pragma unroll
    for (int access = 0; access < kAccesses; ++access) {
      const int i = first_ + access * Team::kStep;
      if (i < accesses_) {
        held_[access] = load<N>(row, i);
      }
    }
  }

  // Calls f(i, values) for each i-th group of N elements that this thread holds; f may change the values.
  template <typename F>
  __device__ void each(F f) {
#pragma unroll
    for (int access = 0; access < kAccesses; ++access) {
      const int i = first_ + access * Team::kStep;
      if (i < accesses_) {
        forget_conversions(held_[access]);
        f(i, held_[access]);
      }
    }
  }

  // Adds another row, rounds, and stores what comes out in `sum`.
  __device__ void add(const T* other, T* sum) {
    each([&](int i, Vector<T, N>& values) {
      values = plus(values, load<N>(other, i));
      store(sum, i, values);
    });
  }

 private:
  int first_, accesses_;
  Vector<T, N> held_[kAccesses];
};

// Of a row that is too long to be held: read again each time, mostly from cache.
template <typename Team, typename T, int N>
class Row<Team, T, N, 0> {
 public:
  __device__ Row(const Team& team, const T* row, int64_t accesses)
      : first_(team.rank()), step_(team.size()), accesses_(accesses), row_(row) {}

  template <typename F>
  __device__ void each(F f) {
    for (int64_t i = first_; i < accesses_; i += step_) {
      auto values = load<N>(row_, i);
      f(i, values);
    }
  }

  __device__ void add(const T* other, T* sum) {
    each([&](int64_t i, const Vector<T, N>& values) { store(sum, i, plus(values, load<N>(other, i))); });
    row_ = sum;
  }

 private:
  int64_t first_, step_, accesses_;
  const T* row_;
};
