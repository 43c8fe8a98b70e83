// Argument checks for an op's C++ entry. Each error names the argument, what it got and what it takes.

#pragma once

#include <torch/csrc/stable/tensor.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <initializer_list>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

namespace checks {

using torch::headeronly::ScalarType;
using torch::stable::Tensor;

// A tensor, with the names for error messages.
struct Argument {
  const char* op;
  const char* name;
  const Tensor& tensor;
};

[[noreturn]] inline void refuse(const char* op, const char* name, const std::string& got, const std::string& takes) {
  throw std::runtime_error(std::string(op) + ": " + name + " " + got + "; it takes " + takes);
}

[[noreturn]] inline void refuse(const Argument& argument, const std::string& got, const std::string& takes) {
  refuse(argument.op, argument.name, got, takes);
}

// The same for a number in a tensor that is no place in another one: an IndexError in Python.
[[noreturn]] inline void refuse_place(const Argument& argument, const std::string& got, const std::string& takes) {
  throw std::out_of_range(std::string(argument.op) + ": " + argument.name + " " + got + "; it takes " + takes);
}

// The dtype as Python spells it.
inline std::string name_of(ScalarType dtype) {
  switch (dtype) {
    case ScalarType::Double: return "float64";
    case ScalarType::Float: return "float32";
    case ScalarType::Half: return "float16";
    case ScalarType::BFloat16: return "bfloat16";
    case ScalarType::Long: return "int64";
    case ScalarType::Int: return "int32";
    case ScalarType::Short: return "int16";
    case ScalarType::Char: return "int8";
    case ScalarType::Byte: return "uint8";
    case ScalarType::ComplexFloat: return "complex64";
    case ScalarType::ComplexDouble: return "complex128";
    case ScalarType::Bool: return "bool";
    case ScalarType::Float8_e4m3fn: return "float8_e4m3fn";
    case ScalarType::Float8_e5m2: return "float8_e5m2";
    default: return torch::headeronly::toString(dtype);
  }
}

inline std::string device_of(const Tensor& tensor) {
  return tensor.is_cpu() ? "cpu" : tensor.is_cuda() ? "cuda:" + std::to_string(tensor.get_device_index()) : "another";
}

template <typename Sizes>
std::string shape_text(const Sizes& sizes) {
  std::string text;
  for (const int64_t size : sizes) {
    text += (text.empty() ? "" : ", ") + std::to_string(size);
  }
  return "(" + text + (sizes.size() == 1 ? ",)" : ")");
}

template <typename Sizes, typename Others>
bool equal(const Sizes& sizes, const Others& others) {
  return std::equal(sizes.begin(), sizes.end(), others.begin(), others.end());
}

inline void dtype_is_one_of(const Argument& argument, std::initializer_list<ScalarType> accepted) {
  const ScalarType dtype = argument.tensor.scalar_type();
  std::string list;
  for (const ScalarType candidate : accepted) {
    if (dtype == candidate) return;
  }
  for (const ScalarType candidate : accepted) {
    list += (list.empty() ? "" : ", ") + name_of(candidate);
  }
  refuse(argument, "has dtype " + name_of(dtype), list);
}

// PyTorch's number of the dtype: enough to compare two, in a tenth of the time of scalar_type().
inline int32_t dtype_number(const Tensor& tensor) {
  int32_t number = 0;
  TORCH_ERROR_CODE_CHECK(aoti_torch_get_dtype(tensor.get(), &number));
  return number;
}

inline int32_t device_type_number(const Tensor& tensor) {
  int32_t number = 0;
  TORCH_ERROR_CODE_CHECK(aoti_torch_get_device_type(tensor.get(), &number));
  return number;
}

inline void same_dtype(const Argument& argument, const Argument& other) {
  if (dtype_number(argument.tensor) != dtype_number(other.tensor)) {
    refuse(
        argument,
        "has dtype " + name_of(argument.tensor.scalar_type()),
        name_of(other.tensor.scalar_type()) + " like " + other.name);
  }
}

inline void same_device(const Argument& argument, const Argument& other) {
  // Python's None, which PyTorch lets pass.
  if (!argument.tensor.defined()) refuse(argument, "is None", "a tensor");
  if (device_type_number(argument.tensor) != device_type_number(other.tensor) ||
      argument.tensor.get_device_index() != other.tensor.get_device_index()) {
    refuse(argument, "is on " + device_of(argument.tensor), device_of(other.tensor) + " like " + other.name);
  }
}

// The same for optional tensors, lists of tensors and every nesting of the two.
inline void same_device(const char* op, const char* name, const Tensor& tensor, const Argument& other) {
  same_device({op, name, tensor}, other);
}

template <typename T>
void same_device(const char* op, const char* name, const std::optional<T>& value, const Argument& other) {
  if (value) same_device(op, name, *value, other);
}

template <typename T>
void same_device(const char* op, const char* name, const std::vector<T>& values, const Argument& other) {
  for (const T& value : values) same_device(op, name, value, other);
}

// Of a tensor that is written to: an expanded one has elements that lie in the same place.
inline void is_not_expanded(const Argument& argument) {
  const auto sizes = argument.tensor.sizes(), strides = argument.tensor.strides();
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (sizes[i] > 1 && strides[i] == 0) {
      refuse(
          argument,
          "is expanded in dimension " + std::to_string(i),
          "a tensor whose elements have places of their own");
    }
  }
}

