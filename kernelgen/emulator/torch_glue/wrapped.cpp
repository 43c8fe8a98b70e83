// The functions of PyTorch's stable ABI that speak of devices, streams, data and registration, as the glue of an op's
// CUDA entry sees them on the emulated GPU: its CPU tensors look like CUDA tensors of device 0. The linker puts each
// __wrap_NAME in the place of NAME (compiler.py lists them for it); __real_NAME is PyTorch's own.

#include <cuda_runtime_api.h>

#include <cstring>
#include <map>
#include <mutex>
#include <stdexcept>
#include <string>

#include "calls.h"
#include "machine.h"
#include "memory.h"
#include "project.h"
#include "schedule.h"
#include "shim.h"
#include "source_lines.h"
#include "tensors.h"

namespace {

using emulator::machine;

constexpr AOTITorchError kSuccess = 0;

[[noreturn]] void refuse(const std::string& what) {
  throw std::runtime_error("the emulated GPU has no " + what);
}

void check_device(int32_t index) {
  if (index > 0) refuse("device " + std::to_string(index) + ": it is alone");
}

// In the glue's eyes the two types are swapped, so "CUDA" is PyTorch's CPU and "CPU" is PyTorch's CUDA. Replaces the
// second by PyTorch's CPU; says whether it did.
bool is_host(int32_t& device_type) {
  if (device_type != __real_aoti_torch_device_type_cuda()) return false;
  device_type = __real_aoti_torch_device_type_cpu();
  return true;
}

// ---- Registration ---------------------------------------------------------------------------------------------

// The libraries of CUDA kernels. A function's static, since other files register while they are initialised.
std::map<TorchLibraryHandle, bool>& cuda_libraries() {
  static std::map<TorchLibraryHandle, bool> libraries;
  return libraries;
}

std::string plain_name(const char* name) {
  const char* const colon = strrchr(name, ':');
  return colon ? colon + 1 : name;
}

using Kernel = void (*)(StableIValue*, uint64_t, uint64_t);

Kernel kernel_for(TorchLibraryHandle library, const char* name, Kernel kernel) {
  return cuda_libraries()[library] ? emulator::guarded(plain_name(name), kernel) : kernel;
}

// ---- The dispatcher -------------------------------------------------------------------------------------------

// The operators that make a tensor on a device that an argument says.
struct Factory {
  const char *name, *overload;
  int device;  // Which argument.
  bool is_written;
};
constexpr Factory kFactories[] = {
    {"aten::empty", "memory_format", 3, false},
    {"aten::empty_like", "", 3, false},
    {"aten::empty_strided", "", 4, false},
    {"aten::new_empty", "", 4, false},
    {"aten::new_empty_strided", "", 5, false},
    {"aten::new_zeros", "", 4, true},
    {"aten::new_ones", "", 4, true},
    {"aten::new_full", "", 5, true},
    {"aten::zeros", "", 3, true},
    {"aten::zeros_like", "", 3, true},
    {"aten::ones", "", 3, true},
    {"aten::ones_like", "", 3, true},
    {"aten::full", "", 4, true},
    {"aten::full_like", "", 4, true},
    {"aten::arange", "", 3, true},
    {"aten::rand", "", 3, true},
    {"aten::randn", "", 3, true},
    {"aten::to", "dtype_layout", 3, true},
    {"aten::to", "device", 1, true},
};

const Factory* factory_of(const char* name, const char* overload) {
  for (const Factory& factory : kFactories) {
    if (!strcmp(name, factory.name) && !strcmp(overload, factory.overload)) return &factory;
  }
  return nullptr;
}

// A device is its type above and its index below.
bool make_host(StableIValue& device) {
  int32_t type = device >> 32;
  if (!is_host(type)) return false;
  device = StableIValue(uint32_t(type)) << 32 | uint32_t(-1);
  return true;
}

template <typename Call>
AOTITorchError dispatch(const char* name, const char* overload, StableIValue* stack, const Call& call) {
  const Factory* const factory = factory_of(name, overload);
  bool host = false;
  if (factory) {
    StableIValue& device = stack[factory->device];
    const bool is_optional = strcmp(overload, "device") != 0;
    if (!is_optional) {
      host = make_host(device);
    } else if (device) {
      host = make_host(*reinterpret_cast<StableIValue*>(device));
    }
  }
  const AOTITorchError error = call();
  if (error || !factory) return error;
  AtenTensorHandle tensor;
  memcpy(&tensor, stack, sizeof(tensor));
  if (host) {
    emulator::note_host_tensor(tensor);
  } else if (!factory->is_written) {
    emulator::note_new(tensor, false);
  }
  return error;
}

template <typename Make>
AOTITorchError make_tensor(int32_t type, int32_t index, AtenTensorHandle* result, bool is_written, const Make& make) {
  const bool host = is_host(type);
  if (!host) check_device(index);
  const AOTITorchError error = make(type, host ? -1 : 0);
  if (error) return error;
  host ? emulator::note_host_tensor(*result) : emulator::note_new(*result, is_written);
  return error;
}

// The same where the type may be left out.
template <typename Make>
AOTITorchError make_tensor(int32_t* type, int32_t index, AtenTensorHandle* result, bool is_written, const Make& make) {
  int32_t given = type ? *type : __real_aoti_torch_device_type_cpu();
  return make_tensor(given, type ? index : 0, result, is_written, [&](int32_t real, int32_t real_index) {
    return make(type ? &real : nullptr, real_index);
  });
}

int guard_mark, stream_mark;

}  // namespace

