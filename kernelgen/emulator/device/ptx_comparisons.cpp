// Comparisons and selections.

#include <cmath>
#include <optional>

#include "ptx.h"

namespace emulator {

namespace {

enum class Order { kLess, kEqual, kGreater, kUnordered };

template <typename T>
Order order(T a, T b) {
  if (a != a || b != b) return Order::kUnordered;
  return a < b ? Order::kLess : a == b ? Order::kEqual : Order::kGreater;
}

// How two numbers of the type compare; of pairs, those at a position.
Order compared(const Call& call, Type type, uint64_t a, uint64_t b) {
  const bool flushes = call.instruction.flushes;
  const auto single = [&](uint64_t bits) {
    const float x = std::bit_cast<float>(uint32_t(bits));
    return flushes ? flushed(x) : x;
  };
  const auto half = [&](uint64_t bits) { return flushes && !(bits & 0x7c00) ? 0.0f : half_value(uint16_t(bits)); };
  switch (type) {
    case Type::kF32: return order(single(a), single(b));
    case Type::kF64: return order(std::bit_cast<double>(a), std::bit_cast<double>(b));
    case Type::kF16:
    case Type::kF16x2: return order(half(a), half(b));
    case Type::kBf16:
    case Type::kBf16x2: return order(bfloat_value(uint16_t(a)), bfloat_value(uint16_t(b)));
    case Type::kS16: return order(int16_t(a), int16_t(b));
    case Type::kU16:
    case Type::kB16: return order(uint16_t(a), uint16_t(b));
    case Type::kS32: return order(int32_t(a), int32_t(b));
    case Type::kU32:
    case Type::kB32: return order(uint32_t(a), uint32_t(b));
    case Type::kS64: return order(int64_t(a), int64_t(b));
    case Type::kU64:
    case Type::kB64: return order(a, b);
    default: fail_unknown(call);
  }
}

// What a comparison of this name makes of an order; nothing if there is no such comparison.
std::optional<bool> outcome(std::string_view name, Order order) {
  const bool less = order == Order::kLess, equal = order == Order::kEqual, greater = order == Order::kGreater;
  const bool unordered = order == Order::kUnordered;
  if (name == "eq") return equal;
  if (name == "ne") return less || greater;
  if (name == "lt" || name == "lo") return less;
  if (name == "le" || name == "ls") return less || equal;
  if (name == "gt" || name == "hi") return greater;
  if (name == "ge" || name == "hs") return greater || equal;
  if (name == "equ") return equal || unordered;
  if (name == "neu") return !equal;
  if (name == "ltu") return less || unordered;
  if (name == "leu") return !greater;
  if (name == "gtu") return greater || unordered;
  if (name == "geu") return !less;
  if (name == "num") return !unordered;
  if (name == "nan") return unordered;
  return {};
}

bool holds(const Call& call, Order order) {
  for (const std::string& part : call.instruction.parts) {
    if (const auto result = outcome(part, order)) return *result;
  }
  fail_unknown(call);
}

// The result, combined with a further predicate where there is one.
bool combined(const Call& call, bool result) {
  if (call.operands() < 4) return result;
  const bool other = call.get(3) != 0;
  if (call.has("and")) return result && other;
  if (call.has("or")) return result || other;
  if (call.has("xor")) return result != other;
  fail_unknown(call);
}

}  // namespace

void set_predicate(const Call& call) {
  const Type type = call.instruction.type;
  const bool is_pair = type == Type::kF16x2 || type == Type::kBf16x2;
  const bool first = holds(call, compared(call, type, call.get(1), call.get(2)));
  const bool has_second = call.words(0) > 1;
  // p|q: of pairs, the second half's; else the complement.
  const bool second = is_pair ? holds(call, compared(call, type, call.get(1) >> 16, call.get(2) >> 16)) : !first;
  if (call.instruction.operands[0].at(0).kind != Word::kLabel) call.set(0, 0, combined(call, first));
  if (has_second && call.instruction.operands[0][1].kind != Word::kLabel) call.set(0, 1, combined(call, second));
}

// set.lt.f16x2.f16x2 and the like: 1.0 for a floating-point result, all ones for an integer.
void set_value(const Call& call) {
  if (call.instruction.types.size() != 2) fail_unknown(call);
  const Type to = call.instruction.types[0], from = call.instruction.type;
  const bool is_pair = from == Type::kF16x2 || from == Type::kBf16x2;
  uint64_t result = 0;
  for (int half = 0; half < (is_pair ? 2 : 1); ++half) {
    const bool value =
        combined(call, holds(call, compared(call, from, call.get(1) >> (16 * half), call.get(2) >> (16 * half))));
    uint64_t ones = is_pair ? 0xffff : 0xffffffff;
    if (to == Type::kF32) ones = 0x3f800000;
    if (to == Type::kF16 || to == Type::kF16x2) ones = 0x3c00;
    if (to == Type::kBf16 || to == Type::kBf16x2) ones = 0x3f80;
    if (to == Type::kU16 || to == Type::kS16) ones = 0xffff;
    if (value) result |= ones << (16 * half);
  }
  call.set(0, result);
}

void select(const Call& call) {
  call.set(0, call.get(call.get(3) ? 1 : 2));
}

void select_by_sign(const Call& call) {
  const bool is_float = call.instruction.type == Type::kF32;
  const float x = call.instruction.flushes ? flushed(call.get_float(3)) : call.get_float(3);
  call.set(0, call.get((is_float ? x >= 0 : int32_t(call.get(3)) >= 0) ? 1 : 2));
}

}  // namespace emulator
