// The templates that cuda_runtime.h adds to the runtime's C interface.

#pragma once

namespace emulator {

// Calls a kernel with arguments at given addresses.
template <typename... Parameters, size_t... kIndices>
void call_with(void (*kernel)(Parameters...), void** arguments, std::index_sequence<kIndices...>) {
  kernel(*static_cast<std::remove_reference_t<Parameters>*>(arguments[kIndices])...);
}

template <typename... Parameters>
cudaError_t launch_kernel(
    void (*kernel)(Parameters...),
    dim3 grid,
    dim3 block,
    void** arguments,
    size_t shared,
    cudaStream_t stream,
    bool is_cooperative) {
  Configuration configuration(grid, block, shared, stream);
  configuration.is_cooperative = is_cooperative;
  return launch("a kernel", reinterpret_cast<const void*>(kernel), configuration, [&] {
    call_with(kernel, arguments, std::index_sequence_for<Parameters...>());
  });
}

cudaError_t refuse_launch(const char* function);

// rewrite.py takes casts to void* from the kernel; a pointer that was void* before does not tell its parameters.
template <typename T>
cudaError_t launch_kernel(T*, dim3, dim3, void**, size_t, cudaStream_t, bool) {
  return refuse_launch("a launch through a pointer of type void*");
}

Configuration configuration_of(const cudaLaunchConfig_t& config);

}  // namespace emulator

#define cudaLaunchKernel(...) ::emulator_launch_kernel(__VA_ARGS__)
#define cudaLaunchCooperativeKernel(...) ::emulator_launch_cooperative(__VA_ARGS__)

template <typename Kernel>
cudaError_t emulator_launch_kernel(
    Kernel* kernel, dim3 grid, dim3 block, void** arguments, size_t shared = 0, cudaStream_t stream = nullptr) {
  return emulator::launch_kernel(kernel, grid, block, arguments, shared, stream, false);
}
template <typename Kernel>
cudaError_t emulator_launch_cooperative(
    Kernel* kernel, dim3 grid, dim3 block, void** arguments, size_t shared = 0, cudaStream_t stream = nullptr) {
  return emulator::launch_kernel(kernel, grid, block, arguments, shared, stream, true);
}

template <typename... Parameters, typename... Arguments>
cudaError_t cudaLaunchKernelEx(
    const cudaLaunchConfig_t* config, void (*kernel)(Parameters...), Arguments&&... arguments) {
  return emulator::launch(
      "the kernel of cudaLaunchKernelEx",
      reinterpret_cast<const void*>(kernel),
      emulator::configuration_of(*config),
      [&] { kernel(arguments...); });
}

// ---- Attributes and occupancy ---------------------------------------------------------------------------------

template <typename... Parameters>
cudaError_t cudaFuncSetAttribute(void (*kernel)(Parameters...), cudaFuncAttribute attribute, int value) {
  return cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel), attribute, value);
}
template <typename... Parameters>
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, void (*kernel)(Parameters...)) {
  return cudaFuncGetAttributes(attributes, reinterpret_cast<const void*>(kernel));
}
template <typename... Parameters>
cudaError_t cudaFuncSetCacheConfig(void (*)(Parameters...), cudaFuncCache) {
  return cudaSuccess;
}
template <typename... Parameters>
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(
    int* blocks, void (*kernel)(Parameters...), int threads, size_t shared) {
  return cudaOccupancyMaxActiveBlocksPerMultiprocessor(blocks, reinterpret_cast<const void*>(kernel), threads, shared);
}
template <typename... Parameters>
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
    int* blocks, void (*kernel)(Parameters...), int threads, size_t shared, unsigned flags) {
  return cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
      blocks, reinterpret_cast<const void*>(kernel), threads, shared, flags);
}
// The most threads that a block may have, and as many blocks as run at once.
template <typename... Parameters, typename Shared>
cudaError_t cudaOccupancyMaxPotentialBlockSizeVariableSMem(
    int* blocks, int* threads, void (*kernel)(Parameters...), Shared shared_of, int limit = 0) {
  int multiprocessors = 0, resident = 0;
  *threads = limit > 0 && limit < 1024 ? limit : 1024;
  cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, 0);
  const cudaError_t error =
      cudaOccupancyMaxActiveBlocksPerMultiprocessor(&resident, kernel, *threads, shared_of(*threads));
  *blocks = multiprocessors * resident;
  return error;
}
template <typename... Parameters>
cudaError_t cudaOccupancyMaxPotentialBlockSize(
    int* blocks, int* threads, void (*kernel)(Parameters...), size_t shared = 0, int limit = 0) {
  return cudaOccupancyMaxPotentialBlockSizeVariableSMem(blocks, threads, kernel, [=](int) { return shared; }, limit);
}
// One cluster for each group of as many multiprocessors as it has blocks.
template <typename... Parameters>
cudaError_t cudaOccupancyMaxActiveClusters(
    int* clusters, void (*)(Parameters...), const cudaLaunchConfig_t* configuration) {
  int multiprocessors = 0;
  cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, 0);
  const dim3 size = emulator::configuration_of(*configuration).cluster;
  *clusters = multiprocessors / static_cast<int>(size.x * size.y * size.z);
  return cudaSuccess;
}

