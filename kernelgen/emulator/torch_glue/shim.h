// PyTorch's own functions, behind those that the linker puts in their place (--wrap): see wrapped.cpp.

#pragma once

#include <torch/csrc/inductor/aoti_torch/generated/c_shim_aten.h>
#include <torch/csrc/stable/c/shim.h>

extern "C" {
int32_t __real_aoti_torch_device_type_cpu();
int32_t __real_aoti_torch_device_type_cuda();
AOTITorchError __real_aoti_torch_get_data_ptr(AtenTensorHandle tensor, void** data);
AOTITorchError __real_aoti_torch_get_device_index(AtenTensorHandle tensor, int32_t* index);
}
