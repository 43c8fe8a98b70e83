// Conversions between types and between address spaces.

#include <cmath>

#include "ptx.h"

namespace emulator {

namespace {

// A floating-point number's value. ftz applies to float32 only, and not on its way to float16.
double value_of(const Call& call, Type type, uint64_t bits) {
  switch (type) {
    case Type::kF64: return std::bit_cast<double>(bits);
    case Type::kF32:
    case Type::kTf32: {
      const float x = std::bit_cast<float>(uint32_t(bits));
      return call.instruction.flushes && call.instruction.types[0] != Type::kF16 ? flushed(x) : x;
    }
    case Type::kF16:
    case Type::kF16x2: return half_value(uint16_t(bits));
    case Type::kBf16:
    case Type::kBf16x2: return bfloat_value(uint16_t(bits));
    case Type::kE4m3:
    case Type::kE4m3x2: return decode(uint32_t(bits & 0xff), kE4m3);
    case Type::kE5m2:
    case Type::kE5m2x2: return decode(uint32_t(bits & 0xff), kE5m2);
    default: fail_unknown(call);
  }
}

struct Layout {
  int bits, fraction_bits;
};

Layout layout_of(Type type) {
  switch (type) {
    case Type::kF16: return {16, 10};
    case Type::kBf16: return {16, 7};
    case Type::kF32: return {32, 23};
    default: return {64, 52};
  }
}

uint64_t encoded(const Call& call, Type type, double x) {
  const Rounding rounding = call.instruction.rounding;
  const bool saturates = call.has("satfinite");
  if (call.instruction.saturates) x = x > 0 ? std::min(x, 1.0) : 0;
  if (call.has("relu")) x = x > 0 || x != x ? x : 0;
  switch (type) {
    case Type::kF64: return std::bit_cast<uint64_t>(x);
    case Type::kF32: {
      const float y = canonical(rounded_float(x, rounding));
      return std::bit_cast<uint32_t>(call.instruction.flushes ? flushed(y) : y);
    }
    case Type::kTf32: {
      const uint32_t bits = encode(x, kTfloat, rounding, saturates, call.has("rna"));
      return bits << 13;
    }
    case Type::kF16:
    case Type::kF16x2: return encode(x, kHalf, rounding, saturates);
    case Type::kBf16:
    case Type::kBf16x2: return encode(x, kBfloat, rounding, saturates);
    case Type::kE4m3:
    case Type::kE4m3x2: return encode(x, kE4m3, rounding, saturates);
    case Type::kE5m2:
    case Type::kE5m2x2: return encode(x, kE5m2, rounding, saturates);
    default: fail_unknown(call);
  }
}

bool rounds_to_whole(const Call& call) {
  return call.has("rni") || call.has("rzi") || call.has("rmi") || call.has("rpi");
}

uint64_t extended(uint64_t bits, Type type) {
  switch (bits_of(type)) {
    case 8: return is_signed(type) ? uint64_t(int64_t(int8_t(bits))) : uint8_t(bits);
    case 16: return is_signed(type) ? uint64_t(int64_t(int16_t(bits))) : uint16_t(bits);
    case 32: return is_signed(type) ? uint64_t(int64_t(int32_t(bits))) : uint32_t(bits);
    default: return bits;
  }
}

uint64_t cut(uint64_t value, int bits) {
  return bits >= 64 ? value : value & ((uint64_t(1) << bits) - 1);
}

// To a narrower integer type: the nearest number in its range.
uint64_t saturated(uint64_t value, Type from, Type to) {
  const int bits = bits_of(to);
  const bool is_negative = is_signed(from) && int64_t(value) < 0;
  const uint64_t most = ~uint64_t(0) >> (64 - bits + is_signed(to));
  if (is_negative) {
    if (!is_signed(to)) return 0;
    return int64_t(value) < -int64_t(most) - 1 ? uint64_t(-int64_t(most) - 1) : value;
  }
  return value > most ? most : value;
}

void convert_from_integer(const Call& call, Type to, Type from) {
  const uint64_t value = extended(call.get(1), from);
  if (is_integer(to)) {
    const uint64_t result = call.instruction.saturates ? saturated(value, from, to) : value;
    // A narrow result extends to the register's width.
    return call.set(0, is_signed(to) ? extended(result, to) : cut(result, bits_of(to)));
  }
  const Rounding rounding = call.instruction.rounding;
  const bool negative = is_signed(from);
  if (to == Type::kF32) {
    float result = negative ? rounded_float(int64_t(value), rounding) : rounded_float(value, rounding);
    if (call.instruction.saturates) result = result > 0 ? std::min(result, 1.0f) : 0;
    return call.set(0, std::bit_cast<uint32_t>(result));
  }
  if (to == Type::kF64) {
    double result = negative ? rounded_double(int64_t(value), rounding) : rounded_double(value, rounding);
    if (call.instruction.saturates) result = result > 0 ? std::min(result, 1.0) : 0;
    return call.set(0, std::bit_cast<uint64_t>(result));
  }
  // What a double does not hold keeps a bit that says so, for the second rounding.
  double exact = negative ? rounded_double(int64_t(value), Rounding::kZero) : rounded_double(value, Rounding::kZero);
  const bool is_inexact = negative ? int64_t(exact) != int64_t(value) : uint64_t(exact) != value;
  if (is_inexact) exact = std::bit_cast<double>(std::bit_cast<uint64_t>(exact) | 1);
  call.set(0, encoded(call, to, exact));
}

void convert_to_integer(const Call& call, Type to, Type from) {
  const double x = value_of(call, from, call.get(1));
  const int64_t result = rounded_integer(x, bits_of(to), is_signed(to), from == Type::kF64, call.instruction.rounding);
  call.set(0, cut(uint64_t(result), std::max(bits_of(to), 32)));
}

// Two numbers to a pair; the first is the upper one.
void convert_pair(const Call& call, Type to, Type from) {
  const int bits = bits_of(to) / 2;
  uint64_t high, low;
  if (call.operands() >= 3) {
    high = call.get(1), low = call.get(2);
  } else {
    low = call.get(1), high = low >> (bits_of(from) / 2);
  }
  const uint64_t upper = encoded(call, to, value_of(call, from, high));
  call.set(0, upper << bits | encoded(call, to, value_of(call, from, low)));
}

// What an H100 makes of NaN; PTX leaves the bits open. Where a type has 64 bits, and from bfloat16, sign and payload
// stay; elsewhere every NaN becomes the same.
uint64_t converted_nan(const Call& call, Type to, Type from, uint64_t bits) {
  if (to == Type::kTf32 && call.has("rna")) return bits & 0xffffe000;
  if (from == Type::kBf16 && to == Type::kF32) return bits << 16;
  if (from != Type::kF64 && to != Type::kF64) return encoded(call, to, NAN);
  if (from == Type::kF32 && call.instruction.flushes) bits = 0x7fffffff;
  const Layout source = layout_of(from), target = layout_of(to);
  const uint64_t sign = bits >> (source.bits - 1) & 1, payload = bits << (64 - source.fraction_bits);
  const uint64_t all_ones = (uint64_t(1) << (target.bits - 1 - target.fraction_bits)) - 1;
  const uint64_t fraction = (payload | uint64_t(1) << 63) >> (64 - target.fraction_bits);
  return sign << (target.bits - 1) | all_ones << target.fraction_bits | fraction;
}

bool is_pair(Type type) {
  return type == Type::kF16x2 || type == Type::kBf16x2 || type == Type::kE4m3x2 || type == Type::kE5m2x2;
}

}  // namespace

void convert(const Call& call) {
  const auto& types = call.instruction.types;
  const Type to = types[0], from = types[1];
  if (is_pair(to)) return convert_pair(call, to, from);
  if (is_integer(from)) return convert_from_integer(call, to, from);
  if (is_integer(to)) return convert_to_integer(call, to, from);
  double x = value_of(call, from, call.get(1));
  if (x != x && !call.instruction.saturates) return call.set(0, converted_nan(call, to, from, call.get(1)));
  if (rounds_to_whole(call)) x = rounded_whole(x, call.instruction.rounding);
  call.set(0, encoded(call, to, x));
}

// cvt.pack.sat.type.s32{.b32} d, a, b{, c}: b lies lowest, then a, then the lower half of c.
void convert_packed(const Call& call) {
  const Type to = call.instruction.types[0];
  const int bits = bits_of(to);
  const auto packed = [&](size_t operand) {
    return uint32_t(cut(saturated(extended(call.get(operand), Type::kS32), Type::kS32, to), bits));
  };
  const uint32_t pair = packed(1) << bits | packed(2);
  call.set(0, bits == 16 ? pair : uint32_t(call.get(3)) << 16 | pair);
}

// ---- Address spaces -------------------------------------------------------------------------------------------

void convert_address(const Call& call) {
  const bool to_space = call.has("to");
  const uint64_t address = call.get(1);
  if (!call.has("shared") && !call.has("shared::cta") && !call.has("shared::cluster")) return call.set(0, address);
  if (to_space) return call.set(0, address_in_window(reinterpret_cast<const void*>(address)));
  call.set(0, reinterpret_cast<uint64_t>(pointer_from_window(address)));
}

void is_space(const Call& call) {
  const void* const pointer = call.pointer<void>(1);
  bool result = false;
  if (call.has("shared::cluster")) {
    result = is_in_shared(pointer, true);
  } else if (call.has("shared") || call.has("shared::cta")) {
    result = is_in_shared(pointer, false);
  } else if (call.has("local")) {
    result = is_on_stack(pointer);
  } else if (call.has("global")) {
    result = __isGlobal(pointer);
  }
  call.set(0, result);
}

}  // namespace emulator
