// The execution of an asm statement.

#include "ptx.h"

#include <algorithm>

#include "accesses.h"

namespace emulator {

void no_operation(const Call&) {}

void branch(const Call& call) {
  *call.next = call.instruction.target;
}

void trap_thread(const Call& call) {
  fail("the kernel executed '%s'", call.instruction.text.c_str());
}

void need(int capability, const char* function) {
  if (capability <= machine.capability) return;
  fail("%s needs sm_%d; the emulated GPU is sm_%d", function, capability, machine.capability);
}

void fail_unknown(const Call& call) {
  fail("the emulator does not know this form of the instruction '%s'", call.instruction.text.c_str());
}

namespace {

// A library may run on one GPU after another.
[[noreturn]] void fail_capability(const Assembly& assembly) {
  for (const Instruction& instruction : assembly.program->instructions) {
    if (instruction.capability <= machine.capability) continue;
    fail(
        "%s:%d: '%s' needs sm_%d; the emulated GPU is sm_%d",
        assembly.file,
        assembly.line,
        instruction.text.c_str(),
        instruction.capability,
        machine.capability);
  }
  __builtin_unreachable();
}

}  // namespace

void execute(Assembly& assembly, const uint64_t* values) {
  if (!assembly.program) assembly.program = parse(assembly.text, assembly.file, assembly.line);
  const Program& program = *assembly.program;
  if (program.needed > machine.capability) fail_capability(assembly);
  constexpr size_t kFew = 48;
  uint64_t few[kFew];
  std::vector<uint64_t> many(program.registers > kFew ? program.registers : 0);
  uint64_t* const registers = many.empty() ? few : many.data();
  if (many.empty()) std::fill_n(few, program.registers, 0);
  uint64_t carry = 0;
  for (size_t next = 0; next < program.instructions.size();) {
    const Instruction& instruction = program.instructions[next++];
    const Call call{instruction, assembly.operands, values, registers, &carry, &next};
    if (instruction.is_guarded) {
      const Word& guard = instruction.guard;
      const uint64_t value =
          guard.kind == Word::kRegister ? registers[guard.value] : call.argument(guard.value);
      if ((value != 0) != instruction.guard_value) continue;
    }
    place = __builtin_return_address(0);
    instruction.handler(call);
  }
}

int Call::number(std::string_view prefix) const {
  for (const std::string& part : instruction.parts) {
    if (part.starts_with(prefix) && isdigit(part[prefix.size()])) return atoi(part.c_str() + prefix.size());
  }
  fail("'%s' lacks a part that begins with %s", instruction.text.c_str(), prefix.data());
}

void fail_operand(const Call& call, const char* misuse) {
  fail("'%s' %s", call.instruction.text.c_str(), misuse);
}

unsigned __int128 Call::get_wide(size_t operand) const {
  const Word& source = instruction.operands.at(operand).at(0);
  unsigned __int128 bits = 0;
  if (source.kind == Word::kRegister) {
    memcpy(&bits, registers + source.value, 16);
  } else if (source.kind == Word::kArgument && arguments[source.value].bytes == 16) {
    memcpy(&bits, reinterpret_cast<const void*>(values[source.value]), 16);
  } else {
    fail("'%s' takes 16 bytes", instruction.text.c_str());
  }
  return bits;
}

void Call::set_wide(size_t operand, unsigned __int128 bits) const {
  if (instruction.operands.at(operand).empty()) return;  // '_'
  const Word& destination = instruction.operands[operand].at(0);
  if (destination.kind == Word::kLabel) return;
  if (destination.kind == Word::kRegister) {
    memcpy(registers + destination.value, &bits, 16);
  } else if (arguments[destination.value].bytes == 16) {
    memcpy(target(operand), &bits, 16);
  } else {
    fail("'%s' gives 16 bytes", instruction.text.c_str());
  }
}

}  // namespace emulator