inline void same_shape(const Argument& argument, const Argument& other) {
  if (!equal(argument.tensor.sizes(), other.tensor.sizes())) {
    refuse(
        argument,
        "has shape " + shape_text(argument.tensor.sizes()),
        shape_text(other.tensor.sizes()) + " like " + other.name);
  }
}

inline void shape_is(const Argument& argument, std::initializer_list<int64_t> shape) {
  if (!equal(argument.tensor.sizes(), shape)) {
    refuse(argument, "has shape " + shape_text(argument.tensor.sizes()), "shape " + shape_text(shape));
  }
}

// ---- Shapes with named sizes. `shape` is their text, such as "B S D/2".

inline void rank_is(const Argument& argument, int64_t rank, const char* shape) {
  if (argument.tensor.dim() != rank) {
    refuse(
        argument, "has shape " + shape_text(argument.tensor.sizes()), std::to_string(rank) + " dimensions, " + shape);
  }
}

inline void rank_is_at_least(const Argument& argument, int64_t rank, const char* shape) {
  if (argument.tensor.dim() < rank) {
    refuse(
        argument,
        "has shape " + shape_text(argument.tensor.sizes()),
        std::to_string(rank) + " dimensions or more, " + shape);
  }
}

inline void shape_is(const Argument& argument, const std::vector<int64_t>& sizes, const char* shape) {
  if (!equal(argument.tensor.sizes(), sizes)) {
    refuse(argument, "has shape " + shape_text(argument.tensor.sizes()), shape_text(sizes) + ", which is " + shape);
  }
}

// The sizes of all dimensions but the last ones.
inline std::vector<int64_t> leading(const Tensor& tensor, int64_t last) {
  const auto sizes = tensor.sizes();
  return std::vector<int64_t>(sizes.begin(), sizes.end() - last);
}

inline std::vector<int64_t> followed_by(std::vector<int64_t> sizes, std::initializer_list<int64_t> more) {
  sizes.insert(sizes.end(), more);
  return sizes;
}

inline int64_t product(const std::vector<int64_t>& sizes) {
  int64_t result = 1;
  for (const int64_t size : sizes) result *= size;
  return result;
}

// A whole number that is a size.
inline int64_t is_size(const char* op, const char* name, int64_t value) {
  if (value < 0) refuse(op, name, "is " + std::to_string(value), "0 or more");
  return value;
}