#define WRAP(result, name, parameters) \
  result __real_##name parameters; \
  result __wrap_##name parameters

extern "C" {

// ---- Devices --------------------------------------------------------------------------------------------------

int32_t __wrap_aoti_torch_device_type_cpu() {
  return __real_aoti_torch_device_type_cuda();
}

int32_t __wrap_aoti_torch_device_type_cuda() {
  return __real_aoti_torch_device_type_cpu();
}

WRAP(AOTITorchError, aoti_torch_get_device_type, (AtenTensorHandle tensor, int32_t* type)) {
  *type = emulator::is_host_tensor(tensor) ? __real_aoti_torch_device_type_cuda() : __real_aoti_torch_device_type_cpu();
  return kSuccess;
}

AOTITorchError __wrap_aoti_torch_get_device_index(AtenTensorHandle tensor, int32_t* index) {
  *index = emulator::is_host_tensor(tensor) ? -1 : 0;
  return kSuccess;
}

WRAP(AOTITorchError, torch_parse_device_string, (const char* text, uint32_t* type, int32_t* index)) {
  const AOTITorchError error = __real_torch_parse_device_string(text, type, index);
  const uint32_t cpu = __real_aoti_torch_device_type_cpu(), cuda = __real_aoti_torch_device_type_cuda();
  if (!error && (*type == cpu || *type == cuda)) *type = *type == cpu ? cuda : cpu;
  return error;
}

AOTITorchError __wrap_aoti_torch_get_current_device_index(int32_t* index) {
  *index = 0;
  return kSuccess;
}

AOTITorchError __wrap_aoti_torch_create_device_guard(int32_t index, DeviceGuardHandle* guard) {
  check_device(index);
  *guard = reinterpret_cast<DeviceGuardHandle>(&guard_mark);
  return kSuccess;
}

AOTITorchError __wrap_aoti_torch_delete_device_guard(DeviceGuardHandle) {
  return kSuccess;
}

AOTITorchError __wrap_aoti_torch_device_guard_set_index(DeviceGuardHandle, int32_t index) {
  check_device(index);
  return kSuccess;
}

AOTITorchError __wrap_aoti_torch_create_cuda_guard(int32_t index, void** guard) {
  check_device(index);
  *guard = &guard_mark;
  return kSuccess;
}

AOTITorchError __wrap_aoti_torch_delete_cuda_guard(void*) {
  return kSuccess;
}

AOTITorchError __wrap_aoti_torch_cuda_guard_set_index(void*, int32_t index) {
  check_device(index);
  return kSuccess;
}

// ---- Streams: there is one, and each launch on it ends before the next begins -----------------------------------

AOTITorchError __wrap_aoti_torch_get_current_cuda_stream(int32_t index, void** stream) {
  check_device(index);
  *stream = nullptr;
  return kSuccess;
}

AOTITorchError __wrap_aoti_torch_get_current_stream(int32_t index, StreamHandle* stream) {
  check_device(index);
  *stream = reinterpret_cast<StreamHandle>(&stream_mark);
  return kSuccess;
}

AOTITorchError __wrap_aoti_torch_delete_stream(StreamHandle) {
  return kSuccess;
}

AOTITorchError __wrap_aoti_torch_stream_id(StreamHandle, int64_t* id) {
  *id = 0;
  return kSuccess;
}

AOTITorchError __wrap_torch_stream_native_handle(StreamHandle, void** stream) {
  *stream = nullptr;
  return kSuccess;
}

AOTITorchError __wrap_aoti_torch_create_cuda_stream_guard(void*, int32_t index, void** guard) {
  check_device(index);
  *guard = &guard_mark;
  return kSuccess;
}

AOTITorchError __wrap_aoti_torch_delete_cuda_stream_guard(void*) {
  return kSuccess;
}

AOTITorchError __wrap_torch_set_current_cuda_stream(void*, int32_t index) {
  check_device(index);
  return kSuccess;
}

AOTITorchError __wrap_torch_get_cuda_stream_from_pool(bool, int32_t index, void** stream) {
  check_device(index);
  *stream = nullptr;
  return kSuccess;
}

AOTITorchError __wrap_torch_cuda_stream_synchronize(void*, int32_t) {
  return kSuccess;
}

AOTITorchError __wrap_torch_get_current_cuda_blas_handle(void**) {
  refuse("cuBLAS");
}

// ---- Errors ---------------------------------------------------------------------------------------------------

AOTITorchError __wrap_torch_c10_cuda_check_msg(
    int32_t code, const char* file, const char*, uint32_t line, bool, char** message) {
  *message = nullptr;
  if (code == cudaSuccess) return kSuccess;
  const char* const name = strrchr(file, '/');
  std::string text = std::string(cudaGetErrorName(cudaError_t(code))) + " (" + cudaGetErrorString(cudaError_t(code)) +
                     ") on the emulated GPU " + emulated_project::kArchitecture + ", which " +
                     (name ? name + 1 : file) + ":" + std::to_string(line) + " checks";
  if (!machine.launch_error.empty()) text += ": " + machine.launch_error;
  *message = strdup(text.c_str());
  return kSuccess;
}

void __wrap_torch_c10_cuda_free_error_msg(char* message) {
  free(message);
}

// ---- Data -----------------------------------------------------------------------------------------------------

AOTITorchError __wrap_aoti_torch_get_data_ptr(AtenTensorHandle tensor, void** data) {
  emulator::note_used(tensor);
  return __real_aoti_torch_get_data_ptr(tensor, data);
}

WRAP(AOTITorchError, torch_get_mutable_data_ptr, (AtenTensorHandle tensor, void** data)) {
  emulator::note_used(tensor);
  return __real_torch_get_mutable_data_ptr(tensor, data);
}

WRAP(AOTITorchError, torch_get_const_data_ptr, (AtenTensorHandle tensor, const void** data)) {
  emulator::note_used(tensor);
  return __real_torch_get_const_data_ptr(tensor, data);
}

AOTITorchError __wrap_aoti_torch_cuda_caching_allocator_raw_alloc(uint64_t bytes, void** memory) {
  return cudaMalloc(memory, bytes) == cudaSuccess ? kSuccess : 1;
}

AOTITorchError __wrap_aoti_torch_cuda_caching_allocator_raw_delete(void* memory) {
  return cudaFree(memory) == cudaSuccess ? kSuccess : 1;
}

// ---- New tensors ----------------------------------------------------------------------------------------------

WRAP(
    AOTITorchError,
    aoti_torch_empty_strided,
    (int64_t dim,
     const int64_t* sizes,
     const int64_t* strides,
     int32_t dtype,
     int32_t device_type,
     int32_t device_index,
     AtenTensorHandle* result)) {
  return make_tensor(device_type, device_index, result, false, [&](int32_t type, int32_t index) {
    return __real_aoti_torch_empty_strided(dim, sizes, strides, dtype, type, index, result);
  });
}

// Pinned memory is the host's. It is not pinned here, which asks for a GPU.
AOTITorchError __wrap_aoti_torch_empty_strided_pinned(
    int64_t dim,
    const int64_t* sizes,
    const int64_t* strides,
    int32_t dtype,
    int32_t,
    int32_t,
    AtenTensorHandle* result) {
  const int32_t cpu = __real_aoti_torch_device_type_cpu();
  const AOTITorchError error = __real_aoti_torch_empty_strided(dim, sizes, strides, dtype, cpu, -1, result);
  if (!error) emulator::note_host_tensor(*result);
  return error;
}

WRAP(
    AOTITorchError,
    aoti_torch_create_tensor_from_blob,
    (void* data,
     int64_t dim,
     const int64_t* sizes,
     const int64_t* strides,
     int64_t offset,
     int32_t dtype,
     int32_t device_type,
     int32_t device_index,
     AtenTensorHandle* result)) {
  return make_tensor(device_type, device_index, result, true, [&](int32_t type, int32_t index) {
    return __real_aoti_torch_create_tensor_from_blob(data, dim, sizes, strides, offset, dtype, type, index, result);
  });
}

WRAP(
    AOTITorchError,
    aoti_torch_aten_full,
    (const int64_t* sizes,
     int64_t dim,
     double value,
     int32_t* dtype,
     int32_t* layout,
     int32_t* device_type,
     int32_t device_index,
     int32_t* pinned,
     AtenTensorHandle* result)) {
  return make_tensor(device_type, device_index, result, true, [&](int32_t* type, int32_t index) {
    return __real_aoti_torch_aten_full(sizes, dim, value, dtype, layout, type, index, pinned, result);
  });
}

WRAP(
    AOTITorchError,
    aoti_torch_aten_new_empty,
    (AtenTensorHandle self,
     const int64_t* sizes,
     int64_t dim,
     int32_t* dtype,
     int32_t* layout,
     int32_t* device_type,
     int32_t device_index,
     int32_t* pinned,
     AtenTensorHandle* result)) {
  return make_tensor(device_type, device_index, result, false, [&](int32_t* type, int32_t index) {
    return __real_aoti_torch_aten_new_empty(self, sizes, dim, dtype, layout, type, index, pinned, result);
  });
}

WRAP(
    AOTITorchError,
    aoti_torch_aten_new_zeros,
    (AtenTensorHandle self,
     const int64_t* sizes,
     int64_t dim,
     int32_t* dtype,
     int32_t* layout,
     int32_t* device_type,
     int32_t device_index,
     int32_t* pinned,
     AtenTensorHandle* result)) {
  return make_tensor(device_type, device_index, result, true, [&](int32_t* type, int32_t index) {
    return __real_aoti_torch_aten_new_zeros(self, sizes, dim, dtype, layout, type, index, pinned, result);
  });
}

#if TORCH_FEATURE_VERSION >= TORCH_VERSION_2_11_0
WRAP(
    AOTITorchError,
    torch_from_blob,
    (void* data,
     int64_t dim,
     const int64_t* sizes,
     const int64_t* strides,
     int64_t offset,
     int32_t dtype,
     int32_t device_type,
     int32_t device_index,
     AtenTensorHandle* result,
     int32_t layout,
     const uint8_t* opaque,
     int64_t opaque_size,
     void (*deleter)(void*, void*),
     void* context)) {
  return make_tensor(device_type, device_index, result, true, [&](int32_t type, int32_t index) {
    return __real_torch_from_blob(
        data, dim, sizes, strides, offset, dtype, type, index, result, layout, opaque, opaque_size, deleter, context);
  });
}
#endif

WRAP(
    AOTITorchError,
    torch_call_dispatcher,
    (const char* name, const char* overload, StableIValue* stack, uint64_t version)) {
  return dispatch(name, overload, stack, [&] { return __real_torch_call_dispatcher(name, overload, stack, version); });
}

WRAP(AOTITorchError, aoti_torch_call_dispatcher, (const char* name, const char* overload, StableIValue* stack)) {
  return dispatch(name, overload, stack, [&] { return __real_aoti_torch_call_dispatcher(name, overload, stack); });
}

// ---- Registration ---------------------------------------------------------------------------------------------

// CUDA kernels are registered for the CPU, and what this library has for the CPU for CUDA, which nothing calls.
WRAP(
    AOTITorchError,
    aoti_torch_library_init_impl,
    (const char* name_space, const char* key, const char* file, uint32_t line, TorchLibraryHandle* library)) {
  const bool is_cuda = strcmp(key, "CUDA") == 0, is_cpu = strcmp(key, "CPU") == 0;
  const char* const mapped = is_cuda ? "CPU" : is_cpu ? "CUDA" : key;
  const AOTITorchError error = __real_aoti_torch_library_init_impl(name_space, mapped, file, line, library);
  if (!error) cuda_libraries()[*library] = is_cuda;
  return error;
}

WRAP(
    AOTITorchError,
    torch_library_impl,
    (TorchLibraryHandle library, const char* name, Kernel kernel, uint64_t version)) {
  return __real_torch_library_impl(library, name, kernel_for(library, name, kernel), version);
}

WRAP(AOTITorchError, aoti_torch_library_impl, (TorchLibraryHandle library, const char* name, Kernel kernel)) {
  return __real_aoti_torch_library_impl(library, name, kernel_for(library, name, kernel));
}
}
