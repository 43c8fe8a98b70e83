// PTX instructions in inline assembly: an asm statement is parsed once, and then executed by each thread.

#pragma once

#include <algorithm>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "machine.h"
#include "ptx_forms.h"
#include "ptx_types.h"
#include "rounding.h"

namespace emulator {

// One word of an operand: an argument of the asm statement (%0), a number, a register that the assembly declares, or a
// special register.
struct Word {
  enum Kind { kArgument, kNumber, kRegister, kSpecial, kLabel } kind;
  uint64_t value;
  int64_t offset = 0;         // That an address adds.
  bool is_negated = false;    // A predicate, by '!'.
  bool is_predicate = false;  // A register that the assembly declares so.
};

// Of a product of matrices, such as m16n8k16.
struct Shape {
  int m = 0, n = 0, k = 0;
};

struct Instruction {
  std::string text;
  std::vector<std::string> parts;           // The name, split at its dots.
  std::vector<std::vector<Word>> operands;  // Braces or brackets make an operand of several words.
  bool is_guarded = false;                  // By a predicate, and the value that it must have.
  Word guard = {};
  bool guard_value = true;
  Handler handler = nullptr;
  int capability = 0;  // The least that has it.
  // What the parts say.
  std::vector<Type> types;
  Type type = Type::kNone;  // The last.
  Rounding rounding = Rounding::kNearest;
  bool flushes = false, saturates = false;
  Shape shape = {};
  int operation = 0;  // Of instructions that have several: see the handler's file.
  size_t target = 0;  // Of a branch: the index of an instruction.
};

struct Program {
  std::vector<Instruction> instructions;
  size_t registers;
  int needed = 0;  // The least capability that has all its instructions.
};

struct Call;
[[noreturn]] void fail_operand(const Call& call, const char* misuse);
uint64_t special_register(uint64_t number);

// An instruction as a thread executes it.
struct Call {
  const Instruction& instruction;
  const Operand* arguments;  // Of the asm statement,
  const uint64_t* values;    // and the value or the address of each.
  uint64_t* registers;
  uint64_t* carry = nullptr;
  size_t* next = nullptr;  // The index of the instruction that is executed next.

