// Sums on the CPU that stay accurate however many terms they have.

#pragma once

#include <cstdint>
#include <type_traits>

// The type to compute in for elements of type T: float for 16-bit and 32-bit elements, double for 64-bit ones.
template <typename T>
using accumulate_t = std::conditional_t<std::is_same_v<T, double>, double, float>;

// term(begin) + ... + term(end - 1). The rounding error grows with the logarithm of the number of terms; that of adding
// them one by one grows with the number itself. Without recursion, so that all of it can be inlined.
template <typename Sum, typename Term>
Sum pairwise_sum(int64_t begin, int64_t end, const Term& term) {
  constexpr int64_t kLanes = 16;  // Independent sums, which the compiler can keep in vector registers.
  constexpr int64_t kLeaf = 16 * kLanes;
  // Sums of 1, 2, 4, ... leaves, as a binary counter has them: those of the bits of `leaves` are in use.
  Sum pending[48];
  uint64_t leaves = 0;
  Sum rest = 0;
  for (int64_t first = begin; first < end; first += kLeaf) {
    const int64_t last = first + kLeaf < end ? first + kLeaf : end;
    Sum sums[kLanes] = {};
    int64_t i = first;
    for (; i + kLanes <= last; i += kLanes) {
      for (int64_t lane = 0; lane < kLanes; ++lane) {
        sums[lane] += term(i + lane);
      }
    }
    for (; i < last; ++i) rest += term(i);
    for (int64_t half = kLanes / 2; half > 0; half /= 2) {
      for (int64_t lane = 0; lane < half; ++lane) sums[lane] += sums[lane + half];
    }
    Sum total = sums[0];
    int level = 0;
    for (uint64_t bits = leaves++; bits & 1; bits >>= 1) total += pending[level++];
    pending[level] = total;
  }
  for (int level = 0; leaves >> level; ++level) {
    if (leaves >> level & 1) rest += pending[level];
  }
  return rest;
}
