// The C++ type of a tensor's elements, by its dtype.

#pragma once

#include <torch/csrc/stable/tensor.h>

#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#ifdef USE_CUDA
#include "float_types.cuh"
#else
#include "half.h"
#endif

namespace dtypes {

using torch::headeronly::ScalarType;

// The element types of 16-bit floating-point tensors: in the CUDA library those of float_types.cuh; on the CPU float16
// is half.h's and bfloat16 is PyTorch's.
#ifdef USE_CUDA
using Half = float16;
using BFloat16 = bfloat16;
#else
using BFloat16 = torch::headeronly::BFloat16;
#endif

template <typename T>
struct Type {
  using type = T;
};

// Calls visitor(Type<T>()) with the element type T of a floating-point dtype. The caller refuses other dtypes first.
template <typename Visitor>
void visit_floating(ScalarType dtype, Visitor&& visitor) {
  switch (dtype) {
    case ScalarType::Float: return visitor(Type<float>());
    case ScalarType::Double: return visitor(Type<double>());
    case ScalarType::Half: return visitor(Type<Half>());
    case ScalarType::BFloat16: return visitor(Type<BFloat16>());
    default: throw std::runtime_error("no kernel for dtype " + std::string(torch::headeronly::toString(dtype)));
  }
}

// The same with int32_t or int64_t.
template <typename Visitor>
void visit_integers(ScalarType dtype, Visitor&& visitor) {
  switch (dtype) {
    case ScalarType::Int: return visitor(Type<int32_t>());
    case ScalarType::Long: return visitor(Type<int64_t>());
    default: throw std::runtime_error("no kernel for dtype " + std::string(torch::headeronly::toString(dtype)));
  }
}

// The element type of a dtype.
template <ScalarType dtype>
struct Element;

#define ELEMENT_OF(dtype, element) \
  template <> \
  struct Element<ScalarType::dtype> : Type<element> {};
ELEMENT_OF(Float, float)
ELEMENT_OF(Double, double)
ELEMENT_OF(Half, Half)
ELEMENT_OF(BFloat16, BFloat16)
ELEMENT_OF(Char, int8_t)
ELEMENT_OF(Byte, uint8_t)
ELEMENT_OF(Short, int16_t)
ELEMENT_OF(Int, int32_t)
ELEMENT_OF(Long, int64_t)
ELEMENT_OF(Bool, bool)
#undef ELEMENT_OF

// The same with one of these dtypes: visit<ScalarType::Half, ScalarType::BFloat16>(dtype, visitor). Only they are
// compiled.
template <ScalarType... accepted, typename Visitor>
void visit(ScalarType dtype, Visitor&& visitor) {
  const bool is_one = ((dtype == accepted && (visitor(Type<typename Element<accepted>::type>()), true)) || ...);
  if (!is_one) throw std::runtime_error("no kernel for dtype " + std::string(torch::headeronly::toString(dtype)));
}

template <typename T>
const T* data(const torch::stable::Tensor& tensor) {
  return static_cast<const T*>(tensor.const_data_ptr());
}

// Null where there is no tensor.
template <typename T>
const T* data(const std::optional<torch::stable::Tensor>& tensor) {
  return tensor ? data<T>(*tensor) : nullptr;
}

// Of a list of tensors, or of optional ones.
template <typename T, typename Item>
std::vector<const T*> data(const std::vector<Item>& tensors) {
  std::vector<const T*> pointers;
  for (const Item& tensor : tensors) pointers.push_back(data<T>(tensor));
  return pointers;
}

template <typename T, typename Item>
std::vector<const T*> data(const std::optional<std::vector<Item>>& tensors) {
  return tensors ? data<T>(*tensors) : std::vector<const T*>();
}

template <typename T>
T* mutable_data(const torch::stable::Tensor& tensor) {
  return static_cast<T*>(tensor.mutable_data_ptr());
}

}  // namespace dtypes

#ifndef USE_CUDA
// As float_types.cuh spells them.
using float16 = dtypes::Half;
using bfloat16 = dtypes::BFloat16;
using float32 = float;
#endif