  bool has(std::string_view part) const {
    return std::find(instruction.parts.begin(), instruction.parts.end(), part) != instruction.parts.end();
  }
  // The number after a prefix, in the first part of the name that has both: number("m") is 64 in "m64n16k16".
  int number(std::string_view prefix) const;
  size_t operands() const { return instruction.operands.size(); }
  size_t words(size_t operand) const { return instruction.operands.at(operand).size(); }
  uint64_t get(size_t operand, size_t word = 0) const;
  float get_float(size_t operand, size_t word = 0) const { return std::bit_cast<float>(uint32_t(get(operand, word))); }
  double get_double(size_t operand, size_t word = 0) const { return std::bit_cast<double>(get(operand, word)); }
  template <typename T>
  T* pointer(size_t operand) const {
    return reinterpret_cast<T*>(get(operand));
  }
  // What the asm statement's argument of this number holds.
  uint64_t argument(uint64_t number) const;
  // The address of an output of the asm statement.
  void* target(size_t operand, size_t word = 0) const;
  bool writes(size_t operand, size_t word) const { return instruction.operands.at(operand).size() > word; }
  void set(size_t operand, size_t word, uint64_t bits) const;
  void set(size_t operand, uint64_t bits) const { set(operand, 0, bits); }
  // Of an operand of the type b128: a register of it is two words, an argument of the asm statement ("q") an address.
  unsigned __int128 get_wide(size_t operand) const;
  void set_wide(size_t operand, unsigned __int128 bits) const;
  void set_float(size_t operand, float value) const { set(operand, std::bit_cast<uint32_t>(value)); }
};

// A special register's number, or -1.
int special_register_of(std::string_view name);
[[noreturn]] void fail_unknown(const Call& call);

// ---- Operands: read and written for every lane and register of a matrix, and so here -----------------------------

inline uint64_t Call::argument(uint64_t number) const {
  const Operand& operand = arguments[number];
  if (!operand.is_output) return values[number];
  const void* const place = reinterpret_cast<const void*>(values[number]);
  uint64_t bits = 0;
  if (operand.bytes == 4) {
    memcpy(&bits, place, 4);
  } else {
    memcpy(&bits, place, std::min<size_t>(operand.bytes, 8));
  }
  return bits;
}

inline uint64_t Call::get(size_t operand, size_t word) const {
  if (operand >= instruction.operands.size() || word >= instruction.operands[operand].size()) {
    fail_operand(*this, "has too few operands");
  }
  const Word& source = instruction.operands[operand][word];
  uint64_t bits = 0;
  switch (source.kind) {
    case Word::kNumber: bits = source.value; break;
    case Word::kRegister: bits = registers[source.value]; break;
    case Word::kSpecial: bits = special_register(source.value); break;
    case Word::kLabel: fail_operand(*this, "takes a label for a number");
    case Word::kArgument: bits = argument(source.value); break;
  }
  if (source.is_negated) return !bits;
  return bits + uint64_t(source.offset);
}

inline void* Call::target(size_t operand, size_t word) const {
  const Word& destination = instruction.operands.at(operand).at(word);
  if (destination.kind != Word::kArgument || !arguments[destination.value].is_output) {
    fail_operand(*this, "writes to what is no output of the asm statement");
  }
  return reinterpret_cast<void*>(values[destination.value]);
}

inline void Call::set(size_t operand, size_t word, uint64_t bits) const {
  if (instruction.operands.at(operand).empty()) return;  // '_'
  const Word& destination = instruction.operands[operand].at(word);
  if (destination.kind == Word::kRegister) {
    registers[destination.value] = bits;
    return;
  }
  const size_t bytes = arguments[destination.value].bytes;
  if (bytes == 4) {
    memcpy(target(operand, word), &bits, 4);
  } else {
    memcpy(target(operand, word), &bits, std::min<size_t>(bytes, 8));
  }
}

// Handlers, by the file that defines them; ptx_forms.cpp says which instruction has which.
// ptx.cpp
void no_operation(const Call&), branch(const Call&), trap_thread(const Call&);
// barriers.cpp
void named_barrier(const Call&), cluster_arrive(const Call&), cluster_wait(const Call&), set_registers(const Call&);
void mbarrier_init(const Call&), mbarrier_arrive(const Call&), mbarrier_expect(const Call&), mbarrier_wait(const Call&);
void fence_mbarriers(const Call&), mbarrier_invalidate(const Call&);
// For the copy engine.
// The engine (see clocks.h) of the copies that count at an mbarrier, and the stamp of its phase.
std::pair<uint32_t, Stamp> engine_of(SharedAddress barrier);
void check_known(SharedAddress barrier), complete_bytes(SharedAddress barrier, int64_t bytes);
// For the copies that a thread's cp.async has started: one arrival, which counts when they have arrived.
void expect_copies(SharedAddress barrier, bool increments), arrive_for_copies(SharedAddress barrier);
// copies.cpp
void cp_async_commit(const Call&), cp_async_wait(const Call&);
void bulk_load(const Call&), bulk_send(const Call&), send_registers(const Call&), bulk_store(const Call&);
void bulk_commit(const Call&), bulk_wait(const Call&);
void tensor_load(const Call&), tensor_store(const Call&), fence_async(const Call&);
void check_copies_at_exit(Thread&);
// products.cpp
void ldmatrix(const Call&), stmatrix(const Call&), movmatrix(const Call&), mma(const Call&);
void wgmma(const Call&), wgmma_fence(const Call&), wgmma_commit(const Call&), wgmma_wait(const Call&);
void check_products_at_exit(Warp&);
// ptx_integers.cpp
void add_or_subtract(const Call&), multiply(const Call&), multiply_add(const Call&);
void divide_integers(const Call&), absolute_or_negated(const Call&);
void least_or_most(const Call&), bitwise(const Call&), logic_of_three(const Call&), shift(const Call&);
void funnel_shift(const Call&), permute_bytes(const Call&), count_bits(const Call&), bit_field(const Call&);
void dot_product(const Call&), absolute_difference(const Call&), move(const Call&), find_nth_set(const Call&);
// ptx_floats.cpp
void add_floats(const Call&), multiply_floats(const Call&), fused_multiply_add(const Call&), divide_floats(const Call&);
void unary_floats(const Call&), least_or_most_floats(const Call&), approximate(const Call&), test_property(const Call&);
void copy_sign(const Call&);
// ptx_comparisons.cpp
void set_predicate(const Call&), set_value(const Call&), select(const Call&), select_by_sign(const Call&);
// ptx_conversions.cpp
void convert(const Call&), convert_packed(const Call&), convert_address(const Call&), is_space(const Call&);
// ptx_memory.cpp
// Combines what the target holds with the source, by the operation that the call's name tells.
void reduce_into(const Call&, Type type, char* target, const char* source, size_t bytes);
void load(const Call&), store(const Call&), atomic(const Call&), fence_memory(const Call&), map_to_block(const Call&);
void block_rank_of(const Call&), discard(const Call&), make_policy(const Call&);
// ptx_warps.cpp
void shuffle(const Call&), vote(const Call&), match(const Call&), reduce(const Call&), active_mask(const Call&);
void elect(const Call&), warp_barrier(const Call&), reduce_at_barrier(const Call&), pause_thread(const Call&);
// ptx_asynchronous.cpp
void cp_async(const Call&), cp_async_arrive(const Call&);

}  // namespace emulator
