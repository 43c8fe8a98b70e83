// Inline assembly: the arguments of an asm statement, and the program that ptx.cpp executes.

#pragma once

namespace emulator {

struct Operand {
  uint64_t bits;
  void* target;  // Of an output; null for an input.
  int bytes;
};

template <char kConstraint, typename T>
Operand in(const T& value) {
  if constexpr (std::is_pointer_v<T> || std::is_array_v<T>) {
    return {reinterpret_cast<uint64_t>(static_cast<const volatile void*>(value)), nullptr, 8};
  } else if constexpr (kConstraint == 'f') {
    return {std::bit_cast<uint32_t>(static_cast<float>(value)), nullptr, 4};
  } else if constexpr (kConstraint == 'd') {
    return {std::bit_cast<uint64_t>(static_cast<double>(value)), nullptr, 8};
  } else if constexpr (kConstraint == 'h') {
    if constexpr (std::is_class_v<T>) {
      static_assert(sizeof(T) == 2);
      return {std::bit_cast<uint16_t>(value), nullptr, 2};
    } else {
      return {static_cast<uint16_t>(value), nullptr, 2};
    }
  } else if constexpr (kConstraint == 'r') {
    return {static_cast<uint32_t>(value), nullptr, 4};
  } else if constexpr (kConstraint == 'b') {
    return {static_cast<bool>(value), nullptr, 1};
  } else if constexpr (sizeof(T) == 16) {  // 'q' has 16 bytes: their address stands for them.
    return {reinterpret_cast<uint64_t>(&value), nullptr, 16};
  } else {
    return {static_cast<uint64_t>(value), nullptr, 8};
  }
}

template <typename T>
Operand out(T& place) {
  return {0, &place, sizeof(T)};
}

// An asm statement, parsed when it first runs. Constant at first, so that no guard orders its users.
struct Program;
struct Assembly {
  const char* text;
  const char* file;
  int line;
  Program* program = nullptr;

  constexpr Assembly(const char* text, const char* file = __builtin_FILE(), int line = __builtin_LINE())
      : text(text), file(file), line(line) {}
};
Program* parse(const char* assembly, const char* file, int line);
void execute(Assembly& assembly, const Operand* operands);

}  // namespace emulator
