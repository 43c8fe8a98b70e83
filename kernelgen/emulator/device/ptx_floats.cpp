// Arithmetic on floating-point numbers. A NaN that an instruction makes is the one that GPUs make.

#include <cfloat>
#include <cmath>

#include "ptx.h"

namespace emulator {

namespace {

constexpr uint64_t kNan64 = 0xfff8000000000000;

bool is_pair(Type type) {
  return type == Type::kF16x2 || type == Type::kBf16x2;
}

bool is_bfloat(Type type) {
  return type == Type::kBf16 || type == Type::kBf16x2;
}

float float_operand(const Call& call, size_t operand) {
  const float x = call.get_float(operand);
  return call.instruction.flushes ? flushed(x) : x;
}

// With ftz, what is tiny before it is rounded becomes 0, though it may round to a normal number.
float flushed_early(const Call& call, float result, float toward_zero) {
  const bool is_tiny = std::fabs(result) == FLT_MIN && std::fabs(toward_zero) < FLT_MIN;
  return call.instruction.flushes && is_tiny ? std::copysign(0.0f, result) : result;
}

void set_float(const Call& call, float x) {
  if (call.instruction.flushes) x = flushed(x);
  if (call.instruction.saturates) x = x > 0 ? std::min(x, 1.0f) : 0;
  if (call.has("relu") && x <= 0) x = 0;
  call.set_float(0, canonical(x));
}

// A NaN keeps its payload.
void set_double(const Call& call, double x) {
  call.set(0, std::bit_cast<uint64_t>(x));
}

double narrow_value(const Call& call, uint16_t bits) {
  if (is_bfloat(call.instruction.type)) return bfloat_value(bits);
  if (call.instruction.flushes && !(bits & 0x7c00)) return bits & 0x8000 ? -0.0 : 0.0;
  return half_value(bits);
}

uint16_t narrow_bits(const Call& call, double x) {
  if (call.instruction.saturates) x = x > 0 ? std::min(x, 1.0) : 0;
  if (call.instruction.flushes && !is_bfloat(call.instruction.type) && std::fabs(x) < 0x1p-14) {
    x = std::copysign(0.0, x);
  }
  const uint16_t bits = is_bfloat(call.instruction.type) ? bfloat_bits(x) : half_bits(x);
  return call.has("relu") && x == x && (bits & 0x8000) ? 0 : bits;
}

// For 16-bit numbers and pairs of them: f computes in double from up to three operands.
template <typename F>
void set_narrow(const Call& call, const F& f) {
  const int halves = is_pair(call.instruction.type) ? 2 : 1;
  const size_t count = call.operands() - 1;
  uint32_t result = 0;
  for (int half = 0; half < halves; ++half) {
    double x[3] = {};
    for (size_t i = 0; i < count && i < 3; ++i) x[i] = narrow_value(call, uint16_t(call.get(i + 1) >> (16 * half)));
    result |= uint32_t(narrow_bits(call, f(x[0], x[1], x[2]))) << (16 * half);
  }
  call.set(0, result);
}

bool is_narrow(const Call& call) {
  const Type type = call.instruction.type;
  return type == Type::kF16 || type == Type::kBf16 || is_pair(type);
}

}  // namespace

void add_floats(const Call& call) {
  const bool subtracts = call.instruction.parts[0] == "sub";
  const Rounding rounding = call.instruction.rounding;
  if (is_narrow(call)) {
    return set_narrow(call, [&](double a, double b, double) { return subtracts ? a - b : a + b; });
  }
  if (call.instruction.type == Type::kF64) {
    const double a = call.get_double(1), b = call.get_double(2);
    return set_double(call, subtracts ? rounded_subtract(a, b, rounding) : rounded_add(a, b, rounding));
  }
  const float a = float_operand(call, 1), b = float_operand(call, 2);
  set_float(call, subtracts ? rounded_subtract(a, b, rounding) : rounded_add(a, b, rounding));
}

void multiply_floats(const Call& call) {
  if (is_narrow(call)) return set_narrow(call, [](double a, double b, double) { return a * b; });
  if (call.instruction.type == Type::kF64) {
    return set_double(call, rounded_multiply(call.get_double(1), call.get_double(2), call.instruction.rounding));
  }
  const float a = float_operand(call, 1), b = float_operand(call, 2);
  const float product = rounded_multiply(a, b, call.instruction.rounding);
  set_float(call, flushed_early(call, product, rounded_multiply(a, b, Rounding::kZero)));
}

void fused_multiply_add(const Call& call) {
  if (is_narrow(call)) return set_narrow(call, multiply_add_to_odd);
  const Rounding rounding = call.instruction.rounding;
  if (call.instruction.type == Type::kF64) {
    return set_double(call, rounded_multiply_add(call.get_double(1), call.get_double(2), call.get_double(3), rounding));
  }
  const float a = float_operand(call, 1), b = float_operand(call, 2), c = float_operand(call, 3);
  const float sum = rounded_multiply_add(a, b, c, rounding);
  set_float(call, flushed_early(call, sum, rounded_multiply_add(a, b, c, Rounding::kZero)));
}

void divide_floats(const Call& call) {
  if (call.instruction.type == Type::kF64) {
    return set_double(call, rounded_divide(call.get_double(1), call.get_double(2), call.instruction.rounding));
  }
  const float a = float_operand(call, 1), b = float_operand(call, 2);
  if (call.has("approx")) return set_float(call, __fdividef(a, b));
  const float quotient = rounded_divide(a, b, call.instruction.rounding);
  set_float(call, flushed_early(call, quotient, rounded_divide(a, b, Rounding::kZero)));
}

void unary_floats(const Call& call) {
  const std::string& name = call.instruction.parts[0];
  const Rounding rounding = call.instruction.rounding;
  if (is_narrow(call)) {
    return set_narrow(call, [&](double x, double, double) { return name == "abs" ? std::fabs(x) : -x; });
  }
  if (call.instruction.type == Type::kF64) {
    const double x = call.get_double(1);
    if (x != x && (name == "abs" || name == "neg")) return set_double(call, quieted(x));  // Its sign stays.
    if (name == "abs") return set_double(call, std::fabs(x));
    if (name == "neg") return set_double(call, -x);
    return set_double(call, name == "sqrt" ? rounded_root(x, rounding) : rounded_divide(1.0, x, rounding));
  }
  const float x = float_operand(call, 1);
  if (name == "abs") return set_float(call, std::fabs(x));
  if (name == "neg") return set_float(call, -x);
  set_float(call, name == "sqrt" ? rounded_root(x, rounding) : rounded_divide(1.0f, x, rounding));
}

namespace {

// Of zeros, -0 is the smaller.
template <typename T>
T chosen(T a, T b, bool least, bool keeps_nan) {
  if (a != a || b != b) return keeps_nan || (a != a && b != b) ? T(NAN) : a != a ? b : a;
  if (a == b) return std::signbit(a) == least ? a : b;
  return (a < b) == least ? a : b;
}

}  // namespace

void least_or_most_floats(const Call& call) {
  const bool least = call.instruction.parts[0] == "min", keeps_nan = call.has("NaN");
  const bool takes_sign = call.has("xorsign");
  const auto choose = [&](auto a, auto b) {
    if (!takes_sign) return chosen(a, b, least, keeps_nan);
    const bool is_negative = std::signbit(a) != std::signbit(b);
    const auto result = chosen(std::abs(a), std::abs(b), least, keeps_nan);
    return is_negative ? -result : result;
  };
  if (is_narrow(call)) return set_narrow(call, [&](double a, double b, double) { return choose(a, b); });
  if (call.instruction.type == Type::kF64) {
    const double result = choose(call.get_double(1), call.get_double(2));
    return call.set(0, result == result ? std::bit_cast<uint64_t>(result) : kNan64);
  }
  set_float(call, choose(float_operand(call, 1), float_operand(call, 2)));
}

// PTX leaves the last bits of approximations open. These are the exact results, rounded.
void approximate(const Call& call) {
  const std::string& name = call.instruction.parts[0];
  const auto f = [&](double x) -> double {
    switch (name[0]) {
      case 'e': return std::exp2(x);
      case 'l': return std::log2(x);
      case 't': return std::tanh(x);
      case 'c': return std::cos(x);
      case 's': return name == "sin" ? std::sin(x) : std::sqrt(x);
      default: return name == "rcp" ? 1 / x : 1 / std::sqrt(x);
    }
  };
  if (is_narrow(call)) return set_narrow(call, [&](double x, double, double) { return f(x); });
  if (call.instruction.type == Type::kF32) return set_float(call, float(f(float_operand(call, 1))));
  // In double precision only the upper words count; but of what is not flushed, subnormal numbers and NaNs count whole.
  const auto upper = [](double x) { return std::bit_cast<double>(std::bit_cast<uint64_t>(x) & 0xffffffff00000000); };
  const auto flushed = [&](double x) {
    const bool is_subnormal = std::fpclassify(x) == FP_SUBNORMAL;
    return call.instruction.flushes && is_subnormal ? std::copysign(0.0, x) : x;
  };
  const double x = flushed(call.get_double(1));
  const bool is_whole = std::fpclassify(x) == FP_SUBNORMAL || (x != x && !call.instruction.flushes);
  const double result = flushed(upper(f(is_whole ? x : upper(x))));
  call.set(0, result == result ? std::bit_cast<uint64_t>(result) : kNan64);
}

void test_property(const Call& call) {
  const bool is_double = call.instruction.type == Type::kF64;
  const double x = is_double ? call.get_double(1) : call.get_float(1);
  const int kind = is_double ? std::fpclassify(x) : std::fpclassify(call.get_float(1));
  const std::string& property = call.instruction.parts[1];
  bool result = false;
  if (property == "finite") {
    result = std::isfinite(x);
  } else if (property == "infinite") {
    result = std::isinf(x);
  } else if (property == "number") {
    result = x == x;
  } else if (property == "notanumber") {
    result = x != x;
  } else if (property == "normal") {
    result = kind == FP_NORMAL || kind == FP_ZERO;
  } else if (property == "subnormal") {
    result = kind == FP_SUBNORMAL;
  } else {
    fail_unknown(call);
  }
  call.set(0, result);
}

void copy_sign(const Call& call) {
  const uint64_t sign = call.instruction.type == Type::kF64 ? uint64_t(1) << 63 : uint64_t(1) << 31;
  call.set(0, (call.get(1) & sign) | (call.get(2) & ~sign));
}

}  // namespace emulator
