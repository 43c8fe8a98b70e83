// The functions of CUDA's runtime and driver that launchers call, and those of the emulator that library.py calls.

#include <cstring>

#include "machine.h"
#include "tensor_map.h"

namespace emulator {

void set_dynamic_limit(const void* kernel, int bytes);

namespace {

CUresult encode(
    CUtensorMap* map,
    CUtensorMapDataType type,
    cuuint32_t rank,
    void* data,
    const cuuint64_t* sizes,
    const cuuint64_t* strides,
    const cuuint32_t* box,
    const cuuint32_t* steps,
    CUtensorMapInterleave interleave,
    CUtensorMapSwizzle swizzle,
    CUtensorMapL2promotion,
    CUtensorMapFloatOOBfill fill) {
  TensorMap encoded{kTensorMapMark, static_cast<char*>(data)};
  encoded.rank = rank;
  encoded.type = type;
  switch (type) {
    case CU_TENSOR_MAP_DATA_TYPE_FLOAT16:
    case CU_TENSOR_MAP_DATA_TYPE_BFLOAT16: encoded.element_bytes = 2; break;
    case CU_TENSOR_MAP_DATA_TYPE_FLOAT32: encoded.element_bytes = 4; break;
    default: return CUDA_ERROR_INVALID_VALUE;
  }
  switch (swizzle) {
    case CU_TENSOR_MAP_SWIZZLE_NONE: encoded.swizzle = 0; break;
    case CU_TENSOR_MAP_SWIZZLE_32B: encoded.swizzle = 1; break;
    case CU_TENSOR_MAP_SWIZZLE_64B: encoded.swizzle = 2; break;
    case CU_TENSOR_MAP_SWIZZLE_128B: encoded.swizzle = 3; break;
    default: return CUDA_ERROR_INVALID_VALUE;
  }
  if (rank < 1 || rank > 5 || interleave != CU_TENSOR_MAP_INTERLEAVE_NONE ||
      fill != CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE || reinterpret_cast<uintptr_t>(data) % 16 ||
      reinterpret_cast<uintptr_t>(map) % 64) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  for (cuuint32_t i = 0; i < rank; ++i) {
    if (!sizes[i] || sizes[i] > cuuint64_t(1) << 32 || !box[i] || box[i] > 256 || steps[i] != 1) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    if (i > 0 && (strides[i - 1] % 16 || strides[i - 1] >= cuuint64_t(1) << 40)) return CUDA_ERROR_INVALID_VALUE;
    encoded.sizes[i] = sizes[i];
    encoded.box[i] = box[i];
    if (i > 0) encoded.strides[i - 1] = strides[i - 1];
  }
  const cuuint32_t row = box[0] * encoded.element_bytes;
  if (row % 16 || (encoded.swizzle && row > 16u << encoded.swizzle)) return CUDA_ERROR_INVALID_VALUE;
  memset(map, 0, sizeof(*map));
  memcpy(map, &encoded, sizeof(encoded));
  return CUDA_SUCCESS;
}

cudaError_t find_driver_function(const char* name, void** function, cudaDriverEntryPointQueryResult* status) {
  const bool is_encode = strcmp(name, "cuTensorMapEncodeTiled") == 0;
  *function = is_encode ? reinterpret_cast<void*>(&encode) : nullptr;
  *status = is_encode ? cudaDriverEntryPointSuccess : cudaDriverEntryPointSymbolNotFound;
  return is_encode ? cudaSuccess : cudaErrorSymbolNotFound;
}

}  // namespace
}  // namespace emulator

using emulator::machine;

extern "C" {

cudaError_t cudaGetLastError() {
  return machine.failure.empty() ? cudaSuccess : cudaErrorLaunchFailure;
}

cudaError_t cudaPeekAtLastError() {
  return cudaGetLastError();
}

cudaError_t cudaGetDevice(int* device) {
  *device = 0;
  return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int) {
  switch (attribute) {
    case cudaDevAttrComputeCapabilityMajor: *value = machine.capability / 10; return cudaSuccess;
    case cudaDevAttrComputeCapabilityMinor: *value = machine.capability % 10; return cudaSuccess;
    case cudaDevAttrMultiProcessorCount: *value = machine.multiprocessors; return cudaSuccess;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin: *value = 227 * 1024; return cudaSuccess;
    case cudaDevAttrMaxSharedMemoryPerMultiprocessor: *value = 228 * 1024; return cudaSuccess;
    case cudaDevAttrMaxThreadsPerBlock: *value = 1024; return cudaSuccess;
    default: return cudaErrorInvalidValue;
  }
}

cudaError_t cudaFuncSetAttribute(const void* kernel, cudaFuncAttribute attribute, int value) {
  if (attribute == cudaFuncAttributeMaxDynamicSharedMemorySize) {
    if (value < 0 || value > 227 * 1024) return cudaErrorInvalidValue;
    emulator::set_dynamic_limit(kernel, value);
  }
  return cudaSuccess;
}

cudaError_t cudaMemsetAsync(void* memory, int value, size_t bytes, cudaStream_t) {
  memset(memory, value, bytes);
  return cudaSuccess;
}

cudaError_t cudaGetDriverEntryPoint(
    const char* name, void** function, unsigned long long, cudaDriverEntryPointQueryResult* status) {
  return emulator::find_driver_function(name, function, status);
}

cudaError_t cudaGetDriverEntryPointByVersion(
    const char* name, void** function, unsigned, unsigned long long, cudaDriverEntryPointQueryResult* status) {
  return emulator::find_driver_function(name, function, status);
}

// Called before a kernel's launcher: sets the schedule and the GPU.
void emulator_begin(uint64_t seed, int capability, int multiprocessors) {
  machine.failure.clear();
  machine.random.seed(seed);
  machine.order = emulator::Order(seed % 3);
  machine.pace = emulator::Pace(seed / 3 % 4);
  machine.resident_clusters = 1 + seed % 2;
  machine.capability = capability;
  machine.multiprocessors = multiprocessors;
}

// The last call's failure, or "".
const char* emulator_failure() {
  return machine.failure.c_str();
}
}
