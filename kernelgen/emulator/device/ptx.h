// PTX instructions in inline assembly: an asm statement is parsed once, and then executed by each thread.

#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "machine.h"

namespace emulator {

// One word of an operand: an argument of the asm statement (%0), a number, a register that the assembly declares, or a
// special register.
struct Word {
  enum Kind { kArgument, kNumber, kRegister, kSpecial } kind;
  uint64_t value;
};

struct Call;

struct Instruction {
  std::string text;
  std::vector<std::string> parts;           // The name, split at its dots.
  std::vector<std::vector<Word>> operands;  // Braces or brackets make an operand of several words.
  int guard = -1;                           // The predicate's register, and the value that it must have.
  bool guard_value = true;
  void (*handler)(const Call&) = nullptr;
};

struct Program {
  std::vector<Instruction> instructions;
  size_t registers;
};

// An instruction as a thread executes it.
struct Call {
  const Instruction& instruction;
  const Operand* arguments;
  uint64_t* registers;

  bool has(std::string_view part) const;
  // The number after a prefix, in the first part of the name that has both: number("m") is 64 in "m64n16k16".
  int number(std::string_view prefix) const;
  size_t operands() const { return instruction.operands.size(); }
  size_t words(size_t operand) const { return instruction.operands.at(operand).size(); }
  uint64_t get(size_t operand, size_t word = 0) const;
  float get_float(size_t operand, size_t word = 0) const { return std::bit_cast<float>(uint32_t(get(operand, word))); }
  template <typename T>
  T* pointer(size_t operand) const {
    return reinterpret_cast<T*>(get(operand));
  }
  // The address of an output of the asm statement.
  void* target(size_t operand, size_t word = 0) const;
  void set(size_t operand, size_t word, uint64_t bits) const;
  void set(size_t operand, uint64_t bits) const { set(operand, 0, bits); }
  void set_float(size_t operand, float value) const { set(operand, std::bit_cast<uint32_t>(value)); }
};

// Handlers, by the file that defines them.
// barriers.cpp
void named_barrier(const Call&), cluster_arrive(const Call&), cluster_wait(const Call&), set_registers(const Call&);
void mbarrier_init(const Call&), mbarrier_arrive(const Call&), mbarrier_expect(const Call&), mbarrier_wait(const Call&);
void fence_mbarriers(const Call&);
// For the copy engine.
void check_known(SharedAddress barrier), complete_bytes(SharedAddress barrier, int64_t bytes);
// copies.cpp
void cp_async(const Call&), cp_async_commit(const Call&), cp_async_wait(const Call&);
void bulk_load(const Call&), bulk_store(const Call&), bulk_commit(const Call&), bulk_wait(const Call&);
void tensor_load(const Call&), tensor_store(const Call&), fence_async(const Call&);
void check_copies_at_exit(Thread&);
// products.cpp
void ldmatrix(const Call&), stmatrix(const Call&), movmatrix(const Call&), mma(const Call&);
void wgmma(const Call&), wgmma_fence(const Call&), wgmma_commit(const Call&), wgmma_wait(const Call&);
void check_products_at_exit(Warp&);

}  // namespace emulator
