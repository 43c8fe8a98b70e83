// Sums on the CPU that stay accurate however many terms they have.

#pragma once

#include <cstdint>
#include <type_traits>

// The type to compute in for elements of type T: float for 16-bit and 32-bit elements, double for 64-bit ones.
template <typename T>
using accumulate_t = std::conditional_t<std::is_same_v<T, double>, double, float>;

// term(begin) + ... + term(end - 1). The rounding error grows with the logarithm of the number of terms; that of adding
// them one by one grows with the number itself.
template <typename Sum, typename Term>
Sum pairwise_sum(int64_t begin, int64_t end, const Term& term) {
  constexpr int64_t kLanes = 8;  // Independent sums, which the compiler can keep in one vector register.
  constexpr int64_t kLeaf = 16 * kLanes;
  if (end - begin > kLeaf) {
    const int64_t middle = begin + (end - begin) / 2;
    return pairwise_sum<Sum>(begin, middle, term) + pairwise_sum<Sum>(middle, end, term);
  }
  Sum sums[kLanes] = {};
  int64_t i = begin;
  for (; i + kLanes <= end; i += kLanes) {
    for (int64_t lane = 0; lane < kLanes; ++lane) {
      sums[lane] += term(i + lane);
    }
  }
  Sum total = 0;
  for (; i < end; ++i) {
    total += term(i);
  }
  for (const Sum sum : sums) {
    total += sum;
  }
  return total;
}
