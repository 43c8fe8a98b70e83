// The driver's functions that launchers ask for by name, and the emulator's that library.py calls.

#include <algorithm>
#include <cstring>

#include "machine.h"
#include "source_lines.h"
#include "tensor_map.h"

namespace emulator {

namespace {

CUresult refuse_map(const char* what) {
  machine.failure = text("the emulator has no tensor maps with %s", what);
  return CUDA_ERROR_NOT_SUPPORTED;
}

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
  if (!has_context) return CUDA_ERROR_INVALID_CONTEXT;
  if (rank < 1 || rank > 5 || reinterpret_cast<uintptr_t>(data) % 16 || reinterpret_cast<uintptr_t>(map) % 64) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  TensorMap encoded{kTensorMapMark, static_cast<char*>(data)};
  encoded.rank = rank;
  encoded.type = type;
  switch (type) {
    case CU_TENSOR_MAP_DATA_TYPE_UINT8: encoded.element_bytes = 1; break;
    case CU_TENSOR_MAP_DATA_TYPE_UINT16:
    case CU_TENSOR_MAP_DATA_TYPE_FLOAT16:
    case CU_TENSOR_MAP_DATA_TYPE_BFLOAT16: encoded.element_bytes = 2; break;
    case CU_TENSOR_MAP_DATA_TYPE_UINT32:
    case CU_TENSOR_MAP_DATA_TYPE_INT32:
    case CU_TENSOR_MAP_DATA_TYPE_FLOAT32: encoded.element_bytes = 4; break;
    case CU_TENSOR_MAP_DATA_TYPE_UINT64:
    case CU_TENSOR_MAP_DATA_TYPE_INT64:
    case CU_TENSOR_MAP_DATA_TYPE_FLOAT64: encoded.element_bytes = 8; break;
    default: return refuse_map("elements of this type");  // Such as those that a load rounds or flushes.
  }
  if (interleave != CU_TENSOR_MAP_INTERLEAVE_NONE) return refuse_map("interleaved layouts");
  if (fill != CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) return refuse_map("NaN for what lies outside a tensor");
  if (std::any_of(steps, steps + rank, [](cuuint32_t step) { return step != 1; })) {
    return refuse_map("strides between elements");
  }
  switch (swizzle) {
    case CU_TENSOR_MAP_SWIZZLE_NONE: encoded.swizzle = 0; break;
    case CU_TENSOR_MAP_SWIZZLE_32B: encoded.swizzle = 1; break;
    case CU_TENSOR_MAP_SWIZZLE_64B: encoded.swizzle = 2; break;
    case CU_TENSOR_MAP_SWIZZLE_128B: encoded.swizzle = 3; break;
    default: return refuse_map("this swizzling");
  }
  for (cuuint32_t i = 0; i < rank; ++i) {
    if (!sizes[i] || sizes[i] > cuuint64_t(1) << 32 || !box[i] || box[i] > 256) {
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

void use_schedule(uint64_t seed) {
  machine.random.seed(seed);
  machine.order = Order(seed % 3);
  machine.pace = Pace(seed / 3 % 4);
  machine.resident_clusters = 1 + seed % 2;
}

}  // namespace emulator

using emulator::machine;

extern "C" {

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
  machine.launch_error.clear();
  machine.last_error = cudaSuccess;
  machine.capability = capability;
  machine.multiprocessors = multiprocessors;
  emulator::use_schedule(seed);
}

// What was wrong with the last call, or "".
const char* emulator_failure() {
  static std::string text;
  text = emulator::with_source_lines(machine.failure.empty() ? machine.launch_error : machine.failure);
  return text.c_str();
}
}
