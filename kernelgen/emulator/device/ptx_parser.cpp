// The parser of inline assembly.

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>

#include "ptx.h"

namespace emulator {

namespace {

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

std::string without_comments(std::string_view text) {
  std::string result;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text.substr(i, 2) == "//") {
      i = std::min(text.find('\n', i), text.size() - 1);
    } else if (text.substr(i, 2) == "/*") {
      i = std::min(text.find("*/", i + 2), text.size() - 2) + 1;
      result += ' ';
    } else if (text.substr(i, 2) == "%=") {  // A number that differs between copies; names are local here.
      result += '0';
      ++i;
    } else {
      result += text[i];
    }
  }
  return result;
}

bool is_name_character(char c) {
  return isalnum(c) || c == '_' || c == '$' || c == '%';
}

struct Parser {
  Program& program;
  const char* file;
  int line;
  size_t registers = 0;
  struct Register {
    uint64_t number;
    bool is_predicate;
  };
  std::vector<std::map<std::string, Register, std::less<>>> scopes = {{}};
  std::map<std::string, size_t, std::less<>> labels = {};
  std::vector<std::pair<size_t, std::string>> branches = {};  // And the labels that they name.

  [[noreturn]] void reject(std::string_view what, std::string_view text) {
    fail("%s:%d: %.*s '%.*s'", file, line, int(what.size()), what.data(), int(text.size()), text.data());
  }

  void parse(std::string_view text) {
    for (size_t i = 0; i < text.size();) {
      if (isspace(text[i]) || text[i] == ';') {
        ++i;
      } else if (text[i] == '{') {
        scopes.emplace_back();
        ++i;
      } else if (text[i] == '}') {
        if (scopes.size() == 1) reject("assembly closes a scope that it does not open", text);
        scopes.pop_back();
        ++i;
      } else if (const size_t label = label_end(text, i)) {
        labels[std::string(text.substr(i, label - i))] = program.instructions.size();
        i = text.find(':', label) + 1;
      } else {
        const size_t end = std::min(text.find(';', i), text.size());
        statement(trimmed(text.substr(i, end - i)));
        i = end + 1;
      }
    }
    for (const auto& [index, label] : branches) {
      const auto place = labels.find(label);
      if (place == labels.end()) reject("assembly branches to a label that it lacks", label);
      program.instructions[index].target = place->second;
    }
    program.registers = registers;
  }

  // The end of a label that begins at i, or 0.
  static size_t label_end(std::string_view text, size_t i) {
    size_t end = i;
    while (end < text.size() && is_name_character(text[end])) ++end;
    size_t colon = end;
    while (colon < text.size() && isspace(text[colon])) ++colon;
    const bool is_label = end > i && colon < text.size() && text[colon] == ':' && text.substr(colon, 2) != "::";
    return is_label ? end : 0;
  }

  // ---- Words --------------------------------------------------------------------------------------------------

  const Register* register_of(std::string_view name) const {
    for (auto scope = scopes.rbegin(); scope != scopes.rend(); ++scope) {
      if (const auto place = scope->find(name); place != scope->end()) return &place->second;
    }
    return nullptr;
  }

  static Word register_word(const Register& named) {
    Word word = {Word::kRegister, named.number};
    word.is_predicate = named.is_predicate;
    return word;
  }

  static bool is_float_literal(std::string_view text) {
    if (text.empty() || !(isdigit(text[0]) || text[0] == '-' || text[0] == '.')) return false;
    const std::string_view digits = text.substr(text[0] == '-');
    if (digits.starts_with("0x") || digits.starts_with("0X")) return false;
    return text.find_first_of(".eE") != std::string_view::npos;
  }

  Word literal(std::string_view text, const Instruction& instruction) {
    const std::string copy(text);
    if (text.starts_with("0f") || text.starts_with("0F") || text.starts_with("0d") || text.starts_with("0D")) {
      const size_t digits = tolower(text[1]) == 'f' ? 8 : 16;
      if (text.find_first_not_of("0123456789abcdefABCDEF", 2) != std::string_view::npos || text.size() != digits + 2) {
        reject("assembly has a number that the emulator does not know", text);
      }
      const uint64_t bits = strtoull(copy.c_str() + 2, nullptr, 16);
      const bool widens = tolower(text[1]) == 'f' && instruction.type == Type::kF64;
      return {Word::kNumber, widens ? std::bit_cast<uint64_t>(double(std::bit_cast<float>(uint32_t(bits)))) : bits};
    }
    if (is_float_literal(text)) {
      char* end = nullptr;
      const double value = strtod(copy.c_str(), &end);
      if (*end) reject("assembly has a number that the emulator does not know", text);
      if (instruction.type == Type::kF64) return {Word::kNumber, std::bit_cast<uint64_t>(value)};
      return {Word::kNumber, std::bit_cast<uint32_t>(float(value))};
    }
    char* end = nullptr;
    const bool is_binary = text.starts_with("0b");
    const uint64_t value = is_binary        ? strtoull(copy.c_str() + 2, &end, 2)
                           : text[0] == '-' ? uint64_t(strtoll(copy.c_str(), &end, 0))
                                            : strtoull(copy.c_str(), &end, 0);
    if (*end == 'U' || *end == 'u') ++end;
    if (*end) reject("assembly has a number that the emulator does not know", text);
    return {Word::kNumber, value};
  }

