// Arithmetic that rounds in a direction, and gives the NaNs that a GPU gives.

#pragma once

#include <bit>
#include <cstdint>

namespace emulator {

enum class Rounding { kNearest, kZero, kUp, kDown };

// rounding.cpp has these for float and double.
template <typename T>
T rounded_add(T a, T b, Rounding);
template <typename T>
T rounded_subtract(T a, T b, Rounding);
template <typename T>
T rounded_multiply(T a, T b, Rounding);
template <typename T>
T rounded_multiply_add(T a, T b, T c, Rounding);
template <typename T>
T rounded_divide(T a, T b, Rounding);
template <typename T>
T rounded_root(T x, Rounding);

// In single precision, a NaN that a GPU computes always has the same bits.
inline float canonical(float x) {
  return x == x ? x : std::bit_cast<float>(0x7fffffffu);
}
// In double precision, it keeps an operand's sign and payload.
double quieted(double x);

float rounded_float(double x, Rounding);
float rounded_float(int64_t x, Rounding);
float rounded_float(uint64_t x, Rounding);
double rounded_double(int64_t x, Rounding);
double rounded_double(uint64_t x, Rounding);
double rounded_whole(double x, Rounding);

// To an integer of so many bits. What lies outside its range becomes the nearest integer in it; NaN becomes 0, or the
// integer with only the highest bit set where source or target has 64 bits.
int64_t rounded_integer(double x, int bits, bool is_signed, bool from_double, Rounding);

}  // namespace emulator
