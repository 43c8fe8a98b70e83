#include "tensors.h"

#include <cstring>
#include <map>
#include <set>
#include <vector>

#include "machine.h"
#include "memory.h"
#include "shim.h"

namespace emulator {
namespace {

struct Storage {
  std::string name;
  size_t bytes;
  bool filled;  // With what `filling` says, and the host may have written to it since.
};

std::map<char*, Storage> storages;  // Of this call.
std::set<char*> host_storages;
int allocations = 0;

// Two bytes of which every kind of floating-point number makes a NaN, and not the usual one. They differ from place to
// place, so that hardly anything that the host writes is equal to them.
uint16_t filling(size_t index) {
  const uint64_t mixed = (index + 1) * 0x9e3779b97f4a7c15;
  const uint16_t low = mixed >> 57;
  return 0x7f80 | (low == 0 || low == 0x40 ? 0x21 : low);
}

void fill(char* memory, size_t bytes) {
  for (size_t i = 0; i + 1 < bytes; i += 2) {
    const uint16_t value = filling(i / 2);
    memcpy(memory + i, &value, 2);
  }
  if (bytes % 2) memory[bytes - 1] = 0x7f;
}

std::string dtype_name(int32_t dtype) {
  if (dtype == aoti_torch_dtype_float32()) return "float32";
  if (dtype == aoti_torch_dtype_float64()) return "float64";
  if (dtype == aoti_torch_dtype_float16()) return "float16";
  if (dtype == aoti_torch_dtype_bfloat16()) return "bfloat16";
  if (dtype == aoti_torch_dtype_int64()) return "int64";
  if (dtype == aoti_torch_dtype_int32()) return "int32";
  if (dtype == aoti_torch_dtype_int16()) return "int16";
  if (dtype == aoti_torch_dtype_int8()) return "int8";
  if (dtype == aoti_torch_dtype_uint8()) return "uint8";
  if (dtype == aoti_torch_dtype_bool()) return "bool";
  if (dtype == aoti_torch_dtype_float8_e4m3fn()) return "float8_e4m3fn";
  if (dtype == aoti_torch_dtype_float8_e5m2()) return "float8_e5m2";
  return "";
}

Tensor describe(AtenTensorHandle handle) {
  Tensor tensor;
  int64_t dim = 0, offset = 0, *sizes = nullptr, *strides = nullptr;
  int32_t dtype = 0;
  void* data = nullptr;
  aoti_torch_get_dim(handle, &dim);
  aoti_torch_get_sizes(handle, &sizes);
  aoti_torch_get_strides(handle, &strides);
  aoti_torch_get_dtype(handle, &dtype);
  aoti_torch_get_storage_offset(handle, &offset);
  __real_aoti_torch_get_data_ptr(handle, &data);
  tensor.data = static_cast<char*>(data);
  tensor.itemsize = aoti_torch_dtype_element_size(dtype);
  tensor.dtype = dtype_name(dtype);
  tensor.sizes.assign(sizes, sizes + dim);
  tensor.strides.assign(strides, strides + dim);
  tensor.storage = tensor.data ? tensor.data - offset * tensor.itemsize : nullptr;
  int64_t bytes = 0;
  aoti_torch_get_storage_size(handle, &bytes);
  tensor.storage_bytes = bytes;
  return tensor;
}

}  // namespace

void begin_tensors(const std::string& op) {
  storages.clear();
  host_storages.clear();
  allocations = 0;
  begin_call(op);
}

void note_host_writes() {
  for (const auto& [begin, storage] : storages) {
    if (!storage.filled) continue;
    for (size_t i = 0; i + 1 < storage.bytes;) {
      size_t end = i;
      for (uint16_t value; end + 1 < storage.bytes; end += 2) {
        memcpy(&value, begin + end, 2);
        if (value == filling(end / 2)) break;
      }
      if (end > i) note_host_write(begin + i, end + 1 >= storage.bytes ? storage.bytes - i : end - i);
      i = end + 2;
    }
  }
}

void note_argument(const std::string& name, AtenTensorHandle handle) {
  Tensor tensor = describe(handle);
  if (!tensor.storage) return;
  tensor.name = name;
  storages.try_emplace(tensor.storage, Storage{name, tensor.storage_bytes, false});
  note_tensor(tensor, true);
}

void note_used(AtenTensorHandle handle) {
  Tensor tensor = describe(handle);
  if (!tensor.storage || host_storages.contains(tensor.storage)) return;
  const auto known = storages.find(tensor.storage);
  if (known == storages.end()) return note_new(handle, true);
  if (known->second.bytes != tensor.storage_bytes) return note_new(handle, true);  // The memory of one that is gone.
  tensor.name = known->second.name;
  note_tensor(tensor, true);
}

void note_new(AtenTensorHandle handle, bool initialised) {
  Tensor tensor = describe(handle);
  ++allocations;
  if (!tensor.storage) return;
  tensor.name = "tensor " + std::to_string(allocations) + " that the op made";
  if (!initialised) fill(tensor.storage, tensor.storage_bytes);
  storages[tensor.storage] = {tensor.name, tensor.storage_bytes, !initialised};
  note_tensor(tensor, initialised);
  if (initialised) note_host_write(tensor.storage, tensor.storage_bytes);
}

void note_host_tensor(AtenTensorHandle handle) {
  const Tensor tensor = describe(handle);
  if (tensor.storage) host_storages.insert(tensor.storage);
}

bool is_host_tensor(AtenTensorHandle handle) {
  return !host_storages.empty() && host_storages.contains(describe(handle).storage);
}

}  // namespace emulator
