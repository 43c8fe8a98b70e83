// Contiguous tensors: as arguments, and new ones for results.

#pragma once

#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>

#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

// The tensor itself if it is contiguous (the check is far cheaper than a call through the dispatcher), else a copy.
inline torch::stable::Tensor as_contiguous(const torch::stable::Tensor& tensor) {
  return tensor.is_contiguous() ? tensor : torch::stable::contiguous(tensor);
}

inline std::optional<torch::stable::Tensor> as_contiguous(const std::optional<torch::stable::Tensor>& tensor) {
  return tensor ? std::optional(as_contiguous(*tensor)) : std::nullopt;
}

// Each of a list.
template <typename Item>
std::vector<Item> as_contiguous(const std::vector<Item>& tensors) {
  std::vector<Item> result;
  for (const Item& tensor : tensors) result.push_back(as_contiguous(tensor));
  return result;
}

template <typename Item>
std::optional<std::vector<Item>> as_contiguous(const std::optional<std::vector<Item>>& tensors) {
  return tensors ? std::optional(as_contiguous(*tensors)) : std::nullopt;
}

// A new, uninitialised tensor on the device of `like`. PyTorch's empty_like and new_empty go through the dispatcher,
// which takes a microsecond longer, and their errors do not say the shape when memory runs out.
inline torch::stable::Tensor empty_strided(
    const torch::stable::Tensor& like, size_t dims, const int64_t* sizes, const int64_t* strides, int32_t dtype) {
  int32_t device_type = 0;
  TORCH_ERROR_CODE_CHECK(aoti_torch_get_device_type(like.get(), &device_type));
  AtenTensorHandle result = nullptr;
  if (aoti_torch_empty_strided(dims, sizes, strides, dtype, device_type, like.get_device_index(), &result)) {
    std::string shape;
    for (size_t i = 0; i < dims; ++i) shape += (i ? ", " : "") + std::to_string(sizes[i]);
    throw std::runtime_error(
        std::string(device_type == aoti_torch_device_type_cuda() ? "CUDA" : "CPU") +
        " out of memory. Tried to allocate a result of shape (" + shape + ")");
  }
  return torch::stable::Tensor(result);
}

// A new tensor of the shape and dtype of a contiguous one.
inline torch::stable::Tensor empty_like_contiguous(const torch::stable::Tensor& tensor) {
  int32_t dtype = 0;
  TORCH_ERROR_CODE_CHECK(aoti_torch_get_dtype(tensor.get(), &dtype));
  return empty_strided(tensor, tensor.dim(), tensor.sizes().data(), tensor.strides().data(), dtype);
}

// A new contiguous tensor of the given sizes; `dtype` is that of `like` by default.
inline torch::stable::Tensor empty_contiguous(
    const torch::stable::Tensor& like,
    const std::vector<int64_t>& sizes,
    std::optional<torch::headeronly::ScalarType> dtype = std::nullopt) {
  std::vector<int64_t> strides(sizes.size(), 1);
  for (size_t i = sizes.size(); i-- > 1;) {
    strides[i - 1] = strides[i] * (sizes[i] > 0 ? sizes[i] : 1);
  }
  int32_t number = 0;
  if (dtype) {
    number = torch::stable::detail::to<int32_t>(torch::stable::detail::from(*dtype));
  } else {
    TORCH_ERROR_CODE_CHECK(aoti_torch_get_dtype(like.get(), &number));
  }
  return empty_strided(like, sizes.size(), sizes.data(), strides.data(), number);
}

// The same, or a tensor of shape (0,) where nobody needs it.
inline torch::stable::Tensor empty_if(
    bool is_needed,
    const torch::stable::Tensor& like,
    const std::vector<int64_t>& sizes,
    std::optional<torch::headeronly::ScalarType> dtype = std::nullopt) {
  return empty_contiguous(like, is_needed ? sizes : std::vector<int64_t>{0}, dtype);
}
