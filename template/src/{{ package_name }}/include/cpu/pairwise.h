// Sums on the CPU that stay accurate however many terms they have.

#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "clones.h"

// The type to compute in for elements of type T: float for 16-bit and 32-bit elements, double for 64-bit ones.
template <typename T>
using accumulate_t = std::conditional_t<std::is_same_v<T, double>, double, float>;

// join(...) of so many numbers, by halves: of a known length, so that compilers make vector instructions of each.
template <int64_t kLanes, typename Number, typename Join>
Number join_lanes(Number* lanes, const Join& join) {
  if constexpr (kLanes == 1) {
    return lanes[0];
  } else {
    CPU_ROLLED
    for (int64_t lane = 0; lane < kLanes / 2; ++lane) lanes[lane] = join(lanes[lane], lanes[lane + kLanes / 2]);
    return join_lanes<kLanes / 2>(lanes, join);
  }
}

// Several sums at once, of leaves of terms. The rounding error grows with the logarithm of the number of terms; that of
// adding them one by one grows with the number itself. Without recursion, so that all of it can be inlined.
template <typename Sum, int kSums>
class PairwiseSums {
 public:
  // Independent sums, which the compiler keeps in several vector registers: the next addition does not wait for the
  // last. They are added to one another at the very end.
  static constexpr int64_t kLanes = 32;
  static constexpr int64_t kLeaf = 8 * kLanes;

  // Adds `count` terms, kLeaf of them or, for the last time, fewer: term(i, added) sets added[k] to term i of sum k.
  template <typename Term>
  void add(int64_t count, const Term& term) {
    Sum sums[kSums][kLanes] = {};
    int64_t i = 0;
    CPU_ROLLED
    for (; i + kLanes <= count; i += kLanes) {
      for (int64_t lane = 0; lane < kLanes; ++lane) {
        Sum added[kSums];
        term(i + lane, added);
        for (int k = 0; k < kSums; ++k) sums[k][lane] += added[k];
      }
    }
    if (i < count) {
      Sum rest[kSums][kLanes] = {};
      CPU_INDEPENDENT
      for (int64_t lane = 0; lane < count - i; ++lane) {
        Sum added[kSums];
        term(i + lane, added);
        for (int k = 0; k < kSums; ++k) rest[k][lane] = added[k];
      }
      add(rest, sums);
    }
    int level = 0;
    for (uint64_t bits = leaves_++; bits & 1; bits >>= 1, ++level) add(pending_[level], sums);
    for (int k = 0; k < kSums; ++k) std::copy(sums[k], sums[k] + kLanes, pending_[level][k]);
  }

  Sum total(int k) const {
    Sum lanes[kLanes] = {};
    for (int level = 0; leaves_ >> level; ++level) {
      if (!(leaves_ >> level & 1)) continue;
      for (int64_t lane = 0; lane < kLanes; ++lane) lanes[lane] += pending_[level][k][lane];
    }
    return join_lanes<kLanes>(lanes, [](Sum left, Sum right) { return left + right; });
  }

 private:
  static void add(const Sum (&added)[kSums][kLanes], Sum (&sums)[kSums][kLanes]) {
    for (int k = 0; k < kSums; ++k) {
      for (int64_t lane = 0; lane < kLanes; ++lane) sums[k][lane] += added[k][lane];
    }
  }

  // Sums of 1, 2, 4, ... leaves, as a binary counter has them: those of the bits of `leaves_` are in use.
  Sum pending_[48][kSums][kLanes];
  uint64_t leaves_ = 0;
};

// term(begin) + ... + term(end - 1).
template <typename Sum, typename Term>
Sum pairwise_sum(int64_t begin, int64_t end, const Term& term) {
  using Sums = PairwiseSums<Sum, 1>;
  Sums sums;
  for (int64_t first = begin; first < end; first += Sums::kLeaf) {
    const int64_t count = end - first < Sums::kLeaf ? end - first : Sums::kLeaf;
    sums.add(count, [&](int64_t i, Sum(&added)[1]) { added[0] = term(first + i); });
  }
  return sums.total(0);
}
