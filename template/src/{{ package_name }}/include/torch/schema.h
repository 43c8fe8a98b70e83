// Compares a C++ function's type with an operator schema while compiling.
//
// The layer that unpacks an operator's arguments does not check types: a C++ float where the schema says float
// (which is a double) receives garbage. REGISTER_KERNEL in registration.h asserts what this header computes.

#pragma once

#include <torch/csrc/stable/device.h>
#include <torch/csrc/stable/tensor.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <vector>

namespace schema {

using std::string_view;

// What `mismatch` returns besides the number of the first argument that differs.
constexpr int kNone = -1;
constexpr int kArgumentCount = -2;
constexpr int kReturns = -3;

// An operator's name and schema as they lie in a library: two strings, each with its end.
template <size_t kName, size_t kSchema>
struct Built {
  constexpr Built(const char (&name)[kName], const char (&schema)[kSchema]) {
    for (size_t i = 0; i < kName; ++i) text[i] = name[i];
    for (size_t i = 0; i < kSchema; ++i) text[kName + i] = schema[i];
  }

  char text[kName + kSchema] = {};
};

constexpr string_view trim(string_view text) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  return text;
}

constexpr bool ends_with(string_view text, char last) {
  return !text.empty() && text.back() == last;
}

// The position of the first `wanted` outside brackets and string literals, or the text's length.
constexpr size_t find_outside(string_view text, char wanted) {
  int depth = 0;
  char quote = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (quote) {
      if (c == '\\') ++i;
      if (c == quote) quote = 0;
      continue;
    }
    if (depth == 0 && c == wanted) return i;
    if (c == '"' || c == '\'') quote = c;
    if (c == '(' || c == '[') ++depth;
    if (c == ')' || c == ']') --depth;
  }
  return text.size();
}

// The i-th of comma-separated items, leaving out the lone * that begins keyword-only arguments.
constexpr string_view item(string_view list, int i) {
  while (!trim(list).empty()) {
    const size_t comma = find_outside(list, ',');
    const string_view candidate = trim(list.substr(0, comma));
    if (candidate != "*" && i-- == 0) return candidate;
    list = comma < list.size() ? list.substr(comma + 1) : string_view();
  }
  return {};
}

constexpr int count(string_view list) {
  int n = 0;
  while (!item(list, n).empty()) ++n;
  return n;
}

// "float eps=1e-6" -> "float";  "Tensor" -> "Tensor"
constexpr string_view type_of(string_view declaration) {
  declaration = trim(declaration.substr(0, find_outside(declaration, '=')));
  return declaration.substr(0, find_outside(declaration, ' '));
}

// "Tensor(a!)" and "Tensor!" -> "Tensor"
constexpr string_view without_alias(string_view type) {
  if (ends_with(type, '!')) type.remove_suffix(1);
  return type.substr(0, type.find('('));
}

template <typename T>
struct Matches {
  static constexpr bool of(string_view) { return false; }
};

#define SCHEMA_TYPE(cpp, condition) \
  template <> \
  struct Matches<cpp> { \
    static constexpr bool of(string_view type) { return condition; } \
  };
SCHEMA_TYPE(torch::stable::Tensor, without_alias(type) == "Tensor")
SCHEMA_TYPE(int64_t, type == "int" || type == "SymInt")
SCHEMA_TYPE(double, type == "float")
SCHEMA_TYPE(bool, type == "bool" || type == "SymBool")
SCHEMA_TYPE(std::string, type == "str")
SCHEMA_TYPE(std::string_view, type == "str")
SCHEMA_TYPE(torch::headeronly::ScalarType, type == "ScalarType")
SCHEMA_TYPE(torch::headeronly::Layout, type == "Layout")
SCHEMA_TYPE(torch::headeronly::MemoryFormat, type == "MemoryFormat")
SCHEMA_TYPE(torch::stable::Device, type == "Device")
#undef SCHEMA_TYPE

template <typename T>
struct Matches<std::optional<T>> {
  static constexpr bool of(string_view type) {
    return ends_with(type, '?') && Matches<T>::of(type.substr(0, type.size() - 1));
  }
};

template <typename T>
struct Matches<std::vector<T>> {
  static constexpr bool of(string_view type) {
    return ends_with(type, ']') && Matches<T>::of(type.substr(0, type.rfind('[')));
  }
};

template <typename T>
struct Matches<torch::headeronly::HeaderOnlyArrayRef<T>> : Matches<std::vector<T>> {};

template <typename T>
using Plain = std::remove_cv_t<std::remove_reference_t<T>>;

template <typename Return>
struct Returns {
  static constexpr bool match(string_view list) {
    return count(list) == 1 && Matches<Plain<Return>>::of(type_of(item(list, 0)));
  }
};

template <>
struct Returns<void> {
  static constexpr bool match(string_view list) { return count(list) == 0; }
};

template <typename... Types>
struct Returns<std::tuple<Types...>> {
  static constexpr bool match(string_view list) {
    int i = 0;
    return count(list) == int(sizeof...(Types)) && (Matches<Plain<Types>>::of(type_of(item(list, i++))) && ...);
  }
};

template <typename Function>
struct Signature;

template <typename Return, typename... Arguments>
struct Signature<Return(Arguments...)> {
  static constexpr int mismatch(string_view schema) {
    const size_t arrow = schema.rfind("->");
    const string_view declared = trim(schema.substr(0, arrow));
    const string_view arguments = declared.substr(1, declared.size() - 2);
    string_view returns = trim(schema.substr(arrow + 2));
    if (!returns.empty() && returns.front() == '(') returns = returns.substr(1, returns.size() - 2);

    if (count(arguments) != int(sizeof...(Arguments))) return kArgumentCount;
    int i = 0;
    int first = kNone;
    ((Matches<Plain<Arguments>>::of(type_of(item(arguments, i))) || first != kNone ? 0 : (first = i), ++i), ...);
    if (first != kNone) return first;
    return Returns<Return>::match(returns) ? kNone : kReturns;
  }
};

// Where the C++ function type differs from the schema: the number of the argument, counted from 0, or one of the
// constants above.
template <typename Function>
constexpr int mismatch(string_view schema) {
  return Signature<Function>::mismatch(schema);
}

}  // namespace schema