// A size of the argument `of`.
inline void is_multiple(const char* op, const char* of, const char* name, int64_t value, int64_t divisor) {
  if (divisor == 0 || value % divisor != 0) {
    refuse(
        op, of, std::string("has ") + name + " = " + std::to_string(value), "a multiple of " + std::to_string(divisor));
  }
}

inline void is_at_least(const char* op, const char* name, int64_t value, const char* bound, int64_t least) {
  if (value < least) {
    refuse(op, name, "is " + std::to_string(value), std::string(bound) + " or more, which is " + std::to_string(least));
  }
}

inline void is_at_most(const char* op, const char* name, int64_t value, const char* bound, int64_t most) {
  if (value > most) {
    refuse(op, name, "is " + std::to_string(value), std::string(bound) + " or less, which is " + std::to_string(most));
  }
}

// A tensor that is a single number.
inline void is_scalar(const Argument& argument) {
  if (argument.tensor.dim() != 0) {
    refuse(argument, "has shape " + shape_text(argument.tensor.sizes()), "a tensor without dimensions");
  }
}

// A number as C++ prints it: six digits.
inline std::string number_text(double value) {
  char text[32];
  std::snprintf(text, sizeof(text), "%g", value);
  return text;
}

// Numbers among the arguments. NaN is refused by all of these.
inline void is_finite(const char* op, const char* name, double value) {
  if (!std::isfinite(value)) refuse(op, name, "is " + number_text(value), "a finite number");
}

inline void is_positive(const char* op, const char* name, double value) {
  if (!(value > 0)) refuse(op, name, "is " + number_text(value), "a number above 0");
}

inline void is_between(const char* op, const char* name, double value, double least, double most) {
  if (!(value >= least && value <= most)) {
    refuse(op, name, "is " + number_text(value), "a number from " + number_text(least) + " to " + number_text(most));
  }
}

// A word among the arguments.
inline void is_one_of(
    const char* op, const char* name, const std::string& value, std::initializer_list<const char*> words) {
  std::string list;
  for (const char* word : words) {
    if (value == word) return;
    list += (list.empty() ? "" : ", ") + std::string(word);
  }
  refuse(op, name, "is \"" + value + "\"", list);
}

// For `int[2]` and the like: PyTorch does not check the length that a schema gives.
template <typename T>
void has_length(const char* op, const char* name, const std::vector<T>& values, size_t length) {
  if (values.size() != length) {
    throw std::runtime_error(
        std::string(op) + ": " + name + " has " + std::to_string(values.size()) + " values; it takes " +
        std::to_string(length));
  }
}

template <typename T>
void has_length(const char* op, const char* name, const std::optional<std::vector<T>>& values, size_t length) {
  if (values) has_length(op, name, *values, length);
}

inline void has_dimensions(const Argument& argument, int64_t at_least) {
  if (argument.tensor.dim() < at_least) {
    refuse(
        argument,
        "has " + std::to_string(argument.tensor.dim()) + " dimensions",
        std::to_string(at_least) + " or more");
  }
}

inline void has_dimensions(const Argument& argument, int64_t at_least, int64_t at_most) {
  if (argument.tensor.dim() < at_least || argument.tensor.dim() > at_most) {
    refuse(
        argument,
        "has " + std::to_string(argument.tensor.dim()) + " dimensions",
        at_least == at_most ? std::to_string(at_least) : std::to_string(at_least) + " to " + std::to_string(at_most));
  }
}

// A dimension of the argument, named by another one; negative from the end.
inline void has_dimension(const Argument& argument, const char* name, int64_t dim) {
  const int64_t rank = argument.tensor.dim();
  if (dim < -rank || dim >= rank) {
    refuse(
        argument,
        "has " + std::to_string(rank) + " dimensions and " + name + " is " + std::to_string(dim),
        std::string("a ") + name + " from " + std::to_string(-rank) + " to " + std::to_string(rank - 1));
  }
}

}  // namespace checks
