// The functions of CUDA's runtime that launchers and an op's glue call. There is one device and one stream, on which
// everything is done at once.

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "gpus.h"
#include "machine.h"
#include "memory.h"

namespace emulator {

void set_dynamic_limit(const void* kernel, int bytes);

namespace {

const Gpu& gpu() {
  return gpu_of(machine.capability);
}

// Keeps an error for cudaGetLastError.
cudaError_t failed(cudaError_t error) {
  if (error != cudaSuccess) {
    machine.last_error = error;
    machine.launch_error = std::string("a call of CUDA's runtime failed: ") + cudaGetErrorString(error);
  }
  return error;
}

// A block of device memory. It is new memory to the kernels, whatever it holds.
void* allocate(size_t bytes, bool host_writes = false) {
  void* const memory = aligned_alloc(512, (bytes + 511) / 512 * 512);
  if (memory) note_allocation(memory, bytes, host_writes);
  return memory;
}

// Refuses what goes beyond the memory in which it begins: what follows is another tensor's, or malloc's.
bool stays_inside(const char* call, const void* memory, size_t bytes) {
  const std::string excess = excess_of(memory, bytes);
  if (excess.empty()) return true;
  failed(cudaErrorInvalidValue);
  machine.launch_error = text("%s of %zu bytes goes ", call, bytes) + excess;
  return false;
}

constexpr struct {
  cudaError_t code;
  const char *name, *text;
} kErrors[] = {
    {cudaSuccess, "cudaSuccess", "no error"},
    {cudaErrorInvalidValue, "cudaErrorInvalidValue", "invalid argument"},
    {cudaErrorMemoryAllocation, "cudaErrorMemoryAllocation", "out of memory"},
    {cudaErrorInvalidConfiguration, "cudaErrorInvalidConfiguration", "invalid configuration argument"},
    {cudaErrorInvalidDevice, "cudaErrorInvalidDevice", "invalid device ordinal"},
    {cudaErrorNotSupported, "cudaErrorNotSupported", "operation not supported"},
    {cudaErrorNotReady, "cudaErrorNotReady", "device not ready"},
    {cudaErrorLaunchFailure, "cudaErrorLaunchFailure", "unspecified launch failure"},
    {cudaErrorSymbolNotFound, "cudaErrorSymbolNotFound", "named symbol not found"},
    {cudaErrorCooperativeLaunchTooLarge, "cudaErrorCooperativeLaunchTooLarge", "too many blocks in cooperative launch"},
};

int attribute_value(cudaDeviceAttr attribute, bool& known) {
  constexpr int kKilobyte = 1024;
  const Gpu& device = gpu();
  switch (attribute) {
    case cudaDevAttrMaxThreadsPerBlock:
    case cudaDevAttrMaxBlockDimX:
    case cudaDevAttrMaxBlockDimY: return 1024;
    case cudaDevAttrMaxBlockDimZ: return 64;
    case cudaDevAttrMaxGridDimX: return 0x7fffffff;
    case cudaDevAttrMaxGridDimY:
    case cudaDevAttrMaxGridDimZ: return 65535;
    case cudaDevAttrMaxSharedMemoryPerBlock: return 48 * kKilobyte;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin: return device.shared_per_block * kKilobyte;
    case cudaDevAttrMaxSharedMemoryPerMultiprocessor: return device.shared_per_multiprocessor * kKilobyte;
    case cudaDevAttrReservedSharedMemoryPerBlock: return device.capability >= 80 ? kKilobyte : 0;
    case cudaDevAttrTotalConstantMemory: return 64 * kKilobyte;
    case cudaDevAttrWarpSize: return 32;
    case cudaDevAttrMaxRegistersPerBlock:
    case cudaDevAttrMaxRegistersPerMultiprocessor: return 65536;
    case cudaDevAttrMultiProcessorCount: return machine.multiprocessors;
    case cudaDevAttrMaxThreadsPerMultiProcessor: return device.threads_per_multiprocessor;
    case cudaDevAttrMaxBlocksPerMultiprocessor: return device.blocks_per_multiprocessor;
    case cudaDevAttrL2CacheSize: return device.l2_cache * kKilobyte;
    case cudaDevAttrMaxPersistingL2CacheSize: return device.capability >= 80 ? device.l2_cache * kKilobyte / 2 : 0;
    case cudaDevAttrComputeCapabilityMajor: return device.capability / 10;
    case cudaDevAttrComputeCapabilityMinor: return device.capability % 10;
    case cudaDevAttrClusterLaunch: return device.capability >= 90;
    case cudaDevAttrCooperativeLaunch:
    case cudaDevAttrUnifiedAddressing:
    case cudaDevAttrManagedMemory:
    case cudaDevAttrConcurrentKernels:
    case cudaDevAttrMemoryPoolsSupported: return 1;
    case cudaDevAttrClockRate: return 1'500'000;
    case cudaDevAttrMemoryClockRate: return 2'000'000;
    case cudaDevAttrGlobalMemoryBusWidth: return 5120;
    case cudaDevAttrTextureAlignment: return 512;
    case cudaDevAttrEccEnabled:
    case cudaDevAttrIntegrated:
    case cudaDevAttrComputeMode:
    case cudaDevAttrConcurrentManagedAccess:
    case cudaDevAttrPageableMemoryAccess: return 0;
    default: known = false; return 0;
  }
}

}  // namespace
}  // namespace emulator

