#include "ptx_types.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <vector>

namespace emulator {

namespace {

struct Name {
  std::string_view part;
  Type type;
  int bits;
  char kind;  // Bits, unsigned, signed, float.
};

constexpr Name kNames[] = {
    {"pred", Type::kPred, 1, 'b'},    {"b8", Type::kB8, 8, 'b'},          {"b16", Type::kB16, 16, 'b'},
    {"b32", Type::kB32, 32, 'b'},     {"b64", Type::kB64, 64, 'b'},       {"b128", Type::kB128, 128, 'b'},
    {"u8", Type::kU8, 8, 'u'},        {"u16", Type::kU16, 16, 'u'},       {"u32", Type::kU32, 32, 'u'},
    {"u64", Type::kU64, 64, 'u'},     {"s8", Type::kS8, 8, 's'},          {"s16", Type::kS16, 16, 's'},
    {"s32", Type::kS32, 32, 's'},     {"s64", Type::kS64, 64, 's'},       {"u16x2", Type::kU16x2, 32, 'u'},
    {"s16x2", Type::kS16x2, 32, 's'}, {"f16", Type::kF16, 16, 'f'},       {"f16x2", Type::kF16x2, 32, 'f'},
    {"bf16", Type::kBf16, 16, 'f'},   {"bf16x2", Type::kBf16x2, 32, 'f'}, {"tf32", Type::kTf32, 32, 'f'},
    {"f32", Type::kF32, 32, 'f'},     {"f64", Type::kF64, 64, 'f'},       {"e4m3", Type::kE4m3, 8, 'f'},
    {"b1", Type::kB1, 1, 'b'},        {"u4", Type::kU4, 4, 'u'},          {"s4", Type::kS4, 4, 's'},
    {"e5m2", Type::kE5m2, 8, 'f'},    {"e4m3x2", Type::kE4m3x2, 16, 'f'}, {"e5m2x2", Type::kE5m2x2, 16, 'f'},
};

const Name* name_of(Type type) {
  for (const Name& name : kNames) {
    if (name.type == type) return &name;
  }
  return nullptr;
}

constexpr std::array<uint8_t, 32> bits_by_type() {
  std::array<uint8_t, 32> bits = {};
  for (const Name& name : kNames) bits[size_t(name.type)] = name.bits;
  return bits;
}

}  // namespace

constinit const std::array<uint8_t, 32> kBitsOfTypes = bits_by_type();

Type type_of(std::string_view part) {
  for (const Name& name : kNames) {
    if (name.part == part) return name.type;
  }
  return Type::kNone;
}

bool is_signed(Type type) {
  const Name* name = name_of(type);
  return name && name->kind == 's';
}

bool is_integer(Type type) {
  const Name* name = name_of(type);
  return name && name->kind != 'f';
}

uint32_t encode(double x, const Format& format, Rounding rounding, bool saturates, bool ties_away) {
  const int bits = 1 + format.exponent_bits + format.fraction_bits;
  const uint32_t sign = uint32_t(std::signbit(x)) << (bits - 1), all = (1u << (bits - 1)) - 1;
  const uint32_t infinity = ((1u << format.exponent_bits) - 1) << format.fraction_bits;
  if (x != x) return all;
  const uint32_t largest = format.has_infinity ? infinity - 1 : all - 1;
  const bool is_negative = sign != 0;
  const double magnitude = std::fabs(x);
  if (std::isinf(x)) return sign | (saturates ? largest : format.has_infinity ? infinity : all);
  if (magnitude == 0) return sign;
  const int bias = (1 << (format.exponent_bits - 1)) - 1;
  int exponent;
  std::frexp(magnitude, &exponent);  // magnitude is in [2^(exponent - 1), 2^exponent).
  const int unit = std::max(exponent - 1, 1 - bias) - format.fraction_bits;
  const double scaled = std::ldexp(magnitude, -unit);  // In units of the last place.
  double whole = std::floor(scaled);
  const double rest = scaled - whole;
  bool up = false;
  switch (rounding) {
    case Rounding::kNearest: up = rest > 0.5 || (rest == 0.5 && (ties_away || std::fmod(whole, 2) == 1)); break;
    case Rounding::kZero: break;
    case Rounding::kUp: up = rest > 0 && !is_negative; break;
    case Rounding::kDown: up = rest > 0 && is_negative; break;
  }
  whole += up;
  // Adding the exponent's field to a whole number of units carries a number that rounds up to the next power of two.
  const int64_t field = std::max(exponent - 1, 1 - bias) + bias;
  const int64_t encoded = int64_t(whole) + (std::max<int64_t>(field - 1, 0) << format.fraction_bits);
  if (encoded <= largest) return sign | uint32_t(encoded);
  if (saturates) return sign | largest;
  const bool stays_finite = rounding == Rounding::kZero || (rounding == Rounding::kUp && is_negative) ||
                            (rounding == Rounding::kDown && !is_negative);
  return sign | (stays_finite ? largest : format.has_infinity ? infinity : all);
}

double decode(uint32_t bits, const Format& format) {
  const int width = 1 + format.exponent_bits + format.fraction_bits;
  const int bias = (1 << (format.exponent_bits - 1)) - 1;
  const uint32_t all = (1u << (width - 1)) - 1, magnitude = bits & all;
  const uint32_t fraction = magnitude & ((1u << format.fraction_bits) - 1), field = magnitude >> format.fraction_bits;
  const double sign = bits >> (width - 1) & 1 ? -1 : 1;
  if (!format.has_infinity && magnitude == all) return std::copysign(NAN, sign);
  if (format.has_infinity && field == (1u << format.exponent_bits) - 1) {
    return std::copysign(fraction ? NAN : INFINITY, sign);
  }
  const uint32_t units = field ? fraction | 1u << format.fraction_bits : fraction;
  return sign * std::ldexp(double(units), int(field ? field : 1) - bias - format.fraction_bits);
}

const float* half_values() {
  static const std::vector<float> values = [] {
    std::vector<float> table(1 << 16);
    for (uint32_t i = 0; i < table.size(); ++i) table[i] = float(decode(i, kHalf));
    return table;
  }();
  return values.data();
}

uint16_t half_bits(double x, Rounding rounding) {
  return uint16_t(encode(x, kHalf, rounding, false));
}

uint16_t bfloat_bits(double x, Rounding rounding) {
  return uint16_t(encode(x, kBfloat, rounding, false));
}

double multiply_add_to_odd(double a, double b, double c) {
  const double product = a * b, sum = product + c;  // The product is exact.
  if (!std::isfinite(sum)) return sum;
  const double part = sum - product;
  const double error = (product - (sum - part)) + (c - part);
  if (error == 0 || (std::bit_cast<uint64_t>(sum) & 1)) return sum;
  return std::nextafter(sum, error > 0 ? INFINITY : -INFINITY);
}

float flushed(float x) {
  return std::fpclassify(x) == FP_SUBNORMAL ? std::copysign(0.0f, x) : x;
}

}  // namespace emulator
