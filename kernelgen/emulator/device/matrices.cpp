// Matrix instructions of a warp: ldmatrix, stmatrix, movmatrix and mma.sync.

#include "matrices.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "accesses.h"

namespace emulator {

const Call& call_of(void* const* arguments, int lane) {
  if (!arguments[lane]) fail("a matrix instruction of a warp in which lane %d has ended", lane);
  return *static_cast<const Call*>(arguments[lane]);
}

void execute_by_warp(const Call& call, void (*action)(Warp&, void* const*)) {
  execute_together(kAllLanes, call.instruction.text.c_str(), const_cast<Call*>(&call), action);
}

namespace {

// A row of an 8x8 matrix in shared memory.
uint16_t* row_at(const Call& call, size_t operand) {
  return reinterpret_cast<uint16_t*>(shared_address(call.get(operand), 16, 16).pointer());
}

template <typename F>
void for_each_matrix_element(void* const* arguments, size_t registers_operand, size_t row_operand, const F& visit) {
  const Call& first = call_of(arguments, 0);
  const size_t matrices = first.words(registers_operand);
  const bool transposed = first.has("trans");
  for (size_t matrix = 0; matrix < matrices; ++matrix) {
    for (int row = 0; row < 8; ++row) {
      uint16_t* elements = row_at(call_of(arguments, matrix * 8 + row), row_operand);
      for (int column = 0; column < 8; ++column) {
        const int i = transposed ? column : row, j = transposed ? row : column;
        visit(matrix, call_of(arguments, i * 4 + j / 2), j % 2, elements[column]);
      }
    }
  }
}

// .x4 names the number of the matrices, which are a register each.
void check_count(const Call& call, size_t operand) {
  const size_t count = call.has("x4") ? 4 : call.has("x2") ? 2 : 1;
  if (call.words(operand) != count) fail("'%s' takes %zu registers", call.instruction.text.c_str(), count);
}

// Notes the accesses to the matrices' rows.
void note_rows(Warp& warp, void* const* arguments, size_t registers_operand, size_t row_operand, bool writes) {
  const size_t rows = 8 * call_of(arguments, 0).words(registers_operand);
  for (size_t lane = 0; lane < rows; ++lane) {
    note_warp_access(warp, row_at(call_of(arguments, lane), row_operand), 16, writes);
  }
}

}  // namespace

void ldmatrix(const Call& call) {
  check_count(call, 0);
  execute_by_warp(call, [](Warp& warp, void* const* arguments) {
    note_rows(warp, arguments, 0, 1, false);
    for_each_matrix_element(arguments, 0, 1, [](size_t matrix, const Call& lane, int half, uint16_t element) {
      memcpy(static_cast<char*>(lane.target(0, matrix)) + 2 * half, &element, 2);
    });
  });
}

void stmatrix(const Call& call) {
  check_count(call, 1);
  execute_by_warp(call, [](Warp& warp, void* const* arguments) {
    note_rows(warp, arguments, 1, 0, true);
    for_each_matrix_element(arguments, 1, 0, [](size_t matrix, const Call& lane, int half, uint16_t& element) {
      element = lane.get(1, matrix) >> (16 * half);
    });
  });
}

void movmatrix(const Call& call) {
  execute_by_warp(call, [](Warp&, void* const* arguments) {
    uint32_t moved[kLanes] = {};
    for (int row = 0; row < 8; ++row) {
      for (int column = 0; column < 8; ++column) {
        const uint32_t pair = call_of(arguments, row * 4 + column / 2).get(1);
        moved[column * 4 + row / 2] |= (pair >> (column % 2 * 16) & 0xffff) << (row % 2 * 16);
      }
    }
    for (int lane = 0; lane < kLanes; ++lane) call_of(arguments, lane).set(0, moved[lane]);
  });
}

// ---- Products -------------------------------------------------------------------------------------------------

namespace {

// All values of a format of 8 bits.
std::array<double, 256> values_of(const Format& format) {
  std::array<double, 256> values;
  for (uint32_t bits = 0; bits < 256; ++bits) values[bits] = decode(bits, format);
  return values;
}

const std::array<double, 256> kE4m3Values = values_of(kE4m3), kE5m2Values = values_of(kE5m2);

}  // namespace

double element_value(Type type, uint64_t bits) {
  switch (type) {
    case Type::kF16: return half_value(uint16_t(bits));
    case Type::kBf16: return bfloat_value(uint16_t(bits));
    case Type::kTf32: return std::bit_cast<float>(uint32_t(bits) & 0xffffe000);
    case Type::kF32: return std::bit_cast<float>(uint32_t(bits));
    case Type::kF64: return std::bit_cast<double>(bits);
    case Type::kS32: return int32_t(bits);
    case Type::kE4m3: return kE4m3Values[bits & 0xff];
    case Type::kE5m2: return kE5m2Values[bits & 0xff];
    case Type::kS8: return int8_t(bits);
    case Type::kU8: return uint8_t(bits);
    case Type::kS4: return int8_t(bits << 4) >> 4;
    case Type::kU4: return bits & 15;
    case Type::kB1: return bits & 1;
    default: fail("the emulator has no matrices of this type");
  }
}

int elements_of_register(Type type) {
  return type == Type::kF64 ? 1 : 32 / bits_of(type);
}

std::vector<double> left_matrix(void* const* arguments, size_t operand, Type type, int m, int k) {
  std::vector<double> a(m * k);
  const int count = elements_of_register(type), halves = m / 8, bits = bits_of(type);
  for (int lane = 0; lane < kLanes; ++lane) {
    const Call& call = call_of(arguments, lane);
    for (int i = 0; i < m * k / kLanes / count; ++i) {
      const uint64_t word = call.get(operand, i);
      double* const target = &a[(lane / 4 + i % halves * 8) * k + (lane % 4 + i / halves * 4) * count];
      for (int j = 0; j < count; ++j) target[j] = element_value(type, word >> (bits * j));
    }
  }
  return a;
}

namespace {

// b[column * k + row], of 8 columns.
std::vector<double> right_matrix(void* const* arguments, Type type, int k) {
  std::vector<double> b(8 * k);
  const int count = elements_of_register(type), bits = bits_of(type);
  for (int lane = 0; lane < kLanes; ++lane) {
    const Call& call = call_of(arguments, lane);
    for (int i = 0; i < 8 * k / kLanes / count; ++i) {
      const uint64_t word = call.get(2, i);
      double* const target = &b[lane / 4 * k + (lane % 4 + i * 4) * count];
      for (int j = 0; j < count; ++j) target[j] = element_value(type, word >> (bits * j));
    }
  }
  return b;
}

double sum_of_bits(const Call& call, const double* a, const double* b, int k) {
  int sum = 0;
  const bool is_xor = call.has("xor");
  for (int i = 0; i < k; ++i) sum += is_xor ? a[i] != b[i] : a[i] != 0 && b[i] != 0;
  return sum;
}

// The bits of c plus the product of a row and a column. Sums of floating-point numbers round once.
uint64_t element_of_product(const Call& call, const double* a, const double* b, int k, uint64_t c) {
  const auto& types = call.instruction.types;
  const Type type = types[0];
  if (type == Type::kF64) {
    double sum = std::bit_cast<double>(c);
    for (int i = 0; i < k; ++i) sum = rounded_multiply_add(a[i], b[i], sum, call.instruction.rounding);
    return std::bit_cast<uint64_t>(sum);
  }
  double product = 0;
  if (types[1] == Type::kB1) {
    product = sum_of_bits(call, a, b, k);
  } else {
    for (int i = 0; i < k; ++i) product += a[i] * b[i];
  }
  if (type == Type::kF16) return half_bits(half_value(uint16_t(c)) + product);
  if (type == Type::kF32) return std::bit_cast<uint32_t>(canonical(float(std::bit_cast<float>(uint32_t(c)) + product)));
  const int64_t sum = int64_t(product) + int32_t(c);
  if (!call.has("satfinite")) return uint32_t(sum);
  return uint32_t(std::min<int64_t>(std::max<int64_t>(sum, INT32_MIN), INT32_MAX));
}

// Whether the operands d, a, b and c have as many registers as the shape and the types say.
void check_registers(const Call& call) {
  const auto& [m, n, k] = call.instruction.shape;
  const auto& types = call.instruction.types;
  const int elements[] = {m * n, m * k, k * n, m * n};
  for (size_t i = 0; i < 4; ++i) {
    const size_t registers = elements[i] / kLanes / elements_of_register(types[i]);
    if (call.words(i) == registers) continue;
    fail("'%s' takes %zu registers for its operand %zu", call.instruction.text.c_str(), registers, i);
  }
}

}  // namespace

void mma(const Call& call) {
  if (!call.instruction.shape.m) fail_unknown(call);
  check_registers(call);
  execute_by_warp(call, [](Warp&, void* const* arguments) {
    const Call& first = call_of(arguments, 0);
    const Shape shape = first.instruction.shape;
    const auto& types = first.instruction.types;
    const std::vector<double> a = left_matrix(arguments, 1, types[1], shape.m, shape.k);
    const std::vector<double> b = right_matrix(arguments, types[2], shape.k);
    const int count = elements_of_register(types[0]), bits = bits_of(types[0]);
    for (int lane = 0; lane < kLanes; ++lane) {
      const Call& call = call_of(arguments, lane);
      for (int i = 0; i < shape.m / 4; i += count) {
        uint64_t word = 0;
        for (int j = i; j < i + count; ++j) {
          const int row = lane / 4 + j / 2 * 8, column = lane % 4 * 2 + j % 2;
          const uint64_t c = call.get(3, i / count) >> (bits * (j - i) % 64);
          const uint64_t sum = element_of_product(first, &a[row * shape.k], &b[column * shape.k], shape.k, c);
          word |= sum << (bits * (j - i) % 64);
        }
        call.set(0, i / count, word);
      }
    }
  });
}

}  // namespace emulator
