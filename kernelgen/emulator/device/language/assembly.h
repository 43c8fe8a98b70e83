// Inline assembly: the arguments of an asm statement, and the program that ptx.cpp executes.

#pragma once

namespace emulator {

// What the constraint of an operand says. Its value is passed apart: an asm statement has up to a hundred operands, and
// code that writes two words for each takes g++ twice as long as code that writes one.
struct Operand {
  bool is_output;
  short bytes;
};

template <char kConstraint, typename Reference>
constexpr Operand input() {
  using T = std::remove_reference_t<Reference>;
  if constexpr (std::is_pointer_v<T> || std::is_array_v<T> || kConstraint == 'd') {
    return {false, 8};
  } else if constexpr (kConstraint == 'f' || kConstraint == 'r') {
    return {false, 4};
  } else if constexpr (kConstraint == 'h') {
    static_assert(!std::is_class_v<T> || sizeof(T) == 2);
    return {false, 2};
  } else if constexpr (kConstraint == 'b') {
    return {false, 1};
  } else {
    return {false, sizeof(T) == 16 ? 16 : 8};
  }
}

template <typename Reference>
constexpr Operand output() {
  return {true, sizeof(Reference)};
}

// The value of an input.
template <char kConstraint, typename T>
uint64_t in(const T& value) {
  if constexpr (std::is_pointer_v<T> || std::is_array_v<T>) {
    return reinterpret_cast<uint64_t>(static_cast<const volatile void*>(value));
  } else if constexpr (kConstraint == 'f') {
    return std::bit_cast<uint32_t>(static_cast<float>(value));
  } else if constexpr (kConstraint == 'd') {
    return std::bit_cast<uint64_t>(static_cast<double>(value));
  } else if constexpr (kConstraint == 'h' && std::is_class_v<T>) {
    return std::bit_cast<uint16_t>(value);
  } else if constexpr (kConstraint == 'h') {
    return static_cast<uint16_t>(value);
  } else if constexpr (kConstraint == 'r') {
    return static_cast<uint32_t>(value);
  } else if constexpr (kConstraint == 'b') {
    return static_cast<bool>(value);
  } else if constexpr (sizeof(T) == 16) {  // 'q' has 16 bytes: their address stands for them.
    return reinterpret_cast<uint64_t>(&value);
  } else {
    return static_cast<uint64_t>(value);
  }
}

// The address of an output.
template <typename T>
uint64_t out(T& place) {
  return reinterpret_cast<uint64_t>(&place);
}

// An asm statement, parsed when it first runs. Constant at first, so that no guard orders its users.
struct Program;
struct Assembly {
  const char* text;
  const Operand* operands;
  const char* file;
  int line;
  Program* program = nullptr;

  constexpr Assembly(
      const char* text, const Operand* operands, const char* file = __builtin_FILE(), int line = __builtin_LINE())
      : text(text), operands(operands), file(file), line(line) {}
};
Program* parse(const char* assembly, const char* file, int line);
// Takes the value or the address of each operand.
void execute(Assembly& assembly, const uint64_t* values);

}  // namespace emulator
