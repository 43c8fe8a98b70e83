// The tensors of attention, as CUDA kernels read them. T is float16 or bfloat16, a head's rows are as in View.

#pragma once

#include <cuda_runtime_api.h>
// Before 2.12, tensor.h does not include this.
#include <torch/csrc/stable/macros.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>

#include <algorithm>
#include <atomic>
#include <limits>
#include <type_traits>

#include "attention_options.h"
#include "attention_views.h"
#include "checks.h"
#include "dtypes.h"
#include "memory_rate.h"

namespace attention {

constexpr int64_t kMaxHeads = 65535;  // The limit of a grid's second dimension.

inline int device_attribute(const Tensor& tensor, cudaDeviceAttr which) {
  int value = 0;
  STD_CUDA_CHECK(cudaDeviceGetAttribute(&value, which, tensor.get_device_index()));
  return value;
}

// See memory_rate.h. Asked for once for each device.
inline double memory_bytes_a_cycle(const Tensor& tensor) {
  constexpr int kDevices = 64;
  static std::atomic<double> known[kDevices];
  std::atomic<double>& bytes = known[tensor.get_device_index() % kDevices];
  if (bytes == 0) {
    double asked = 0;
    STD_CUDA_CHECK(::memory_bytes_a_cycle(asked, tensor.get_device_index()));
    bytes = asked;
  }
  return bytes;
}

// What CUDA kernels of attention require beyond the checks for every device: compute capability 7.5 in float16, 8.0 in
// other dtypes. The heads are q's second last dimension; `are_compiled` says whether such code was built.
inline void check_cuda(const checks::Argument& q, bool are_compiled) {
  const int64_t heads = q.tensor.size(q.tensor.dim() - 2);
  if (heads > kMaxHeads) {
    checks::refuse(q, "has " + std::to_string(heads) + " heads", std::to_string(kMaxHeads) + " at most on CUDA");
  }
  const dtypes::ScalarType dtype = q.tensor.scalar_type();
  const bool is_16_bit = dtype == dtypes::ScalarType::Half || dtype == dtypes::ScalarType::BFloat16;
  const std::string least = is_16_bit ? "7.5" : "8.0";
  if (!are_compiled) refuse(q.op, "its kernels were not compiled; build for compute capability " + least + " or newer");
  const int major = device_attribute(q.tensor, cudaDevAttrComputeCapabilityMajor);
  if (major >= 8) return;
  const std::string device = checks::device_of(q.tensor);
  if (!is_16_bit || major < 7 || device_attribute(q.tensor, cudaDevAttrComputeCapabilityMinor) < 5) {
    refuse(q.op, device + " is of compute capability below " + least + "; it takes " + least + " or newer");
  }
  if (dtype == dtypes::ScalarType::BFloat16) {
    checks::refuse(q, "is bfloat16 on " + device + ", a GPU of compute capability below 8.0", "float16 there");
  }
}

// Whether kernels can read the tensor (…, row, head, dimension) in place: the elements of a head are contiguous, and
// every head is at a multiple of 16 bytes.
inline bool is_readable(const Tensor& tensor) {
  const int64_t last = tensor.dim() - 1;
  bool fits = reinterpret_cast<uintptr_t>(tensor.const_data_ptr()) % 16 == 0 && tensor.stride(last) == 1 &&
              tensor.stride(last - 2) <= std::numeric_limits<int>::max();
  for (int64_t i = 0; i < last; ++i) fits = fits && (tensor.stride(i) % 8 == 0 || tensor.size(i) == 1);
  return fits;
}

// The tensor itself, or a contiguous copy that kernels can read.
inline Tensor readable(const Tensor& tensor) {
  if (is_readable(tensor)) return tensor;
  // contiguous() would return a contiguous tensor at a misaligned address as it is.
  return tensor.is_contiguous() ? torch::stable::clone(tensor) : torch::stable::contiguous(tensor);
}

// The tensor (row, head, dimension), or (batch, row, head, dimension).
inline View view_of(const Tensor& tensor) {
  const int64_t row = tensor.dim() - 3;
  const auto stride = [&](int64_t i) { return tensor.size(i) == 1 ? 0 : tensor.stride(i); };
  return {
      const_cast<void*>(tensor.const_data_ptr()),
      row ? stride(0) : 0,
      stride(row + 1),
      static_cast<int>(stride(row)),
      static_cast<int>(tensor.size(row + 2))};
}

// Calls visitor(type) for the element type of 16 bits.
template <typename Visitor>
void visit_type(dtypes::ScalarType dtype, Visitor&& visitor) {
  if (dtype == dtypes::ScalarType::Half) {
    visitor(dtypes::Type<dtypes::Half>());
  } else {
    visitor(dtypes::Type<dtypes::BFloat16>());
  }
}

// Calls visitor(type, D) for the instantiation that heads of `dims` dimensions need.
template <typename Visitor>
void visit_instantiation(dtypes::ScalarType dtype, int64_t dims, Visitor&& visitor) {
  visit_type(dtype, [&](auto type) {
    if (dims <= 64) {
      visitor(type, std::integral_constant<int, 64>());
    } else {
      visitor(type, std::integral_constant<int, 128>());
    }
  });
}

// The same for heads of up to 256 dimensions, and values of `value_dims`. Kernels for up to 128 take one width alone.
template <typename Visitor>
void visit_instantiation(dtypes::ScalarType dtype, int64_t dims, int64_t value_dims, Visitor&& visitor) {
  const int64_t widest = std::max(dims, value_dims);
  if (widest <= 128 && dims == value_dims) return visit_instantiation(dtype, dims, visitor);
  visit_type(dtype, [&](auto type) {
    if (widest <= 192) {
      visitor(type, std::integral_constant<int, 192>());
    } else {
      visitor(type, std::integral_constant<int, 256>());
    }
  });
}

}  // namespace attention
