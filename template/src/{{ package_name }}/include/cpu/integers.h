// Arithmetic of integers as PyTorch's, for formulas: of the CPU, and of GPUs, which include this as well.
//
// What an integer does not hold wraps around; C++ has no such arithmetic of signed integers. functions.h, or
// cuda/functions.cuh, comes before it, and says what FORMULA is.

#pragma once

#include <cstdint>
#include <type_traits>

namespace integers {

// At least 32 bits: of fewer, C++ would compute with signed ones.
template <typename T>
using Bits = std::conditional_t<sizeof(T) < 4, uint32_t, std::make_unsigned_t<T>>;

// clang-format off
template <typename T> FORMULA T add(T x, T y) { return static_cast<T>(Bits<T>(x) + Bits<T>(y)); }
template <typename T> FORMULA T sub(T x, T y) { return static_cast<T>(Bits<T>(x) - Bits<T>(y)); }
template <typename T> FORMULA T mul(T x, T y) { return static_cast<T>(Bits<T>(x) * Bits<T>(y)); }
template <typename T> FORMULA T neg(T x) { return static_cast<T>(Bits<T>(0) - Bits<T>(x)); }
template <typename T> FORMULA T abs(T x) { return x < 0 ? neg<T>(x) : x; }
template <typename T> FORMULA T sign(T x) { return static_cast<T>((x > 0) - (x < 0)); }
template <typename T> FORMULA T maximum(T x, T y) { return x > y ? x : y; }
template <typename T> FORMULA T minimum(T x, T y) { return x < y ? x : y; }
template <typename T> FORMULA T invert(T x) { return static_cast<T>(~Bits<T>(x)); }
template <typename T> FORMULA T shift_left(T x, int bits) { return static_cast<T>(Bits<T>(x) << bits); }
// clang-format on

// Towards 0. No y is 0, and -1 may not divide the least integer.
template <typename T>
FORMULA T trunc_divide(T x, T y) {
  return y == static_cast<T>(-1) && std::is_signed_v<T> ? neg<T>(x) : static_cast<T>(x / y);
}

// What it leaves, with the sign of x.
template <typename T>
FORMULA T remainder_of_truncated(T x, T y) {
  return sub<T>(x, mul<T>(trunc_divide<T>(x, y), y));
}

// Towards minus infinity.
template <typename T>
FORMULA T floor_divide(T x, T y) {
  const T rest = remainder_of_truncated<T>(x, y);
  return static_cast<T>(trunc_divide<T>(x, y) - (rest != 0 && (rest < 0) != (y < 0)));
}

// What it leaves, with the sign of y.
template <typename T>
FORMULA T remainder(T x, T y) {
  const T rest = remainder_of_truncated<T>(x, y);
  return rest != 0 && (rest < 0) != (y < 0) ? static_cast<T>(rest + y) : rest;
}

}  // namespace integers
