// Tensors whose elements lie in order and without gaps.

#pragma once

#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>

#include <optional>

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
