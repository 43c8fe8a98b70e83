#include "ptx.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>

namespace emulator {

namespace {

// ---- Simple instructions --------------------------------------------------------------------------------------

void no_operation(const Call&) {}

void move(const Call& call) {
  call.set(0, call.get(1));
}

float flushed(float x) {
  return std::fpclassify(x) == FP_SUBNORMAL ? std::copysign(0.0f, x) : x;
}

template <float (*kFunction)(float)>
void apply(const Call& call) {
  const bool flushes = call.has("ftz");
  const float x = call.get_float(1), y = kFunction(flushes ? flushed(x) : x);
  call.set_float(0, flushes ? flushed(y) : y);
}

float power_of_two(float x) {
  return std::exp2(x);
}
float logarithm(float x) {
  return std::log2(x);
}
float hyperbolic_tangent(float x) {
  return std::tanh(x);
}
float reciprocal(float x) {
  return 1 / x;
}
float reciprocal_root(float x) {
  return 1 / std::sqrt(x);
}

void maximum(const Call& call) {
  const float a = call.get_float(1), b = call.get_float(2);
  const bool nan = call.has("NaN") && (a != a || b != b);
  call.set_float(0, nan ? NAN : std::fmax(a, b));
}

void select(const Call& call) {
  call.set(0, call.get(call.get(3) ? 1 : 2));
}

void set_predicate(const Call& call) {
  const int64_t a = int32_t(call.get(1)), b = int32_t(call.get(2));
  call.set(0, call.has("ne") ? a != b : call.has("eq") ? a == b : call.has("lt") ? a < b : a > b);
}

// Converts two floats to a pair of 16-bit numbers, the first in the upper half.
void convert(const Call& call) {
  const float high = call.get_float(1), low = call.get_float(2);
  uint32_t bits;
  if (call.has("bf16x2")) {
    const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
    memcpy(&bits, &pair, 4);
  } else {
    const __half2 pair = __floats2half2_rn(low, high);
    memcpy(&bits, &pair, 4);
  }
  call.set(0, bits);
}

void add_to_memory(const Call& call) {
  float* place = call.pointer<float>(0);
  for (size_t i = 0; i < call.words(1); ++i) place[i] += call.get_float(1, i);
}

uint32_t* words_in_memory(const Call& call, size_t pointer, size_t words) {
  uint32_t* const place = call.pointer<uint32_t>(pointer);
  if (reinterpret_cast<uintptr_t>(place) % (4 * words)) {
    fail("'%s' at an address that is not a multiple of its size", call.instruction.text.c_str());
  }
  return place;
}

void load_words(const Call& call) {
  const uint32_t* const from = words_in_memory(call, 1, call.words(0));
  for (size_t i = 0; i < call.words(0); ++i) call.set(0, i, from[i]);
}

void store_words(const Call& call) {
  uint32_t* const to = words_in_memory(call, 0, call.words(1));
  for (size_t i = 0; i < call.words(1); ++i) to[i] = uint32_t(call.get(1, i));
}

void map_to_block(const Call& call) {
  const uint64_t rank = call.get(2);
  if (rank >= block().cluster->blocks.size()) fail("mapa: the cluster has no block %d", int(rank));
  Block& other = *block().cluster->blocks[rank];
  if (other.live == 0) fail("mapa: block %d of the cluster has ended", int(rank));
  if (call.has("shared::cluster")) return call.set(0, call.get(1) | (rank + 1) << kRankShift);
  const auto offset = address_in_window(reinterpret_cast<const void*>(call.get(1)));
  call.set(0, reinterpret_cast<uint64_t>(other.shared + offset));
}

struct Entry {
  const char* prefix;
  void (*handler)(const Call&);
};

// Handlers by instruction, each a prefix of its names; the longest prefix that fits is used.
constexpr Entry kInstructions[] = {
    {"mov", move},
    {"mapa", map_to_block},
    {"selp", select},
    {"setp", set_predicate},
    {"cvt.rn.bf16x2.f32", convert},
    {"cvt.rn.f16x2.f32", convert},
    {"ex2.approx", apply<power_of_two>},
    {"lg2.approx", apply<logarithm>},
    {"tanh.approx", apply<hyperbolic_tangent>},
    {"rcp.approx", apply<reciprocal>},
    {"rsqrt.approx", apply<reciprocal_root>},
    {"max", maximum},
    {"ld.global", load_words},
    {"st.global", store_words},
    {"red.global.add", add_to_memory},
    {"red.relaxed.gpu.global.add", add_to_memory},
    {"fence", no_operation},
    {"fence.proxy.async", fence_async},
    {"fence.mbarrier_init", fence_mbarriers},
    {"membar", no_operation},
    {"prefetch", no_operation},
    {"createpolicy", no_operation},
    {"griddepcontrol", no_operation},
    {"bar", named_barrier},
    {"barrier", named_barrier},
    {"barrier.cluster.arrive", cluster_arrive},
    {"barrier.cluster.wait", cluster_wait},
    {"setmaxnreg", set_registers},
    {"mbarrier.init", mbarrier_init},
    {"mbarrier.inval", no_operation},
    {"mbarrier.arrive", mbarrier_arrive},
    {"mbarrier.expect_tx", mbarrier_expect},
    {"mbarrier.try_wait", mbarrier_wait},
    {"mbarrier.test_wait", mbarrier_wait},
    {"cp.async", cp_async},
    {"cp.async.commit_group", cp_async_commit},
    {"cp.async.wait_group", cp_async_wait},
    {"cp.async.wait_all", cp_async_wait},
    {"cp.async.bulk", bulk_load},
    {"cp.async.bulk.global.shared::cta", bulk_store},
    {"cp.reduce.async.bulk.global.shared::cta", bulk_store},
    {"cp.async.bulk.commit_group", bulk_commit},
    {"cp.async.bulk.wait_group", bulk_wait},
    {"cp.async.bulk.prefetch", no_operation},
    {"cp.async.bulk.tensor", tensor_load},
    {"cp.async.bulk.tensor.2d.global", tensor_store},
    {"cp.async.bulk.tensor.3d.global", tensor_store},
    {"cp.async.bulk.tensor.4d.global", tensor_store},
    {"cp.async.bulk.tensor.5d.global", tensor_store},
    {"cp.reduce.async.bulk.tensor", tensor_store},
    {"ldmatrix", ldmatrix},
    {"stmatrix", stmatrix},
    {"movmatrix", movmatrix},
    {"mma.sync", mma},
    {"wgmma.mma_async", wgmma},
    {"wgmma.fence", wgmma_fence},
    {"wgmma.commit_group", wgmma_commit},
    {"wgmma.wait_group", wgmma_wait},
};

void unknown(const Call& call) {
  fail("the emulator does not know the instruction '%s'", call.instruction.text.c_str());
}

// ---- Parsing --------------------------------------------------------------------------------------------------

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && isspace(text.front())) text.remove_prefix(1);
  while (!text.empty() && isspace(text.back())) text.remove_suffix(1);
  return text;
}

