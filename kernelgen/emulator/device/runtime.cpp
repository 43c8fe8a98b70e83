// The parts of CUDA's runtime and driver that kernels' launchers call, and what Python calls of the emulator.

#include <cstring>

#include "machine.h"
#include "tensor_map.h"

namespace emulator {

void ask_for_dynamic_shared(const void* kernel, int bytes);

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
  TensorMap made{kTensorMapMark, static_cast<char*>(data)};
  made.rank = rank;
  made.type = type;
  switch (type) {
    case CU_TENSOR_MAP_DATA_TYPE_FLOAT16:
    case CU_TENSOR_MAP_DATA_TYPE_BFLOAT16: made.element_bytes = 2; break;
    case CU_TENSOR_MAP_DATA_TYPE_FLOAT32: made.element_bytes = 4; break;
    default: return CUDA_ERROR_INVALID_VALUE;
  }
  switch (swizzle) {
    case CU_TENSOR_MAP_SWIZZLE_NONE: made.swizzle = 0; break;
    case CU_TENSOR_MAP_SWIZZLE_32B: made.swizzle = 1; break;
    case CU_TENSOR_MAP_SWIZZLE_64B: made.swizzle = 2; break;
    case CU_TENSOR_MAP_SWIZZLE_128B: made.swizzle = 3; break;
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
    made.sizes[i] = sizes[i];
    made.box[i] = box[i];
    if (i > 0) made.strides[i - 1] = strides[i - 1];
  }
  const cuuint32_t row = box[0] * made.element_bytes;
  if (row % 16 || (made.swizzle && row > 16u << made.swizzle)) return CUDA_ERROR_INVALID_VALUE;
  memset(map, 0, sizeof(*map));
  memcpy(map, &made, sizeof(made));
  return CUDA_SUCCESS;
}

cudaError_t find(const char* name, void** function, cudaDriverEntryPointQueryResult* found) {
  const bool is_encode = strcmp(name, "cuTensorMapEncodeTiled") == 0;
  *function = is_encode ? reinterpret_cast<void*>(&encode) : nullptr;
  *found = is_encode ? cudaDriverEntryPointSuccess : cudaDriverEntryPointSymbolNotFound;
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
    emulator::ask_for_dynamic_shared(kernel, value);
  }
  return cudaSuccess;
}

cudaError_t cudaMemsetAsync(void* memory, int value, size_t bytes, cudaStream_t) {
  memset(memory, value, bytes);
  return cudaSuccess;
}

cudaError_t cudaGetDriverEntryPoint(
    const char* name, void** function, unsigned long long, cudaDriverEntryPointQueryResult* found) {
  return emulator::find(name, function, found);
}

cudaError_t cudaGetDriverEntryPointByVersion(
    const char* name, void** function, unsigned, unsigned long long, cudaDriverEntryPointQueryResult* found) {
  return emulator::find(name, function, found);
}

// Before a call: what chance decides, and what GPU it is.
void emulator_begin(uint64_t seed, int capability, int multiprocessors) {
  machine.failure.clear();
  machine.random.seed(seed);
  machine.order = emulator::Order(seed % 3);
  machine.pace = emulator::Pace(seed / 3 % 4);
  machine.residents = 1 + seed % 2;
  machine.capability = capability;
  machine.multiprocessors = multiprocessors;
}

// What went wrong, or "".
const char* emulator_failure() {
  return machine.failure.c_str();
}
}