using emulator::failed;
using emulator::has_context;
using emulator::machine;

extern "C" {

// ---- Errors ---------------------------------------------------------------------------------------------------

// A kernel's fault stays, as on a GPU; a launch that was refused is reported once.
cudaError_t cudaPeekAtLastError() {
  return machine.failure.empty() ? machine.last_error : cudaErrorLaunchFailure;
}

cudaError_t cudaGetLastError() {
  const cudaError_t error = cudaPeekAtLastError();
  machine.last_error = cudaSuccess;
  return error;
}

const char* cudaGetErrorName(cudaError_t error) {
  for (const auto& known : emulator::kErrors) {
    if (known.code == error) return known.name;
  }
  return "unrecognized error code";
}

const char* cudaGetErrorString(cudaError_t error) {
  for (const auto& known : emulator::kErrors) {
    if (known.code == error) return known.text;
  }
  return "unrecognized error code";
}

// ---- The device -----------------------------------------------------------------------------------------------

cudaError_t cudaGetDeviceCount(int* count) {
  *count = 1;
  return cudaSuccess;
}

cudaError_t cudaGetDevice(int* device) {
  *device = 0;
  return cudaSuccess;
}

cudaError_t cudaSetDevice(int device) {
  has_context = true;
  return failed(device == 0 ? cudaSuccess : cudaErrorInvalidDevice);
}

cudaError_t cudaDeviceSynchronize() {
  has_context = true;
  return cudaPeekAtLastError();
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
  if (device != 0) return failed(cudaErrorInvalidDevice);
  bool known = true;
  const int answer = emulator::attribute_value(attribute, known);
  if (!known) return failed(cudaErrorInvalidValue);
  *value = answer;
  return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  if (device != 0) return failed(cudaErrorInvalidDevice);
  const emulator::Gpu& gpu = emulator::gpu();
  bool known = true;
  const auto value = [&](cudaDeviceAttr attribute) { return emulator::attribute_value(attribute, known); };
  memset(properties, 0, sizeof(*properties));
  strncpy(properties->name, gpu.name, sizeof(properties->name) - 1);
  properties->totalGlobalMem = size_t(8) << 30;
  properties->sharedMemPerBlock = value(cudaDevAttrMaxSharedMemoryPerBlock);
  properties->sharedMemPerBlockOptin = value(cudaDevAttrMaxSharedMemoryPerBlockOptin);
  properties->sharedMemPerMultiprocessor = value(cudaDevAttrMaxSharedMemoryPerMultiprocessor);
  properties->reservedSharedMemPerBlock = value(cudaDevAttrReservedSharedMemoryPerBlock);
  properties->regsPerBlock = properties->regsPerMultiprocessor = value(cudaDevAttrMaxRegistersPerBlock);
  properties->warpSize = 32;
  properties->maxThreadsPerBlock = 1024;
  properties->maxThreadsDim[0] = properties->maxThreadsDim[1] = 1024;
  properties->maxThreadsDim[2] = 64;
  properties->maxGridSize[0] = 0x7fffffff;
  properties->maxGridSize[1] = properties->maxGridSize[2] = 65535;
  properties->totalConstMem = value(cudaDevAttrTotalConstantMemory);
  properties->major = gpu.capability / 10;
  properties->minor = gpu.capability % 10;
  properties->multiProcessorCount = machine.multiprocessors;
  properties->maxThreadsPerMultiProcessor = gpu.threads_per_multiprocessor;
  properties->maxBlocksPerMultiProcessor = gpu.blocks_per_multiprocessor;
  properties->l2CacheSize = value(cudaDevAttrL2CacheSize);
  properties->persistingL2CacheMaxSize = value(cudaDevAttrMaxPersistingL2CacheSize);
  properties->memoryBusWidth = value(cudaDevAttrGlobalMemoryBusWidth);
  properties->unifiedAddressing = properties->concurrentKernels = properties->cooperativeLaunch = 1;
  properties->clusterLaunch = value(cudaDevAttrClusterLaunch);
  return cudaSuccess;
}

cudaError_t cudaDriverGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}

cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  if (least) *least = 0;
  if (greatest) *greatest = -5;
  return cudaSuccess;
}

cudaError_t cudaMemGetInfo(size_t* available, size_t* total) {
  *available = *total = size_t(8) << 30;
  return cudaSuccess;
}

// ---- Kernels --------------------------------------------------------------------------------------------------

cudaError_t cudaFuncSetAttribute(const void* kernel, cudaFuncAttribute attribute, int value) {
  has_context = true;
  if (attribute == cudaFuncAttributeMaxDynamicSharedMemorySize) {
    if (value < 0 || size_t(value) > emulator::gpu().shared_limit()) return failed(cudaErrorInvalidValue);
    emulator::set_dynamic_limit(kernel, value);
  }
  return cudaSuccess;
}

// What a compiler would know, the registers above all, is not known here.
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void*) {
  memset(attributes, 0, sizeof(*attributes));
  attributes->maxThreadsPerBlock = 1024;
  attributes->numRegs = 32;
  attributes->binaryVersion = attributes->ptxVersion = machine.capability;
  attributes->maxDynamicSharedSizeBytes = emulator::gpu().shared_limit();
  return cudaSuccess;
}

// By threads, blocks and shared memory; registers are not counted.
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
    int* blocks, const void*, int threads, size_t shared, unsigned) {
  const emulator::Gpu& gpu = emulator::gpu();
  if (threads < 1 || threads > 1024) return failed(cudaErrorInvalidValue);
  const size_t reserved = gpu.capability >= 80 ? 1024 : 0;
  *blocks = std::min(gpu.threads_per_multiprocessor / ((threads + 31) / 32 * 32), gpu.blocks_per_multiprocessor);
  if (shared > gpu.shared_limit()) *blocks = 0;
  *blocks =
      std::min<size_t>(*blocks, size_t(gpu.shared_per_multiprocessor) * 1024 / std::max<size_t>(shared + reserved, 1));
  return cudaSuccess;
}

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, const void* kernel, int threads, size_t shared) {
  return cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(blocks, kernel, threads, shared, 0);
}

// ---- Memory ---------------------------------------------------------------------------------------------------

cudaError_t cudaMalloc(void** memory, size_t bytes) {
  has_context = true;
  *memory = bytes ? emulator::allocate(bytes) : nullptr;
  return failed(!bytes || *memory ? cudaSuccess : cudaErrorMemoryAllocation);
}

cudaError_t cudaFree(void* memory) {
  has_context = true;
  if (memory && !emulator::forget_allocation(memory)) {
    failed(cudaErrorInvalidValue);
    machine.launch_error =
        "cudaFree or cudaFreeHost of an address that no allocation begins at, or that was freed already";
    return cudaErrorInvalidValue;
  }
  free(memory);
  return cudaSuccess;
}

cudaError_t cudaMallocAsync(void** memory, size_t bytes, cudaStream_t) {
  return cudaMalloc(memory, bytes);
}

cudaError_t cudaFreeAsync(void* memory, cudaStream_t) {
  return cudaFree(memory);
}

// Kernels may use the host's pinned memory, too.
cudaError_t cudaMallocManaged(void** memory, size_t bytes, unsigned) {
  has_context = true;
  *memory = bytes ? emulator::allocate(bytes, true) : nullptr;
  return failed(!bytes || *memory ? cudaSuccess : cudaErrorMemoryAllocation);
}

cudaError_t cudaMallocHost(void** memory, size_t bytes) {
  return cudaMallocManaged(memory, bytes, 0);
}

cudaError_t cudaMallocPitch(void** memory, size_t* pitch, size_t width, size_t height) {
  *pitch = (width + 511) / 512 * 512;
  return cudaMalloc(memory, *pitch * height);
}

cudaError_t cudaHostAlloc(void** memory, size_t bytes, unsigned) {
  return cudaMallocHost(memory, bytes);
}

cudaError_t cudaFreeHost(void* memory) {
  return cudaFree(memory);
}

cudaError_t cudaHostGetDevicePointer(void** device, void* host, unsigned) {
  *device = host;
  return cudaSuccess;
}

cudaError_t cudaMemset(void* memory, int value, size_t bytes) {
  has_context = true;
  if (!emulator::stays_inside("cudaMemset", memory, bytes)) return cudaErrorInvalidValue;
  memset(memory, value, bytes);
  emulator::note_host_write(memory, bytes);
  return cudaSuccess;
}

cudaError_t cudaMemsetAsync(void* memory, int value, size_t bytes, cudaStream_t) {
  return cudaMemset(memory, value, bytes);
}