// Splits at a separator outside braces and brackets.
std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  int depth = 0;
  size_t begin = 0;
  for (size_t i = 0; i <= text.size(); ++i) {
    if (i == text.size() || (text[i] == separator && depth == 0)) {
      if (const auto part = trimmed(text.substr(begin, i - begin)); !part.empty()) parts.push_back(part);
      begin = i + 1;
    } else {
      depth += (text[i] == '{' || text[i] == '[') - (text[i] == '}' || text[i] == ']');
    }
  }
  return parts;
}

struct Parser {
  Program& program;
  std::vector<std::string> registers;  // Their names.

  Word word(std::string_view text) {
    const std::string copy(text);
    if (text.starts_with("%%")) return {Word::kSpecial, uint64_t(text == "%%cluster_nctarank")};
    if (text[0] == '%') return {Word::kArgument, strtoull(copy.c_str() + 1, nullptr, 10)};
    if (text.starts_with("0f")) return {Word::kNumber, strtoull(copy.c_str() + 2, nullptr, 16)};
    if (isdigit(text[0]) || text[0] == '-') return {Word::kNumber, uint64_t(strtoll(copy.c_str(), nullptr, 0))};
    const auto name = std::find(registers.begin(), registers.end(), copy);
    if (name == registers.end()) fail("assembly names '%s', which it does not declare", copy.c_str());
    return {Word::kRegister, uint64_t(name - registers.begin())};
  }

  void words(std::string_view text, std::vector<Word>& into) {
    for (const auto part : split(text, ',')) {
      if (part[0] == '{' || part[0] == '[') {
        words(part.substr(1, part.size() - 2), into);
      } else {
        into.push_back(word(part));
      }
    }
  }

  void declare(std::string_view text) {
    for (const auto name : split(text.substr(text.find_first_of(" \t", text.find_first_of(" \t") + 1)), ',')) {
      registers.emplace_back(name);
    }
  }

