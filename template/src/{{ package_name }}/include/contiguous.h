// Tensors whose elements lie in order and without gaps.

#pragma once

#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>

#include <optional>
#include <vector>

// The tensor itself if it is contiguous (the check is far cheaper than a call through the dispatcher), else a copy.
inline torch::stable::Tensor as_contiguous(const torch::stable::Tensor& tensor) {
  return tensor.is_contiguous() ? tensor : torch::stable::contiguous(tensor);
}

inline std::optional<torch::stable::Tensor> as_contiguous(const std::optional<torch::stable::Tensor>& tensor) {
  return tensor ? std::optional(as_contiguous(*tensor)) : std::nullopt;
}

// A new tensor without values, like a contiguous one. The dispatcher's empty_like takes a microsecond longer.
inline torch::stable::Tensor empty_like_contiguous(const torch::stable::Tensor& tensor) {
  int32_t dtype = 0, device_type = 0;
  TORCH_ERROR_CODE_CHECK(aoti_torch_get_dtype(tensor.get(), &dtype));
  TORCH_ERROR_CODE_CHECK(aoti_torch_get_device_type(tensor.get(), &device_type));
  AtenTensorHandle result = nullptr;
  TORCH_ERROR_CODE_CHECK(aoti_torch_empty_strided(
      tensor.dim(),
      tensor.sizes().data(),
      tensor.strides().data(),
      dtype,
      device_type,
      tensor.get_device_index(),
      &result));
  return torch::stable::Tensor(result);
}

// A new contiguous tensor without values, on another's device, of its dtype unless one is given. PyTorch's new_empty,
// which comes through the dispatcher, takes a microsecond longer.
inline torch::stable::Tensor empty_contiguous(
    const torch::stable::Tensor& like,
    const std::vector<int64_t>& sizes,
    std::optional<torch::headeronly::ScalarType> dtype = std::nullopt) {
  std::vector<int64_t> strides(sizes.size(), 1);
  for (size_t i = sizes.size(); i-- > 1;) {
    strides[i - 1] = strides[i] * (sizes[i] > 0 ? sizes[i] : 1);
  }
  int32_t number = 0, device_type = 0;
  if (dtype) {
    number = torch::stable::detail::to<int32_t>(torch::stable::detail::from(*dtype));
  } else {
    TORCH_ERROR_CODE_CHECK(aoti_torch_get_dtype(like.get(), &number));
  }
  TORCH_ERROR_CODE_CHECK(aoti_torch_get_device_type(like.get(), &device_type));
  AtenTensorHandle result = nullptr;
  TORCH_ERROR_CODE_CHECK(aoti_torch_empty_strided(
      sizes.size(), sizes.data(), strides.data(), number, device_type, like.get_device_index(), &result));
  return torch::stable::Tensor(result);
}
