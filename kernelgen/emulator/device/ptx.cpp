// Which function executes which instruction, and the execution of an asm statement.

#include "ptx.h"

#include <algorithm>

#include "accesses.h"

namespace emulator {

namespace {

void no_operation(const Call&) {}

void branch(const Call& call) {
  *call.next = call.instruction.target;
}

void trap_thread(const Call& call) {
  fail("the kernel executed '%s'", call.instruction.text.c_str());
}

struct Entry {
  const char* prefix;
  Handler handler;
  int capability;  // The least that has it; below 75 is not told apart.
};

// Handlers by instruction, each a prefix of its names; the longest prefix that fits is used.
constexpr Entry kInstructions[] = {
    {"mov", move, 0},
    {"add", add, 0},
    {"addc", add, 0},
    {"sub", subtract, 0},
    {"subc", subtract, 0},
    {"mul", multiply, 0},
    {"mul24", multiply, 0},
    {"mad", multiply_add, 0},
    {"madc", multiply_add, 0},
    {"mad24", multiply_add, 0},
    {"fma", fused_multiply_add, 0},
    {"div", divide, 0},
    {"rem", remainder, 0},
    {"abs", absolute, 0},
    {"neg", negate, 0},
    {"min", least_or_most, 0},
    {"max", least_or_most, 0},
    {"and", bitwise, 0},
    {"or", bitwise, 0},
    {"xor", bitwise, 0},
    {"not", bitwise, 0},
    {"cnot", bitwise, 0},
    {"lop3", logic_of_three, 0},
    {"shl", shift, 0},
    {"shr", shift, 0},
    {"shf", funnel_shift, 0},
    {"prmt", permute_bytes, 0},
    {"popc", count_bits, 0},
    {"clz", count_bits, 0},
    {"brev", count_bits, 0},
    {"bfind", count_bits, 0},
    {"fns", find_nth_set, 0},
    {"bfe", bit_field, 0},
    {"bfi", bit_field, 0},
    {"bmsk", bit_field, 0},
    {"szext", bit_field, 0},
    {"dp4a", dot_product, 0},
    {"dp2a", dot_product, 0},
    {"sad", absolute_difference, 0},
    {"copysign", copy_sign, 0},
    {"testp", test_property, 0},
    {"sqrt", unary_floats, 0},
    {"rcp", unary_floats, 0},
    {"rcp.approx", approximate, 0},
    {"sqrt.approx", approximate, 0},
    {"rsqrt.approx", approximate, 0},
    {"ex2.approx", approximate, 0},
    {"lg2.approx", approximate, 0},
    {"sin.approx", approximate, 0},
    {"cos.approx", approximate, 0},
    {"tanh.approx", approximate, 75},
    {"setp", set_predicate, 0},
    {"set", set_value, 0},
    {"selp", select, 0},
    {"slct", select_by_sign, 0},
    {"cvt", convert, 0},
    {"cvt.pack", nullptr, 0},
    {"cvta", convert_address, 0},
    {"isspacep", is_space, 0},
    {"ld", load, 0},
    {"ldu", load, 0},
    {"st", store, 0},
    {"st.async", nullptr, 90},
    {"st.bulk", nullptr, 100},
    {"atom", atomic, 0},
    {"red", atomic, 0},
    {"red.async", nullptr, 90},
    {"mapa", map_to_block, 90},
    {"getctarank", block_rank_of, 90},
    {"fence", fence_memory, 0},
    {"membar", fence_memory, 0},
    {"fence.proxy", no_operation, 0},
    {"fence.proxy.async", fence_async, 90},
    {"fence.mbarrier_init", fence_mbarriers, 90},
    {"prefetch", prefetch, 0},
    {"prefetchu", prefetch, 0},
    {"applypriority", no_operation, 80},
    {"discard", no_operation, 80},
    {"createpolicy", no_operation, 80},
    {"griddepcontrol", no_operation, 90},
    {"nanosleep", pause_thread, 0},
    {"pmevent", no_operation, 0},
    {"bra", branch, 0},
    {"trap", trap_thread, 0},
    {"shfl.sync", shuffle, 0},
    {"vote.sync", vote, 0},
    {"match.any.sync", match, 0},
    {"match.all.sync", match, 0},
    {"redux.sync", reduce, 80},
    {"activemask", active_mask, 0},
    {"elect.sync", elect, 90},
    {"bar.warp.sync", warp_barrier, 0},
    {"bar", named_barrier, 0},
    {"barrier", named_barrier, 0},
    {"bar.red", reduce_at_barrier, 0},
    {"bar.cta.red", reduce_at_barrier, 0},
    {"barrier.red", reduce_at_barrier, 0},
    {"barrier.cta.red", reduce_at_barrier, 0},
    {"barrier.cluster.arrive", cluster_arrive, 90},
    {"barrier.cluster.wait", cluster_wait, 90},
    {"setmaxnreg", set_registers, 90},
    {"mbarrier.init", mbarrier_init, 80},
    {"mbarrier.inval", mbarrier_invalidate, 80},
    {"mbarrier.arrive", mbarrier_arrive, 80},
    {"mbarrier.expect_tx", mbarrier_expect, 90},
    {"mbarrier.try_wait", mbarrier_wait, 90},
    {"mbarrier.test_wait", mbarrier_wait, 80},
    {"cp.async", cp_async_any, 80},
    {"cp.async.commit_group", cp_async_commit, 80},
    {"cp.async.wait_group", cp_async_wait, 80},
    {"cp.async.wait_all", cp_async_wait, 80},
    {"cp.async.mbarrier.arrive", cp_async_arrive, 80},
    {"cp.async.bulk", bulk_load, 90},
    {"cp.async.bulk.global.shared::cta", bulk_store, 90},
    {"cp.reduce.async.bulk.global.shared::cta", bulk_store, 90},
    {"cp.async.bulk.commit_group", bulk_commit, 90},
    {"cp.async.bulk.wait_group", bulk_wait, 90},
    {"cp.async.bulk.prefetch", no_operation, 90},
    {"cp.async.bulk.tensor", tensor_load, 90},
    {"cp.async.bulk.tensor.1d.global", tensor_store, 90},
    {"cp.async.bulk.tensor.2d.global", tensor_store, 90},
    {"cp.async.bulk.tensor.3d.global", tensor_store, 90},
    {"cp.async.bulk.tensor.4d.global", tensor_store, 90},
    {"cp.async.bulk.tensor.5d.global", tensor_store, 90},
    {"cp.reduce.async.bulk.tensor", tensor_store, 90},
    {"ldmatrix", ldmatrix, 75},
    {"stmatrix", stmatrix, 90},
    {"movmatrix", movmatrix, 75},
    {"mma.sync", mma, 0},
    {"wgmma.mma_async", wgmma, 90},
    {"wgmma.fence", wgmma_fence, 90},
    {"wgmma.commit_group", wgmma_commit, 90},
    {"wgmma.wait_group", wgmma_wait, 90},
};

// Parts of a name that need more than the instruction itself does.
struct Need {
  std::string_view instruction, part;
  int capability;
};
constexpr Need kNeeds[] = {
    {"", "shared::cluster", 90}, {"", "cluster", 90},     {"", "multicast::cluster", 90},
    {"", "L2::cache_hint", 80},  {"add", "bf16", 90},     {"add", "bf16x2", 90},
    {"sub", "bf16", 90},         {"sub", "bf16x2", 90},   {"mul", "bf16", 90},
    {"mul", "bf16x2", 90},       {"fma", "bf16", 80},     {"fma", "bf16x2", 80},
    {"fma", "relu", 80},         {"min", "f16", 80},      {"min", "f16x2", 80},
    {"min", "bf16", 80},         {"min", "bf16x2", 80},   {"max", "f16", 80},
    {"max", "f16x2", 80},        {"max", "bf16", 80},     {"max", "bf16x2", 80},
    {"min", "NaN", 80},          {"max", "NaN", 80},      {"min", "s16x2", 90},
    {"min", "u16x2", 90},        {"max", "s16x2", 90},    {"max", "u16x2", 90},
    {"add", "s16x2", 90},        {"add", "u16x2", 90},    {"cvt", "e4m3x2", 89},
    {"cvt", "e5m2x2", 89},       {"cvt", "bf16", 80},     {"cvt", "bf16x2", 80},
    {"cvt", "tf32", 80},         {"cvt", "relu", 80},     {"ex2", "bf16", 90},
    {"ex2", "bf16x2", 90},       {"tanh", "bf16", 90},    {"tanh", "bf16x2", 90},
    {"atom", "bf16", 90},        {"atom", "bf16x2", 90},  {"red", "bf16", 90},
    {"red", "bf16x2", 90},       {"atom", "v2", 90},      {"atom", "v4", 90},
    {"atom", "v8", 90},          {"red", "v2", 90},       {"red", "v4", 90},
    {"red", "v8", 90},           {"atom", "b128", 90},    {"mma", "bf16", 80},
    {"mma", "tf32", 80},         {"mma", "f64", 80},      {"mma", "e4m3", 89},
    {"mma", "e5m2", 89},         {"mma", "m16n8k16", 80}, {"mma", "m16n8k32", 80},
    {"mma", "s4", 75},           {"neg", "bf16", 80},     {"neg", "bf16x2", 80},
    {"abs", "bf16", 80},         {"abs", "bf16x2", 80},
};

}  // namespace

Handler handler_of(const Instruction& instruction, std::string_view name, int& capability) {
  size_t longest = 0;
  Handler handler = nullptr;
  for (const Entry& entry : kInstructions) {
    const std::string_view prefix = entry.prefix;
    const bool whole = name == prefix || (name.starts_with(prefix) && name[prefix.size()] == '.');
    if (!whole || prefix.size() <= longest) continue;
    longest = prefix.size();
    handler = entry.handler;
    capability = entry.capability;
  }
  for (const Need& need : kNeeds) {
    const bool applies = need.instruction.empty() || instruction.parts[0] == need.instruction;
    const auto& parts = instruction.parts;
    if (applies && std::find(parts.begin() + 1, parts.end(), need.part) != parts.end()) {
      capability = std::max(capability, need.capability);
    }
  }
  return handler;
}

void fail_unknown(const Call& call) {
  fail("the emulator does not know this form of the instruction '%s'", call.instruction.text.c_str());
}

void execute(Assembly& assembly, const Operand* arguments) {
  if (!assembly.program) assembly.program = parse(assembly.text, assembly.file, assembly.line);
  const Program& program = *assembly.program;
  constexpr size_t kFew = 48;
  uint64_t few[kFew] = {};
  std::vector<uint64_t> many(program.registers > kFew ? program.registers : 0);
  uint64_t* const registers = many.empty() ? few : many.data();
  uint64_t carry = 0;
  for (size_t next = 0; next < program.instructions.size();) {
    const Instruction& instruction = program.instructions[next++];
    const Call call{instruction, arguments, registers, &carry, &next};
    if (instruction.is_guarded) {
      const Word& guard = instruction.guard;
      uint64_t value = 0;
      if (guard.kind == Word::kRegister) {
        value = registers[guard.value];
      } else if (const Operand& argument = arguments[guard.value]; argument.target) {
        memcpy(&value, argument.target, argument.bytes);
      } else {
        value = argument.bits;
      }
      if ((value != 0) != instruction.guard_value) continue;
    }
    place = __builtin_return_address(0);
    instruction.handler(call);
  }
}

bool Call::has(std::string_view part) const {
  return std::find(instruction.parts.begin(), instruction.parts.end(), part) != instruction.parts.end();
}

int Call::number(std::string_view prefix) const {
  for (const std::string& part : instruction.parts) {
    if (part.starts_with(prefix) && isdigit(part[prefix.size()])) return atoi(part.c_str() + prefix.size());
  }
  fail("'%s' lacks a part that begins with %s", instruction.text.c_str(), prefix.data());
}

uint64_t Call::get(size_t operand, size_t word) const {
  if (operand >= instruction.operands.size() || word >= instruction.operands[operand].size()) {
    fail("'%s' has too few operands", instruction.text.c_str());
  }
  const Word& source = instruction.operands[operand][word];
  uint64_t bits = 0;
  switch (source.kind) {
    case Word::kNumber: bits = source.value; break;
    case Word::kRegister: bits = registers[source.value]; break;
    case Word::kSpecial: bits = special_register(source.value); break;
    case Word::kLabel: fail("'%s' takes a label for a number", instruction.text.c_str());
    case Word::kArgument: {
      const Operand& argument = arguments[source.value];
      if (argument.target) {
        memcpy(&bits, argument.target, std::min(argument.bytes, 8));
      } else {
        bits = argument.bits;
      }
    }
  }
  if (source.is_negated) return !bits;
  return bits + uint64_t(source.offset);
}

void* Call::target(size_t operand, size_t word) const {
  const Word& destination = instruction.operands.at(operand).at(word);
  if (destination.kind != Word::kArgument || !arguments[destination.value].target) {
    fail("'%s' writes to what is no output of the asm statement", instruction.text.c_str());
  }
  return arguments[destination.value].target;
}

void Call::set(size_t operand, size_t word, uint64_t bits) const {
  if (instruction.operands.at(operand).empty()) return;  // '_'
  const Word& destination = instruction.operands[operand].at(word);
  if (destination.kind == Word::kRegister) {
    registers[destination.value] = bits;
  } else {
    memcpy(target(operand, word), &bits, std::min(arguments[destination.value].bytes, 8));
  }
}

}  // namespace emulator