  void statement(std::string_view text) {
    if (text.starts_with(".reg")) return declare(text);
    Instruction instruction;
    instruction.text = text;
    if (text[0] == '@') {
      const size_t end = text.find_first_of(" \t");
      instruction.guard_value = text[1] != '!';
      instruction.guard = word(text.substr(instruction.guard_value ? 1 : 2, end - 1 - !instruction.guard_value)).value;
      text = trimmed(text.substr(end));
    }
    const size_t end = std::min(text.find_first_of(" \t\n"), text.size());
    const std::string_view name = text.substr(0, end);
    for (const auto part : split(name, '.')) instruction.parts.emplace_back(part);
    size_t longest = 0;
    instruction.handler = unknown;
    for (const Entry& entry : kInstructions) {
      const std::string_view prefix = entry.prefix;
      const bool whole = name == prefix || (name.starts_with(prefix) && name[prefix.size()] == '.');
      if (whole && prefix.size() > longest) longest = prefix.size(), instruction.handler = entry.handler;
    }
    for (const auto operand : split(text.substr(end), ',')) {
      instruction.operands.emplace_back();
      if (operand != "_") words(operand, instruction.operands.back());
    }
    program.instructions.push_back(std::move(instruction));
  }
};

uint64_t special_register(uint64_t is_block_count) {
  return is_block_count ? block().cluster->blocks.size() : block().rank;
}

}  // namespace

Program* parse(const char* assembly) {
  auto* program = new Program;
  std::string_view text = trimmed(assembly);
  // A pair of braces around all of it is a scope, not an operand.
  if (text.starts_with('{') && text.ends_with('}')) text = text.substr(1, text.size() - 2);
  Parser parser{*program, {}};
  for (const auto statement : split(text, ';')) parser.statement(statement);
  program->registers = parser.registers.size();
  return program;
}

void execute(const Program& program, const Operand* arguments) {
  uint64_t registers[16] = {};
  if (program.registers > 16) fail("more registers in an asm statement than the emulator has");
  for (const Instruction& instruction : program.instructions) {
    if (instruction.guard >= 0 && bool(registers[instruction.guard]) != instruction.guard_value) continue;
    instruction.handler({instruction, arguments, registers});
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
  const Word& source = instruction.operands.at(operand).at(word);
  switch (source.kind) {
    case Word::kNumber: return source.value;
    case Word::kRegister: return registers[source.value];
    case Word::kSpecial: return special_register(source.value);
    case Word::kArgument: break;
  }
  const Operand& argument = arguments[source.value];
  if (!argument.target) return argument.bits;
  uint64_t bits = 0;
  memcpy(&bits, argument.target, argument.bytes);
  return bits;
}

void* Call::target(size_t operand, size_t word) const {
  const Word& destination = instruction.operands.at(operand).at(word);
  if (destination.kind != Word::kArgument || !arguments[destination.value].target) {
    fail("'%s' writes to what is no output of the asm statement", instruction.text.c_str());
  }
  return arguments[destination.value].target;
}

void Call::set(size_t operand, size_t word, uint64_t bits) const {
  const Word& destination = instruction.operands.at(operand).at(word);
  if (destination.kind == Word::kRegister) {
    registers[destination.value] = bits;
  } else {
    memcpy(target(operand, word), &bits, arguments[destination.value].bytes);
  }
}

// ---- Warps ----------------------------------------------------------------------------------------------------

void synchronise_warp(uint32_t mask) {
  execute_together(mask, "syncwarp", nullptr, [](Warp&, void* const*) {});
}

uint64_t exchange(const char* name, uint32_t mask, uint64_t bits, int source) {
  struct Exchange {
    uint64_t bits, result;
    int source;
  } own{bits, 0, source};
  execute_together(mask, name, &own, [](Warp&, void* const* arguments) {
    for (int lane = 0; lane < kLanes; ++lane) {
      if (!arguments[lane]) continue;
      auto& exchange = *static_cast<Exchange*>(arguments[lane]);
      const auto* other = static_cast<const Exchange*>(arguments[exchange.source % kLanes]);
      exchange.result = other ? other->bits : ~uint64_t(0);  // Undefined if that lane takes no part.
    }
  });
  return own.result;
}

uint32_t ballot(uint32_t mask, bool vote) {
  struct Vote {
    bool value;
    uint32_t result;
  } own{vote, 0};
  execute_together(mask, "vote", &own, [](Warp&, void* const* arguments) {
    uint32_t all = 0;
    for (int lane = 0; lane < kLanes; ++lane) {
      if (arguments[lane]) all |= uint32_t(static_cast<const Vote*>(arguments[lane])->value) << lane;
    }
    for (int lane = 0; lane < kLanes; ++lane) {
      if (arguments[lane]) static_cast<Vote*>(arguments[lane])->result = all;
    }
  });
  return own.result;
}

}  // namespace emulator
