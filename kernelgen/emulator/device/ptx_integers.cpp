// Arithmetic on integers, and operations on bits.

#include "ptx.h"

namespace emulator {

namespace {

// A number of the type, extended to 64 bits.
int64_t extended(uint64_t bits, Type type) {
  switch (bits_of(type)) {
    case 8: return is_signed(type) ? int64_t(int8_t(bits)) : int64_t(uint8_t(bits));
    case 16: return is_signed(type) ? int64_t(int16_t(bits)) : int64_t(uint16_t(bits));
    case 32: return is_signed(type) ? int64_t(int32_t(bits)) : int64_t(uint32_t(bits));
    default: return int64_t(bits);
  }
}

int64_t number(const Call& call, size_t operand) {
  return extended(call.get(operand), call.instruction.type);
}

// The result, cut to the type.
void set_number(const Call& call, uint64_t value) {
  const int bits = bits_of(call.instruction.type);
  call.set(0, bits >= 64 ? value : value & ((uint64_t(1) << bits) - 1));
}

unsigned __int128 wide(int64_t x, Type type) {
  return is_signed(type) ? (unsigned __int128)(__int128(x)) : (unsigned __int128)(uint64_t(x));
}

void set_with_carry(const Call& call, uint64_t a, uint64_t b, bool carry_in) {
  const int bits = bits_of(call.instruction.type);
  const uint64_t all = bits >= 64 ? ~uint64_t(0) : (uint64_t(1) << bits) - 1;
  const unsigned __int128 sum = (unsigned __int128)(a & all) + (b & all) + carry_in;
  if (call.has("cc")) *call.carry = uint64_t(sum >> bits) & 1;
  call.set(0, uint64_t(sum) & all);
}

template <typename F>
void set_halves(const Call& call, const F& f) {
  const uint32_t a = call.get(1), b = call.get(2);
  const bool is_signed_type = call.instruction.type == Type::kS16x2;
  uint32_t result = 0;
  for (int shift = 0; shift < 32; shift += 16) {
    const int x = is_signed_type ? int16_t(a >> shift) : uint16_t(a >> shift);
    const int y = is_signed_type ? int16_t(b >> shift) : uint16_t(b >> shift);
    result |= uint32_t(uint16_t(f(x, y))) << shift;
  }
  call.set(0, result);
}

bool is_pair(const Call& call) {
  return call.instruction.type == Type::kS16x2 || call.instruction.type == Type::kU16x2;
}

}  // namespace

namespace {

// mov.b128 packs two words, unpacks them, or copies.
void move_wide(const Call& call, size_t targets, size_t sources) {
  if (targets > 2 || sources > 2 || targets + sources > 3) fail_unknown(call);
  if (sources == 2) {
    return call.set_wide(0, static_cast<unsigned __int128>(call.get(1, 1)) << 64 | call.get(1, 0));
  }
  const unsigned __int128 bits = call.get_wide(1);
  if (targets == 1) return call.set_wide(0, bits);
  for (size_t i = 0; i < 2; ++i) {
    if (call.instruction.operands[0][i].kind != Word::kLabel) call.set(0, i, uint64_t(bits >> (64 * i)));
  }
}

}  // namespace

void move(const Call& call) {
  const size_t targets = call.words(0), sources = call.words(1);
  if (call.instruction.type == Type::kB128) return move_wide(call, targets, sources);
  if (targets == 1 && sources == 1) return call.set(0, call.get(1));
  const int total = bits_of(call.instruction.type);
  if (total > 64) fail_unknown(call);
  if (targets == 1) {  // Packs.
    const int bits = total / int(sources);
    uint64_t packed = 0;
    for (size_t i = 0; i < sources; ++i) packed |= (call.get(1, i) & ((uint64_t(1) << bits) - 1)) << (bits * i);
    return call.set(0, packed);
  }
  const int bits = total / int(targets);
  const uint64_t packed = call.get(1);
  for (size_t i = 0; i < targets; ++i) {
    if (call.instruction.operands[0][i].kind == Word::kLabel) continue;  // '_'
    call.set(0, i, packed >> (bits * i) & ((uint64_t(1) << bits) - 1));
  }
}

namespace {

void add(const Call& call) {
  if (is_pair(call)) return set_halves(call, [](int x, int y) { return x + y; });
  if (call.has("cc") || call.instruction.parts[0] == "addc") {
    return set_with_carry(call, call.get(1), call.get(2), call.instruction.parts[0] == "addc" && *call.carry);
  }
  const int64_t sum = int64_t(uint64_t(number(call, 1)) + uint64_t(number(call, 2)));
  if (call.instruction.saturates) {
    return set_number(call, uint64_t(std::min<int64_t>(std::max<int64_t>(sum, INT32_MIN), INT32_MAX)));
  }
  set_number(call, uint64_t(sum));
}

// A subtraction's borrow is the complement of the carry of adding the complement.
void subtract(const Call& call) {
  if (call.has("cc") || call.instruction.parts[0] == "subc") {
    const bool borrow = call.instruction.parts[0] == "subc" && *call.carry;
    set_with_carry(call, call.get(1), ~call.get(2), !borrow);
    if (call.has("cc")) *call.carry = !*call.carry;
    return;
  }
  const int64_t difference = int64_t(uint64_t(number(call, 1)) - uint64_t(number(call, 2)));
  if (call.instruction.saturates) {
    return set_number(call, uint64_t(std::min<int64_t>(std::max<int64_t>(difference, INT32_MIN), INT32_MAX)));
  }
  set_number(call, uint64_t(difference));
}

// The part of a product that .lo, .hi, .wide or the 24-bit forms keep.
uint64_t product(const Call& call) {
  const Type type = call.instruction.type;
  const int bits = bits_of(type);
  int64_t a = number(call, 1), b = number(call, 2);
  if (call.instruction.parts[0].ends_with("24")) {
    a = is_signed(type) ? int64_t(uint64_t(a) << 40) >> 40 : a & 0xffffff;
    b = is_signed(type) ? int64_t(uint64_t(b) << 40) >> 40 : b & 0xffffff;
    const uint64_t full = uint64_t(a * b);
    return call.has("hi") ? full >> 16 : full;
  }
  const unsigned __int128 full = wide(a, type) * wide(b, type);
  return uint64_t(call.has("hi") ? full >> bits : full);
}

}  // namespace

void add_or_subtract(const Call& call) {
  call.instruction.parts[0].starts_with("add") ? add(call) : subtract(call);
}

void multiply(const Call& call) {
  if (call.has("wide")) {
    const uint64_t value = product(call);
    return call.set(0, bits_of(call.instruction.type) == 16 ? uint32_t(value) : value);
  }
  set_number(call, product(call));
}

void multiply_add(const Call& call) {
  if (call.has("wide")) {
    const bool is_short = bits_of(call.instruction.type) == 16;
    const uint64_t value = product(call) + call.get(3);
    return call.set(0, is_short ? uint32_t(value) : value);
  }
  if (call.has("cc") || call.instruction.parts[0] == "madc") {
    return set_with_carry(call, product(call), call.get(3), call.instruction.parts[0] == "madc" && *call.carry);
  }
  if (call.instruction.saturates) {
    const int64_t sum = int64_t(int32_t(product(call))) + number(call, 3);
    return set_number(call, uint64_t(std::min<int64_t>(std::max<int64_t>(sum, INT32_MIN), INT32_MAX)));
  }
  set_number(call, product(call) + uint64_t(number(call, 3)));
}

namespace {

void divide(const Call& call) {
  const int64_t a = number(call, 1), b = number(call, 2);
  if (b == 0) return set_number(call, ~uint64_t(0));  // As GPUs do; PTX leaves it open.
  if (!is_signed(call.instruction.type)) return set_number(call, uint64_t(a) / uint64_t(b));
  set_number(call, b == -1 ? -uint64_t(a) : uint64_t(a / b));
}

void remainder(const Call& call) {
  const int64_t a = number(call, 1), b = number(call, 2);
  if (b == 0) return set_number(call, ~uint64_t(0));
  if (!is_signed(call.instruction.type)) return set_number(call, uint64_t(a) % uint64_t(b));
  set_number(call, b == -1 ? 0 : uint64_t(a % b));
}

}  // namespace

void divide_integers(const Call& call) {
  call.instruction.parts[0] == "div" ? divide(call) : remainder(call);
}

void absolute_or_negated(const Call& call) {
  const int64_t x = number(call, 1);
  set_number(call, x < 0 || call.instruction.parts[0] == "neg" ? -uint64_t(x) : uint64_t(x));
}

void least_or_most(const Call& call) {
  const bool least = call.instruction.parts[0] == "min", is_relu = call.has("relu");
  const auto choose = [&](auto a, auto b) {
    const auto chosen = (b < a) == least ? b : a;
    return is_relu && chosen < 0 ? decltype(chosen)(0) : chosen;
  };
  if (is_pair(call)) return set_halves(call, choose);
  const int64_t a = number(call, 1), b = number(call, 2);
  set_number(call, is_signed(call.instruction.type) ? uint64_t(choose(a, b)) : choose(uint64_t(a), uint64_t(b)));
}

void bitwise(const Call& call) {
  const std::string& name = call.instruction.parts[0];
  const uint64_t a = call.get(1);
  if (call.instruction.type == Type::kPred) {
    const bool x = a != 0, y = name == "not" || call.get(2) != 0;
    return call.set(0, name == "and" ? x && y : name == "or" ? x || y : name == "xor" ? x != y : !x);
  }
  if (name == "not") return set_number(call, ~a);
  if (name == "cnot") return set_number(call, uint64_t(number(call, 1)) == 0);
  const uint64_t b = call.get(2);
  set_number(call, name == "and" ? a & b : name == "or" ? a | b : a ^ b);
}

void logic_of_three(const Call& call) {
  const uint32_t a = call.get(1), b = call.get(2), c = call.get(3), table = call.get(4);
  uint32_t result = 0;
  if (table & 0x01) result |= ~a & ~b & ~c;
  if (table & 0x02) result |= ~a & ~b & c;
  if (table & 0x04) result |= ~a & b & ~c;
  if (table & 0x08) result |= ~a & b & c;
  if (table & 0x10) result |= a & ~b & ~c;
  if (table & 0x20) result |= a & ~b & c;
  if (table & 0x40) result |= a & b & ~c;
  if (table & 0x80) result |= a & b & c;
  call.set(0, result);
}

// Shifts by more than the width leave nothing but the sign.
void shift(const Call& call) {
  const int bits = bits_of(call.instruction.type);
  const uint64_t count = std::min<uint64_t>(uint32_t(call.get(2)), 64);
  const int64_t a = number(call, 1);
  if (call.instruction.parts[0] == "shl") return set_number(call, count >= uint64_t(bits) ? 0 : uint64_t(a) << count);
  if (is_signed(call.instruction.type)) return set_number(call, uint64_t(a >> std::min<uint64_t>(count, 63)));
  set_number(call, count >= 64 ? 0 : uint64_t(a) >> count);
}

void funnel_shift(const Call& call) {
  const uint64_t both = call.get(2) << 32 | uint32_t(call.get(1));
  const uint32_t count = call.get(3);
  const uint32_t n = call.has("clamp") ? std::min(count, 32u) : count & 31;
  call.set(0, uint32_t(call.has("l") ? (unsigned __int128)(both) << n >> 32 : both >> n));
}

void permute_bytes(const Call& call) {
  const uint32_t a = call.get(1), b = call.get(2), c = call.get(3);
  uint32_t selector = c & 3;
  constexpr uint32_t kForward[] = {0x3210, 0x4321, 0x5432, 0x6543}, kBackward[] = {0x5670, 0x6701, 0x7012, 0x0123};
  constexpr uint32_t kLeft[] = {0x3210, 0x3211, 0x3222, 0x3333}, kRight[] = {0x0000, 0x1110, 0x2210, 0x3210};
  if (call.has("f4e")) {
    selector = kForward[selector];
  } else if (call.has("b4e")) {
    selector = kBackward[selector];
  } else if (call.has("rc8")) {
    selector *= 0x1111;
  } else if (call.has("ecl")) {
    selector = kLeft[selector];
  } else if (call.has("ecr")) {
    selector = kRight[selector];
  } else if (call.has("rc16")) {
    selector = selector & 1 ? 0x3232 : 0x1010;
  } else {
    selector = c;
  }
  const uint64_t bytes = uint64_t(b) << 32 | a;
  uint32_t result = 0;
  for (int i = 0; i < 4; ++i) {
    const uint32_t digit = selector >> (4 * i) & 15;
    const uint8_t byte = uint8_t(bytes >> (digit & 7) * 8);
    result |= uint32_t(digit & 8 ? uint8_t(int8_t(byte) >> 7) : byte) << (8 * i);
  }
  call.set(0, result);
}

void count_bits(const Call& call) {
  const std::string& name = call.instruction.parts[0];
  const Type type = call.instruction.type;
  const int bits = bits_of(type);
  const uint64_t a = bits == 32 ? uint32_t(call.get(1)) : call.get(1);
  if (name == "popc") return call.set(0, std::popcount(a));
  if (name == "clz") return call.set(0, std::countl_zero(a) - (64 - bits));
  if (name == "brev") {
    const uint64_t reversed = __brevll(a);
    return call.set(0, bits == 32 ? reversed >> 32 : reversed);
  }
  // bfind: the highest bit that differs from the sign.
  const int64_t x = number(call, 1);
  const uint64_t value = is_signed(type) && x < 0 ? ~uint64_t(x) : uint64_t(x);
  const int highest = 63 - std::countl_zero(value);
  if (value == 0) return call.set(0, 0xffffffff);
  call.set(0, call.has("shiftamt") ? bits - 1 - highest : highest);
}

void find_nth_set(const Call& call) {
  call.set(0, __fns(call.get(1), call.get(2), int32_t(call.get(3))));
}

namespace {

// A field's position or length. PTX takes their lower 8 bits; of 64-bit numbers, GPUs take all, as an H100 shows.
uint32_t field_number(const Call& call, size_t operand) {
  const uint32_t value = call.get(operand);
  return bits_of(call.instruction.type) == 64 ? std::min(value, 255u) : value & 255;
}

void extract_field(const Call& call) {
  const Type type = call.instruction.type;
  const uint32_t bits = bits_of(type), position = field_number(call, 2), length = field_number(call, 3);
  const uint64_t a = uint64_t(number(call, 1));
  const uint32_t sign_at = std::min(position + length - 1, bits - 1);
  const bool sign = is_signed(type) && length && (a >> sign_at & 1);
  uint64_t result = 0;
  for (uint32_t i = 0; i < bits; ++i) {
    const bool bit = i < length && position + i < bits ? a >> (position + i) & 1 : sign;
    result |= uint64_t(bit) << i;
  }
  call.set(0, result);
}

void insert_field(const Call& call) {
  const uint32_t bits = bits_of(call.instruction.type);
  const uint32_t position = field_number(call, 3), length = field_number(call, 4);
  const uint64_t a = call.get(1);
  uint64_t result = call.get(2);
  for (uint32_t i = 0; i < length && position + i < bits; ++i) {
    const uint64_t bit = uint64_t(1) << (position + i);
    result = (result & ~bit) | ((a >> i & 1) ? bit : 0);
  }
  call.set(0, result);
}

}  // namespace

void bit_field(const Call& call) {
  const std::string& name = call.instruction.parts[0];
  if (name == "bfe") return extract_field(call);
  if (name == "bfi") return insert_field(call);
  const bool wraps = call.has("wrap");
  if (name == "bmsk") {  // So many ones from a position on.
    uint64_t position = uint32_t(call.get(1)), count = uint32_t(call.get(2));
    position = wraps ? position & 31 : std::min<uint64_t>(position, 32);
    count = wraps ? count & 31 : std::min<uint64_t>(count, 32);
    return call.set(0, uint32_t(((uint64_t(1) << count) - 1) << position));
  }
  // szext: keeps so many bits, and extends them.
  uint32_t count = call.get(2);
  count = wraps ? count & 31 : std::min(count, 32u);
  if (count == 0) return call.set(0, 0);
  const uint32_t shifted = uint32_t(call.get(1)) << (32 - count);
  call.set(0, is_signed(call.instruction.type) ? uint32_t(int32_t(shifted) >> (32 - count)) : shifted >> (32 - count));
}

void dot_product(const Call& call) {
  if (call.instruction.types.size() != 2) fail_unknown(call);
  const bool four = call.instruction.parts[0] == "dp4a";
  const bool signed_a = call.instruction.types[0] == Type::kS32, signed_b = call.instruction.types[1] == Type::kS32;
  const uint32_t a = call.get(1), b = uint32_t(call.get(2)) >> (call.has("hi") ? 16 : 0);
  uint32_t sum = call.get(3);
  for (int i = 0; i < (four ? 4 : 2); ++i) {
    const int bits = four ? 8 : 16;
    const uint32_t part = a >> (bits * i);
    const int x = four ? (signed_a ? int8_t(part) : uint8_t(part)) : (signed_a ? int16_t(part) : uint16_t(part));
    const int y = signed_b ? int8_t(b >> (8 * i)) : uint8_t(b >> (8 * i));
    sum += uint32_t(x * y);
  }
  call.set(0, sum);
}

void absolute_difference(const Call& call) {
  const int64_t a = number(call, 1), b = number(call, 2);
  const bool less = is_signed(call.instruction.type) ? a < b : uint64_t(a) < uint64_t(b);
  set_number(call, (less ? uint64_t(b) - uint64_t(a) : uint64_t(a) - uint64_t(b)) + call.get(3));
}

}  // namespace emulator
