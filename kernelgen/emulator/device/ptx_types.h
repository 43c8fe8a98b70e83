// The types of PTX instructions, and numbers of few bits.

#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "rounding.h"

namespace emulator {

enum class Type : uint8_t {
  kNone,
  kPred,
  kB1,
  kU4,
  kS4,
  kB8,
  kB16,
  kB32,
  kB64,
  kB128,
  kU8,
  kU16,
  kU32,
  kU64,
  kS8,
  kS16,
  kS32,
  kS64,
  kU16x2,
  kS16x2,
  kF16,
  kF16x2,
  kBf16,
  kBf16x2,
  kTf32,
  kF32,
  kF64,
  kE4m3,
  kE5m2,
  kE4m3x2,
  kE5m2x2,
};

Type type_of(std::string_view part);
extern const std::array<uint8_t, 32> kBitsOfTypes;
inline int bits_of(Type type) {
  return kBitsOfTypes[size_t(type)];
}
bool is_signed(Type type);
bool is_integer(Type type);

// A format of floating-point numbers of few bits.
struct Format {
  int exponent_bits, fraction_bits;
  bool has_infinity;  // Otherwise only the bits of all ones are NaN.
};
constexpr Format kHalf = {5, 10, true}, kBfloat = {8, 7, true}, kTfloat = {8, 10, true};
constexpr Format kE4m3 = {4, 3, false}, kE5m2 = {5, 2, true};

// What a number beyond the largest becomes: the largest if `saturates`, else infinity or NaN. `ties_away` is for rna.
uint32_t encode(double x, const Format& format, Rounding rounding, bool saturates, bool ties_away = false);
double decode(uint32_t bits, const Format& format);

// By their bits.
const float* half_values();
inline float half_value(uint16_t bits) {
  return half_values()[bits];
}
uint16_t half_bits(double x, Rounding rounding = Rounding::kNearest);
inline float bfloat_value(uint16_t bits) {
  return __builtin_bit_cast(float, uint32_t(bits) << 16);
}
uint16_t bfloat_bits(double x, Rounding rounding = Rounding::kNearest);

// a * b + c, rounded so that another rounding to at most 24 bits is right: to odd. For operands of at most 24 bits.
double multiply_add_to_odd(double a, double b, double c);

// -0 or 0 for a subnormal number.
float flushed(float x);

}  // namespace emulator
