// Sums on the CPU that stay accurate however many terms they have.

#pragma once

#include <cstdint>
#include <type_traits>

// The type to compute in for elements of type T: float for 16-bit and 32-bit elements, double for 64-bit ones.
template <typename T>
using accumulate_t = std::conditional_t<std::is_same_v<T, double>, double, float>;

// Several sums at once: term(i, added) sets added[k] to term i of sum k, for i from `begin` to `end` - 1. The rounding
// error grows with the logarithm of the number of terms; that of adding them one by one grows with the number itself.
// Without recursion, so that all of it can be inlined.
template <typename Sum, int kSums, typename Term>
void pairwise_sums(int64_t begin, int64_t end, const Term& term, Sum (&totals)[kSums]) {
  constexpr int64_t kLanes = 16;  // Independent sums, which the compiler can keep in vector registers.
  constexpr int64_t kLeaf = 16 * kLanes;
  // Sums of 1, 2, 4, ... leaves, as a binary counter has them: those of the bits of `leaves` are in use.
  Sum pending[48][kSums];
  uint64_t leaves = 0;
  for (Sum& total : totals) total = 0;
  for (int64_t first = begin; first < end; first += kLeaf) {
    const int64_t last = first + kLeaf < end ? first + kLeaf : end;
    Sum sums[kSums][kLanes] = {};
    int64_t i = first;
    for (; i + kLanes <= last; i += kLanes) {
      for (int64_t lane = 0; lane < kLanes; ++lane) {
        Sum added[kSums];
        term(i + lane, added);
        for (int k = 0; k < kSums; ++k) sums[k][lane] += added[k];
      }
    }
    for (; i < last; ++i) {
      Sum added[kSums];
      term(i, added);
      for (int k = 0; k < kSums; ++k) totals[k] += added[k];
    }
    for (int64_t half = kLanes / 2; half > 0; half /= 2) {
      for (int k = 0; k < kSums; ++k) {
        for (int64_t lane = 0; lane < half; ++lane) sums[k][lane] += sums[k][lane + half];
      }
    }
    int level = 0;
    for (uint64_t bits = leaves++; bits & 1; bits >>= 1, ++level) {
      for (int k = 0; k < kSums; ++k) sums[k][0] += pending[level][k];
    }
    for (int k = 0; k < kSums; ++k) pending[level][k] = sums[k][0];
  }
  for (int level = 0; leaves >> level; ++level) {
    if (!(leaves >> level & 1)) continue;
    for (int k = 0; k < kSums; ++k) totals[k] += pending[level][k];
  }
}

// term(begin) + ... + term(end - 1).
template <typename Sum, typename Term>
Sum pairwise_sum(int64_t begin, int64_t end, const Term& term) {
  Sum total[1];
  pairwise_sums(begin, end, [&](int64_t i, Sum(&added)[1]) { added[0] = term(i); }, total);
  return total[0];
}
