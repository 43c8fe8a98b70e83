// The C++ type of a tensor's elements, by its dtype.

#pragma once

#include <torch/csrc/stable/tensor.h>

#include <stdexcept>
#include <string>

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

template <typename T>
const T* data(const torch::stable::Tensor& tensor) {
  return static_cast<const T*>(tensor.const_data_ptr());
}

template <typename T>
T* mutable_data(const torch::stable::Tensor& tensor) {
  return static_cast<T*>(tensor.mutable_data_ptr());
}

}  // namespace dtypes
