// A tensor's elements in order and without gaps.

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
