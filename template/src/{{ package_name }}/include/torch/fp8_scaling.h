// Scales of 8-bit floating-point tensors: their names in arguments, and tensors for them.

#pragma once

#include <torch/csrc/stable/tensor.h>

#include <algorithm>
#include <stdexcept>
#include <string>
#include <vector>

#include "checks.h"
#include "contiguous.h"
#include "dtypes.h"
#include "fp8_rows.h"

namespace fp8 {

using torch::headeronly::ScalarType;
using torch::stable::Tensor;

// Refuses what is no name of a scaling.
inline Scaling scaling_of(const char* op, const std::string& name) {
  if (name == "tensor") return Scaling::kTensor;
  if (name == "row") return Scaling::kRow;
  if (name == "group") return Scaling::kGroup;
  if (name == "block") return Scaling::kBlock;
  checks::refuse(op, "scaling", "is '" + name + "'", "'tensor', 'row', 'group' or 'block'");
}

// The same of rows alone.
inline Scaling scaling_of_rows(const char* op, const std::string& name) {
  if (name == "row") return Scaling::kRow;
  if (name == "group") return Scaling::kGroup;
  checks::refuse(op, "scaling", "is '" + name + "'", "'row' or 'group'");
}

// Whether the dtype of the results is float8_e5m2; refuses other dtypes than that and float8_e4m3fn.
inline bool is_e5m2(const char* op, ScalarType dtype) {
  if (dtype == ScalarType::Float8_e5m2) return true;
  if (dtype == ScalarType::Float8_e4m3fn) return false;
  checks::refuse(op, "dtype", "is " + checks::name_of(dtype), "float8_e4m3fn, float8_e5m2");
}

// Calls visitor(dtypes::Type<T>()) with the element type T of what is quantised: float32, float16 or bfloat16.
template <typename Visitor>
void visit_floating(ScalarType dtype, Visitor&& visitor) {
  switch (dtype) {
    case ScalarType::Float: return visitor(dtypes::Type<float>());
    case ScalarType::Half: return visitor(dtypes::Type<dtypes::Half>());
    default: return visitor(dtypes::Type<dtypes::BFloat16>());
  }
}

inline int64_t groups_of(int64_t elements) {
  return (elements + kGroupLength - 1) / kGroupLength;
}

inline Tensor empty_float(const Tensor& like, const std::vector<int64_t>& sizes, const std::vector<int64_t>& strides) {
  return empty_strided(like, sizes.size(), sizes.data(), strides.data(), aoti_torch_dtype_float32());
}

inline Tensor no_scales(const Tensor& like) {
  return empty_contiguous(like, {0}, ScalarType::Float);
}

// Scales of a contiguous tensor of the given sizes, with the device of `like`. Those of groups lie as a transposed
// matrix, one group of all rows after the other, as matrix products read them.
inline Tensor empty_scales(const Tensor& like, Scaling scaling, std::vector<int64_t> sizes) {
  if (scaling == Scaling::kTensor) return empty_contiguous(like, {}, ScalarType::Float);
  const size_t last = sizes.size() - 1;
  if (scaling == Scaling::kBlock) sizes[last - 1] = groups_of(sizes[last - 1]);
  sizes[last] = scaling == Scaling::kRow ? 1 : groups_of(sizes[last]);
  if (scaling != Scaling::kGroup) return empty_contiguous(like, sizes, ScalarType::Float);
  std::vector<int64_t> strides(sizes.size());
  int64_t rows = 1;
  for (size_t i = last; i-- > 0;) {
    strides[i] = rows;
    rows *= std::max<int64_t>(1, sizes[i]);
  }
  strides[last] = rows;
  return empty_float(like, sizes, strides);
}

// Where the results of rows go.
inline Rows rows_of(const Tensor& codes, const Tensor& scales, int64_t rows, bool e5m2, bool power_of_two) {
  return {dtypes::mutable_data<uint8_t>(codes), dtypes::mutable_data<float>(scales), 1, rows, e5m2, power_of_two};
}

}  // namespace fp8