  Word word(std::string_view text, const Instruction& instruction) {
    text = trimmed(text);
    if (text.empty()) reject("an operand is empty", instruction.text);
    if (text[0] == '!') {
      Word result = word(text.substr(1), instruction);
      result.is_negated = true;
      return result;
    }
    if (isdigit(text[0]) || text[0] == '-' || text[0] == '.') return literal(text, instruction);
    if (text == "WARP_SZ") return {Word::kNumber, 32};
    if (const size_t sign = text.find_first_of("+-"); sign != std::string_view::npos) {
      Word result = word(text.substr(0, sign), instruction);
      const int64_t offset = int64_t(literal(trimmed(text.substr(sign + 1)), instruction).value);
      result.offset = text[sign] == '-' ? -offset : offset;
      return result;
    }
    if (const Register* named = register_of(text)) return register_word(*named);
    if (text[0] == '%' && text.size() > 1 && isdigit(text[1])) {
      char* end = nullptr;
      const std::string number(text.substr(1));
      const uint64_t argument = strtoull(number.c_str(), &end, 10);
      if (*end) reject("the emulator does not know the operand", text);
      return {Word::kArgument, argument};
    }
    if (text[0] == '%') {
      const std::string_view name = text.substr(text.starts_with("%%") ? 2 : 1);
      if (const Register* named = register_of(name)) return register_word(*named);
      const int number = special_register_of(name);
      if (number < 0) reject("the emulator does not know the special register", text);
      return {Word::kSpecial, uint64_t(number)};
    }
    reject("assembly names what it does not declare", text);
  }

  void words(std::string_view text, std::vector<Word>& into, const Instruction& instruction) {
    for (const auto part : split(text, ',')) {
      if (part[0] == '{' || part[0] == '[') {
        words(part.substr(1, part.size() - 2), into, instruction);
      } else {
        for (const auto alternative : split(part, '|')) {
          // A place for '_' keeps the others in theirs.
          into.push_back(alternative == "_" ? Word{Word::kLabel, 0} : word(alternative, instruction));
        }
      }
    }
  }

  // ---- Statements ---------------------------------------------------------------------------------------------

  // .reg .b32 a, b; or .reg .pred p<4>;
  void declare(std::string_view text) {
    const size_t names = text.find_last_of('.');
    const size_t begin = text.find_first_of(" \t\n", names);
    if (begin == std::string_view::npos) reject("the emulator does not know the declaration", text);
    if (text.find(".v2") != std::string_view::npos || text.find(".v4") != std::string_view::npos) {
      reject("the emulator does not know registers that are vectors", text);
    }
    const std::string_view type = text.substr(names, begin - names);
    const bool is_predicate = type == ".pred";
    const size_t words = type == ".b128" ? 2 : 1;
    for (const auto name : split(text.substr(begin), ',')) {
      const size_t angle = name.find('<');
      const std::string base(name.starts_with("%%") ? name.substr(2, angle - 2) : name.substr(0, angle));
      if (angle == std::string_view::npos) {
        scopes.back()[base] = {registers, is_predicate};
        registers += words;
        continue;
      }
      const int count = atoi(std::string(name.substr(angle + 1)).c_str());
      for (int i = 0; i < count; ++i, registers += words) {
        scopes.back()[base + std::to_string(i)] = {registers, is_predicate};
      }
    }
  }

  std::string_view guard(std::string_view text, Instruction& instruction) {
    text = trimmed(text.substr(1));
    instruction.guard_value = text[0] != '!';
    if (!instruction.guard_value) text = trimmed(text.substr(1));
    const size_t end = std::min(text.find_first_of(" \t\n"), text.size());
    instruction.guard = word(text.substr(0, end), instruction);
    instruction.is_guarded = true;
    return trimmed(text.substr(end));
  }

  void describe(Instruction& instruction) {
    for (const std::string& part : instruction.parts) {
      if (const Type type = type_of(part); type != Type::kNone) instruction.types.push_back(type);
      if (part == "ftz") instruction.flushes = true;
      if (part == "sat") instruction.saturates = true;
      if (part == "rz" || part == "rzi") instruction.rounding = Rounding::kZero;
      if (part == "rp" || part == "rpi") instruction.rounding = Rounding::kUp;
      if (part == "rm" || part == "rmi") instruction.rounding = Rounding::kDown;
      if (Shape shape; sscanf(part.c_str(), "m%dn%dk%d", &shape.m, &shape.n, &shape.k) == 3) instruction.shape = shape;
    }
    if (!instruction.types.empty()) instruction.type = instruction.types.back();
  }

  void statement(std::string_view text) {
    if (text.empty()) return;
    if (text.starts_with(".reg")) return declare(text);
    if (text.starts_with(".pragma") || text.starts_with(".loc")) return;
    Instruction instruction;
    instruction.text = text;
    if (text[0] == '@') text = guard(text, instruction);
    const size_t end = std::min(text.find_first_of(" \t\n"), text.size());
    const std::string_view name = text.substr(0, end);
    for (const auto part : split(name, '.')) instruction.parts.emplace_back(part);
    describe(instruction);
    const Match match = form_of(instruction.parts);
    if (!match.form) reject(match.fault, text);
    instruction.handler = match.form->handler;
    instruction.capability = match.capability;
    program.needed = std::max(program.needed, match.capability);
    const std::string_view rest = trimmed(text.substr(end));
    if (instruction.parts[0] == "bra") {
      branches.emplace_back(program.instructions.size(), std::string(rest));
    } else {
      for (const auto operand : split(rest, ',')) {
        instruction.operands.emplace_back();
        if (operand != "_") words(operand, instruction.operands.back(), instruction);
      }
      const int count = int(instruction.operands.size()) - further_operands(instruction.parts);
      if (count < match.form->least || count > match.form->most) reject("wrong number of operands:", text);
    }
    program.instructions.push_back(std::move(instruction));
  }
};

}  // namespace

Program* parse(const char* assembly, const char* file, int line) {
  auto program = std::make_unique<Program>();
  Parser parser{*program, file, line};
  parser.parse(without_comments(assembly));
  return program.release();
}

}  // namespace emulator
