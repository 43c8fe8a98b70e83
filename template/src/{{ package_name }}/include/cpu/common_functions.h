// Functions of numbers that are the same on CPUs and GPUs: for functions.h and functions.cuh.

#pragma once

#include <cmath>
#include <limits>

#ifdef __CUDACC__
// An object is compiled for the elements INSTANCE_T, and has functions of its own for them.
#define FORMULA static __device__ __forceinline__
#else
#define FORMULA inline
#endif

namespace math {

template <typename Number>
constexpr Number kInfinity = std::numeric_limits<Number>::infinity();
template <typename Number>
constexpr Number kEpsilon = std::numeric_limits<Number>::epsilon();
template <typename Number>
constexpr Number kNaN = std::numeric_limits<Number>::quiet_NaN();

// x * y / y: x, but NaN where y is 0, infinite or NaN.
template <typename Number>
FORMULA Number cancelled(Number x, Number y) {
  return y == 0 ? kNaN<Number> : x + (y - y);
}

// The mean of a row by an estimate of it, and the mean of what is centred there. An infinite one stays so.
template <typename Number>
FORMULA Number corrected_mean(Number estimate, Number correction) {
  return std::fabs(estimate) < kInfinity<Number> ? estimate + correction : estimate;
}

// A sum of terms with a factor that is centred at an estimate of a mean, as if at the mean: `correction` is what the
// estimate lacks, `others` the sum of the terms without that factor. An infinite sum stays so.
template <typename Number>
FORMULA Number corrected_sum(Number sum, Number correction, Number others) {
  return std::fabs(sum) < kInfinity<Number> ? sum - correction * others : sum;
}

// The same of squares of what is centred. Rounding would leave less than 0 of equal numbers.
template <typename Number>
FORMULA Number corrected_squares(Number sum, Number correction, Number others) {
  const Number corrected = corrected_sum(sum, correction, others);
  return corrected < 0 ? Number(0) : corrected;
}

}  // namespace math
