// The device and the stream that a kernel must be launched on.

#pragma once

#include <torch/csrc/stable/accelerator.h>
#include <torch/csrc/stable/device.h>
#include <torch/csrc/stable/macros.h>
#include <torch/csrc/stable/tensor.h>

#include <cuda_runtime_api.h>

#include <optional>

// Makes a tensor's device, or a given one, current for a scope, and returns PyTorch's current stream there. A kernel
// launched on another stream races with the work that makes its inputs.
class CudaContext {
 public:
  explicit CudaContext(const torch::stable::Tensor& tensor) : device_(tensor.get_device_index()) {
    // The query is cheaper than a guard, and mostly the device is current already.
    if (torch::stable::accelerator::getCurrentDeviceIndex() != device_) guard_.emplace(device_);
  }

  // A device without an index, or none, means the current one.
  explicit CudaContext(const std::optional<torch::stable::Device>& device)
      : device_(
            device.has_value() && device->has_index() ? device->index()
                                                      : torch::stable::accelerator::getCurrentDeviceIndex()) {
    if (torch::stable::accelerator::getCurrentDeviceIndex() != device_) guard_.emplace(device_);
  }

  // Where outputs are to be allocated.
  torch::stable::Device device() const { return {torch::headeronly::DeviceType::CUDA, device_}; }

  cudaStream_t stream() const {
    void* stream = nullptr;
    TORCH_ERROR_CODE_CHECK(aoti_torch_get_current_cuda_stream(device_, &stream));
    return static_cast<cudaStream_t>(stream);
  }

 private:
  torch::stable::accelerator::DeviceIndex device_;
  std::optional<torch::stable::accelerator::DeviceGuard> guard_;
};
