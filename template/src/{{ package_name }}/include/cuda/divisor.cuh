// Division by a number that the host knows before the launch: a multiplication and a shift. A division by a number that
// only the kernel knows takes some forty dependent instructions.

#pragma once

#include <cstdint>

#ifdef __CUDACC__
#define DIVISOR_FUNCTION __host__ __device__
#else
#define DIVISOR_FUNCTION
#endif

class Divisor {
 public:
  // value >= 1.
  DIVISOR_FUNCTION explicit Divisor(int value = 1) : value_(value) {
    while ((int64_t(1) << shift_) < value) ++shift_;
    multiplier_ = static_cast<uint32_t>((((uint64_t(1) << shift_) - value) << 32) / value + 1);
  }

  // n / value for n >= 0, rounded down: Granlund and Montgomery, Division by Invariant Integers using Multiplication,
  // 1994, figure 4.1.
  DIVISOR_FUNCTION int divide(int n) const {
    const uint32_t high = static_cast<uint32_t>(uint64_t(static_cast<uint32_t>(n)) * multiplier_ >> 32);
    return static_cast<int>((high + static_cast<uint32_t>(n)) >> shift_);
  }

  DIVISOR_FUNCTION int value() const { return value_; }

 private:
  int value_;
  int shift_ = 0;
  uint32_t multiplier_;
};