// ---- Memory ---------------------------------------------------------------------------------------------------

template <typename T>
cudaError_t cudaMalloc(T** memory, size_t bytes) {
  return cudaMalloc(reinterpret_cast<void**>(memory), bytes);
}
template <typename T>
cudaError_t cudaMallocAsync(T** memory, size_t bytes, cudaStream_t stream) {
  return cudaMallocAsync(reinterpret_cast<void**>(memory), bytes, stream);
}
template <typename T>
cudaError_t cudaMallocHost(T** memory, size_t bytes, unsigned = 0) {
  return cudaMallocHost(reinterpret_cast<void**>(memory), bytes);
}
template <typename T>
cudaError_t cudaMallocPitch(T** memory, size_t* pitch, size_t width, size_t height) {
  return cudaMallocPitch(reinterpret_cast<void**>(memory), pitch, width, height);
}
template <typename T>
cudaError_t cudaMallocManaged(T** memory, size_t bytes, unsigned flags = cudaMemAttachGlobal) {
  return cudaMallocManaged(reinterpret_cast<void**>(memory), bytes, flags);
}

// Variables of the device are the host's, too.
template <typename T>
cudaError_t cudaGetSymbolAddress(void** address, const T& symbol) {
  *address = const_cast<void*>(static_cast<const volatile void*>(&symbol));
  return cudaSuccess;
}
template <typename T>
cudaError_t cudaGetSymbolSize(size_t* bytes, const T&) {
  *bytes = sizeof(T);
  return cudaSuccess;
}
template <typename T>
cudaError_t cudaMemcpyToSymbol(
    T& symbol, const void* from, size_t bytes, size_t offset = 0, cudaMemcpyKind = cudaMemcpyHostToDevice) {
  if (offset > sizeof(T) || bytes > sizeof(T) - offset) return cudaErrorInvalidValue;
  memcpy(const_cast<char*>(reinterpret_cast<const volatile char*>(&symbol)) + offset, from, bytes);
  return cudaSuccess;
}
template <typename T>
cudaError_t cudaMemcpyToSymbolAsync(
    T& symbol, const void* from, size_t bytes, size_t offset, cudaMemcpyKind kind, cudaStream_t = nullptr) {
  return cudaMemcpyToSymbol(symbol, from, bytes, offset, kind);
}
template <typename T>
cudaError_t cudaMemcpyFromSymbol(
    void* to, const T& symbol, size_t bytes, size_t offset = 0, cudaMemcpyKind = cudaMemcpyDeviceToHost) {
  if (offset > sizeof(T) || bytes > sizeof(T) - offset) return cudaErrorInvalidValue;
  memcpy(to, const_cast<const char*>(reinterpret_cast<const volatile char*>(&symbol)) + offset, bytes);
  return cudaSuccess;
}
template <typename T>
cudaError_t cudaMemcpyFromSymbolAsync(
    void* to, const T& symbol, size_t bytes, size_t offset, cudaMemcpyKind kind, cudaStream_t = nullptr) {
  return cudaMemcpyFromSymbol(to, symbol, bytes, offset, kind);
}
