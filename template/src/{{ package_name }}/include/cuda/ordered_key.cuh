// Floating-point numbers as unsigned integers in the same order, for atomicMax, radix sorts and argmax by one atomic.
//
// -0 comes right before 0, and every NaN after all numbers, as PyTorch sorts them.

#pragma once

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "float_types.cuh"

// The unsigned integer of an element's size.
template <typename T>
using ordered_key_t =
    std::conditional_t<sizeof(T) == 8, uint64_t, std::conditional_t<sizeof(T) == 4, uint32_t, uint16_t>>;

template <typename T>
__device__ ordered_key_t<T> ordered_key(T value) {
  using Key = ordered_key_t<T>;
  constexpr Key kSign = Key(1) << (8 * sizeof(T) - 1);
  if (value != value) return Key(-1);
  Key bits;
  memcpy(&bits, &value, sizeof(T));
  return bits & kSign ? Key(~bits) : Key(bits | kSign);
}

// The inverse: NaN of the largest key.
template <typename T>
__device__ T of_ordered_key(ordered_key_t<T> key) {
  using Key = ordered_key_t<T>;
  constexpr Key kSign = Key(1) << (8 * sizeof(T) - 1);
  const Key bits = key & kSign ? Key(key ^ kSign) : Key(~key);
  T value;
  memcpy(&value, &bits, sizeof(T));
  return value;
}

// A number and its place in one key: the largest number has the largest key, and of equal numbers the first place. So
// atomicMax finds an argmax over all blocks, from 0, which is no number's key.
__device__ inline unsigned long long ranked_key(float value, uint32_t place) {
  return static_cast<unsigned long long>(ordered_key(value)) << 32 | (0xffffffffu - place);
}

__device__ inline float value_of(unsigned long long ranked) {
  return of_ordered_key<float>(static_cast<uint32_t>(ranked >> 32));
}

__device__ inline uint32_t place_of(unsigned long long ranked) {
  return 0xffffffffu - static_cast<uint32_t>(ranked);
}
