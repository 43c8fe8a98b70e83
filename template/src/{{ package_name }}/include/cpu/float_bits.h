// float32 by its bits, and choices without branches: of a loop with several branches compilers make no vector
// instructions.

#pragma once

#include <cstdint>
#include <cstring>

inline int32_t bits_of(float x) {
  int32_t bits;
  std::memcpy(&bits, &x, sizeof(bits));
  return bits;
}

inline float float_of(int32_t bits) {
  float x;
  std::memcpy(&x, &bits, sizeof(x));
  return x;
}

// x where the condition holds, else y. Both are computed. Conditions are joined by & and |, since && and || branch.
inline float choose(bool condition, float x, float y) {
  const int32_t mask = -static_cast<int32_t>(condition);
  return float_of((bits_of(x) & mask) | (bits_of(y) & ~mask));
}

// 2^k for -127 < k < 128.
inline float power_of_2(int32_t k) {
  return float_of(static_cast<int32_t>((static_cast<uint32_t>(k) + 127) << 23));
}