cudaError_t cudaMemset2D(void* memory, size_t pitch, int value, size_t width, size_t height) {
  for (size_t row = 0; row < height; ++row) {
    const cudaError_t error = cudaMemset(static_cast<char*>(memory) + row * pitch, value, width);
    if (error != cudaSuccess) return error;
  }
  return cudaSuccess;
}

cudaError_t cudaMemset2DAsync(void* memory, size_t pitch, int value, size_t width, size_t height, cudaStream_t) {
  return cudaMemset2D(memory, pitch, value, width, height);
}

cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind) {
  has_context = true;
  for (const void* const memory : {static_cast<const void*>(to), from}) {
    if (!emulator::stays_inside("cudaMemcpy", memory, bytes)) return cudaErrorInvalidValue;
  }
  memmove(to, from, bytes);
  emulator::note_host_write(to, bytes);
  return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind, cudaStream_t) {
  return cudaMemcpy(to, from, bytes, kind);
}

cudaError_t cudaMemcpy2D(
    void* to, size_t to_pitch, const void* from, size_t from_pitch, size_t width, size_t height, cudaMemcpyKind kind) {
  for (size_t row = 0; row < height; ++row) {
    const char* const source = static_cast<const char*>(from) + row * from_pitch;
    const cudaError_t error = cudaMemcpy(static_cast<char*>(to) + row * to_pitch, source, width, kind);
    if (error != cudaSuccess) return error;
  }
  return cudaSuccess;
}

cudaError_t cudaMemcpy2DAsync(
    void* to,
    size_t to_pitch,
    const void* from,
    size_t from_pitch,
    size_t width,
    size_t height,
    cudaMemcpyKind kind,
    cudaStream_t) {
  return cudaMemcpy2D(to, to_pitch, from, from_pitch, width, height, kind);
}

// A __device__ or __constant__ variable is an ordinary one.
cudaError_t cudaGetSymbolAddress(void** address, const void* symbol) {
  *address = const_cast<void*>(symbol);
  return cudaSuccess;
}

cudaError_t cudaMemcpyToSymbol(const void* symbol, const void* from, size_t bytes, size_t offset, cudaMemcpyKind kind) {
  return cudaMemcpy(static_cast<char*>(const_cast<void*>(symbol)) + offset, from, bytes, kind);
}

cudaError_t cudaMemcpyToSymbolAsync(
    const void* symbol, const void* from, size_t bytes, size_t offset, cudaMemcpyKind kind, cudaStream_t) {
  return cudaMemcpyToSymbol(symbol, from, bytes, offset, kind);
}

cudaError_t cudaMemcpyFromSymbol(void* to, const void* symbol, size_t bytes, size_t offset, cudaMemcpyKind kind) {
  return cudaMemcpy(to, static_cast<const char*>(symbol) + offset, bytes, kind);
}

cudaError_t cudaMemcpyFromSymbolAsync(
    void* to, const void* symbol, size_t bytes, size_t offset, cudaMemcpyKind kind, cudaStream_t) {
  return cudaMemcpyFromSymbol(to, symbol, bytes, offset, kind);
}

// ---- Streams and events ---------------------------------------------------------------------------------------

cudaError_t cudaStreamCreate(cudaStream_t* stream) {
  has_context = true;
  *stream = nullptr;
  return cudaSuccess;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  return cudaStreamCreate(stream);
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned, int) {
  return cudaStreamCreate(stream);
}

cudaError_t cudaStreamDestroy(cudaStream_t) {
  return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t) {
  return cudaPeekAtLastError();
}

cudaError_t cudaStreamQuery(cudaStream_t) {
  return cudaPeekAtLastError();
}

cudaError_t cudaStreamWaitEvent(cudaStream_t, cudaEvent_t, unsigned) {
  return cudaSuccess;
}

// All that was given to the stream before is done.
cudaError_t cudaLaunchHostFunc(cudaStream_t, cudaHostFn_t function, void* data) {
  function(data);
  return cudaSuccess;
}

cudaError_t cudaStreamIsCapturing(cudaStream_t, cudaStreamCaptureStatus* status) {
  *status = cudaStreamCaptureStatusNone;
  return cudaSuccess;
}

cudaError_t cudaEventCreate(cudaEvent_t* event) {
  has_context = true;
  *event = nullptr;
  return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  return cudaEventCreate(event);
}

cudaError_t cudaEventDestroy(cudaEvent_t) {
  return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t, cudaStream_t) {
  return cudaSuccess;
}

cudaError_t cudaEventSynchronize(cudaEvent_t) {
  return cudaPeekAtLastError();
}

cudaError_t cudaEventQuery(cudaEvent_t) {
  return cudaPeekAtLastError();
}

cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t, cudaEvent_t) {
  *milliseconds = 0;
  return cudaSuccess;
}
}
