// The part of a row that one thread works on, and goes over more than once.

#pragma once

#include "accumulate.cuh"
#include "evict_last.cuh"
#include "vector.cuh"
#include "widen.cuh"

// The sum of two vectors, each element rounded once.
template <typename T, int N>
__device__ Vector<T, N> plus(const Vector<T, N>& a, const Vector<T, N>& b) {
  auto sum = widen(a);
  sum += widen(b);
  return narrow<T>(sum);
}

// Whether there are registers enough to keep what a thread holds of a row as what it is computed in, so that no element
// is converted more than once.
template <typename T, int N, int kAccesses>
constexpr bool kFitsWidened = kAccesses * N * sizeof(accumulate_t<T>) <= 128;

// Whether rows can be taken as whole: of more accesses, what else is asked for at once would take too many registers.
template <int kAccesses>
constexpr bool kCanBeWhole = kAccesses > 0 && kAccesses <= 4;

// Held in registers: at most kAccesses accesses of N elements, such that neighbouring threads read neighbouring memory.
// If the row is whole, each thread has all of them, and none has to ask.
template <typename Team, typename T, int N, int kAccesses, bool kWhole = false>
class Row {
 public:
  // `accesses` of a team without a row is 0.
  __device__ Row(const Team& team, const T* row, int accesses)
      : first_(team.template first_access<kAccesses>()), left_(accesses - first_) {
#pragma unroll
    for (int access = 0; access < kAccesses; ++access) {
      held_[access] = load_evict_last<N>(row, place(access), has(access));
    }
  }

  // Calls f(i, values) for each i-th group of N elements that this thread holds.
  template <typename F>
  __device__ void each(F f) {
#pragma unroll
    for (int access = 0; access < kAccesses; ++access) {
      if constexpr (!kFitsWidened<T, N, kAccesses>) forget_conversions(held_[access]);
      if (has(access)) f(place(access), widen(held_[access]));
    }
  }

  // Adds another row, rounds, and stores what comes out in `sum`.
  __device__ void add(const T* other, T* sum) {
    // Else the compiler computes an address for each access, and has too few registers to keep them in.
    const T* from = other + int64_t(first_) * N;
    T* to = sum + int64_t(first_) * N;
    compute_here(from);
    compute_here(to);
    // A few at a time, which are asked for together: all at once would take too many registers as well.
    constexpr int kTogether = kAccesses < 4 ? kAccesses : 4;
#pragma unroll
    for (int begin = 0; begin < kAccesses; begin += kTogether) {
      Vector<T, N> others[kTogether];
#pragma unroll
      for (int i = 0; i < kTogether; ++i) {
        others[i] = load_evict_last<N>(from, (begin + i) * Team::kStep, has(begin + i));
      }
#pragma unroll
      for (int i = 0; i < kTogether; ++i) {
        held_[begin + i] = plus(held_[begin + i], others[i]);
        if (has(begin + i)) store_evict_last(to, (begin + i) * Team::kStep, held_[begin + i]);
      }
    }
  }

 private:
  __device__ bool has(int access) const { return kWhole || access * Team::kStep < left_; }
  __device__ int place(int access) const { return first_ + access * Team::kStep; }

  int first_, left_;  // Accesses from the thread's first one to the row's end.
  Vector<T, N> held_[kAccesses];
};

// Of a row that is too long to be held: read again each time, mostly from cache.
template <typename Team, typename T, int N>
class Row<Team, T, N, 0, false> {
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
