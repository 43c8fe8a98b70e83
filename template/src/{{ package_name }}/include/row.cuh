// The part of a row that one thread works on, and goes over more than once.

#pragma once

#include <type_traits>

#include "accumulate.cuh"
#include "vector.cuh"
#include "widen.cuh"

// The sum of two vectors, each element rounded once.
template <typename T, int N>
__device__ Vector<T, N> plus(const Vector<T, N>& a, const Vector<T, N>& b) {
  auto sum = widen(a);
  sum += widen(b);
  return narrow<T>(sum);
}

// Held in registers: at most kAccesses accesses of N elements, such that neighbouring threads read neighbouring memory.
template <typename Team, typename T, int N, int kAccesses>
class Row {
  using Number = accumulate_t<T>;

 public:
  // `accesses` of a team without a row is 0.
  __device__ Row(const Team& team, const T* row, int accesses)
      : first_(team.template first_access<kAccesses>()), left_(accesses - first_) {
    if constexpr (kWide) {
      Vector<T, N> values[kAccesses];  // All are asked for before the first is used.
      each_access([&](int access, int i) { values[access] = load<N>(row, i); });
      each_access([&](int access, int) { held_[access] = widen(values[access]); });
    } else {
      each_access([&](int access, int i) { held_[access] = load<N>(row, i); });
    }
  }

  // Calls f(i, values) for each i-th group of N elements that this thread holds.
  template <typename F>
  __device__ void each(F f) {
    each_access([&](int access, int i) {
      if constexpr (!kWide) forget_conversions(held_[access]);
      f(i, widen(held_[access]));
    });
  }

  // Adds another row, rounds, and stores what comes out in `sum`.
  __device__ void add(const T* other, T* sum) {
    // Else the compiler computes an address for each access, and has too few registers to keep them in.
    const T* from = other + int64_t(first_) * N;
    T* to = sum + int64_t(first_) * N;
    compute_here(from);
    compute_here(to);
    each_access([&](int access, int) {
      auto total = widen(held_[access]);
      total += widen(load<N>(from, access * Team::kStep));
      const auto rounded = narrow<T>(total);
      store(to, access * Team::kStep, rounded);
      if constexpr (kWide) {
        held_[access] = widen(rounded);
      } else {
        held_[access] = rounded;
      }
    });
  }

 private:
  // Whether there are registers enough to hold the elements as what they are computed in, so that none is converted
  // more than once.
  static constexpr bool kWide = kAccesses * N * sizeof(Number) <= 128;
  using Held = std::conditional_t<kWide, Number, T>;

  template <typename F>
  __device__ void each_access(F f) {
#pragma unroll
    for (int access = 0; access < kAccesses; ++access) {
      const int after = access * Team::kStep;
      if (after < left_) f(access, first_ + after);
    }
  }

  int first_, left_;  // Accesses from the thread's first one to the row's end.
  Vector<Held, N> held_[kAccesses];
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
