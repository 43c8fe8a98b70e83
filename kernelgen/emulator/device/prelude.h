// CUDA's keywords and device functions as ordinary C++, included before all else in each source. rewrite.py turns
// launches, shared variables and inline assembly into calls of the functions declared here.

#pragma once

// First the toolkit's own headers, as host code sees them.
#include <cuda.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime_api.h>
#include <math.h>
#include <vector_functions.h>

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#undef __host__
#undef __device__
#undef __global__
#undef __shared__
#undef __constant__
#undef __launch_bounds__
#undef __grid_constant__
#undef __align__
#define __CUDACC__ 1
#define __CUDA_ARCH__ 900
#define __host__
#define __device__
#define __global__
#define __grid_constant__
#define __align__(bytes) alignas(bytes)

namespace emulator {

// ---- Launches -------------------------------------------------------------------------------------------------

struct Configuration {
  dim3 grid, block;
  size_t shared;
  dim3 cluster;

  Configuration(dim3 grid, dim3 block, size_t shared = 0, cudaStream_t = nullptr, dim3 cluster = 1)
      : grid(grid), block(block), shared(shared), cluster(cluster) {}
};

cudaError_t run(const char* name, const void* kernel, const Configuration&, void (*body)(void*), void* arguments);

template <typename Body>
cudaError_t launch(const char* name, const void* kernel, const Configuration& configuration, Body body) {
  return run(name, kernel, configuration, [](void* body) { (*static_cast<Body*>(body))(); }, &body);
}

// Called at the start of a kernel, with its __launch_bounds__.
void check_bounds(int most_threads, int = 0);

// ---- Shared memory --------------------------------------------------------------------------------------------

// The current block's shared variable of this key.
void* shared_variable(const void* key, size_t bytes, size_t alignment);
void* dynamic_shared(size_t alignment);

template <typename Variables>
Variables& shared() {
  static const char key = 0;
  return *static_cast<Variables*>(shared_variable(&key, sizeof(Variables), alignof(Variables)));
}

uint32_t address_in_window(const void* pointer);

// ---- Inline assembly ------------------------------------------------------------------------------------------

struct Operand {
  uint64_t bits;
  void* target;  // Of an output; null for an input.
  int bytes;
};

template <char kConstraint, typename T>
Operand in(const T& value) {
  if constexpr (std::is_pointer_v<T> || std::is_array_v<T>) {
    return {reinterpret_cast<uint64_t>(static_cast<const volatile void*>(value)), nullptr, 8};
  } else if constexpr (kConstraint == 'f') {
    return {std::bit_cast<uint32_t>(static_cast<float>(value)), nullptr, 4};
  } else if constexpr (kConstraint == 'd') {
    return {std::bit_cast<uint64_t>(static_cast<double>(value)), nullptr, 8};
  } else if constexpr (kConstraint == 'h') {
    return {static_cast<uint16_t>(value), nullptr, 2};
  } else if constexpr (kConstraint == 'r') {
    return {static_cast<uint32_t>(value), nullptr, 4};
  } else {
    return {static_cast<uint64_t>(value), nullptr, 8};
  }
}

template <typename T>
Operand out(T& place) {
  return {0, &place, sizeof(T)};
}

struct Program;
Program* parse(const char* assembly);
void execute(const Program& program, const Operand* operands);

// ---- Warps ----------------------------------------------------------------------------------------------------

// The bits of lane `source`; undefined if that lane takes no part.
uint64_t exchange(const char* name, uint32_t mask, uint64_t bits, int source);
uint32_t ballot(uint32_t mask, bool vote);

template <typename T>
T shuffle(const char* name, uint32_t mask, T value, int source) {
  static_assert(sizeof(T) <= 8);
  uint64_t bits = 0;
  memcpy(&bits, &value, sizeof(T));
  bits = exchange(name, mask, bits, source);
  memcpy(&value, &bits, sizeof(T));
  return value;
}

int lane_number();
void synchronise_block();
void synchronise_warp(uint32_t mask);
void copy_async(void* shared, const void* global, size_t bytes, size_t read);
void commit_copies();
void wait_for_copies(int under_way);
[[noreturn]] void trap();
long long ticks();

}  // namespace emulator

extern uint3 threadIdx, blockIdx;
extern dim3 blockDim, gridDim;
constexpr int warpSize = 32;

inline void __syncthreads() {
  emulator::synchronise_block();
}
inline void __syncwarp(unsigned mask = 0xffffffff) {
  emulator::synchronise_warp(mask);
}
inline void __threadfence() {}
inline void __threadfence_block() {}
inline void __nanosleep(unsigned) {}
inline void __trap() {
  emulator::trap();
}
inline long long clock64() {
  return emulator::ticks();
}
// Of the eight bytes of b and a, the four whose numbers are the selector's hexadecimal digits.
inline unsigned __byte_perm(unsigned a, unsigned b, unsigned selector) {
  const uint64_t bytes = uint64_t(b) << 32 | a;
  unsigned result = 0;
  for (int i = 0; i < 4; ++i) result |= unsigned(bytes >> (selector >> (4 * i) & 7) * 8 & 0xff) << (8 * i);
  return result;
}
inline size_t __cvta_generic_to_shared(const void* pointer) {
  return emulator::address_in_window(pointer);
}
inline size_t __cvta_generic_to_global(const void* pointer) {
  return reinterpret_cast<size_t>(pointer);
}

template <typename T>
T __shfl_sync(unsigned mask, T value, int source, int width = 32) {
  const int lane = emulator::lane_number();
  return emulator::shuffle("shfl.idx", mask, value, lane / width * width + source % width);
}
template <typename T>
T __shfl_xor_sync(unsigned mask, T value, int distance, int width = 32) {
  const int lane = emulator::lane_number(), source = lane ^ distance;
  return emulator::shuffle("shfl.bfly", mask, value, source / width > lane / width ? lane : source);
}
template <typename T>
T __shfl_up_sync(unsigned mask, T value, int distance, int width = 32) {
  const int lane = emulator::lane_number();
  return emulator::shuffle("shfl.up", mask, value, lane % width < distance ? lane : lane - distance);
}
template <typename T>
T __shfl_down_sync(unsigned mask, T value, int distance, int width = 32) {
  const int lane = emulator::lane_number();
  return emulator::shuffle("shfl.down", mask, value, lane % width + distance >= width ? lane : lane + distance);
}
inline unsigned __ballot_sync(unsigned mask, int vote) {
  return emulator::ballot(mask, vote);
}
inline int __any_sync(unsigned mask, int vote) {
  return emulator::ballot(mask, vote) != 0;
}
inline int __all_sync(unsigned mask, int vote) {
  return emulator::ballot(mask, !vote) == 0;
}

// ---- Memory ---------------------------------------------------------------------------------------------------

template <typename T>
T __ldg(const T* pointer) {
  return *pointer;
}
template <typename T>
T __ldcs(const T* pointer) {
  return *pointer;
}

// One OS thread runs all fibers and switches only at waits, so these are atomic.
template <typename T>
T atomicAdd(T* place, std::type_identity_t<T> value) {
  const T old = *place;
  *place = old + value;
  return old;
}
template <typename T>
T atomicMax(T* place, std::type_identity_t<T> value) {
  const T old = *place;
  *place = old < value ? value : old;
  return old;
}
template <typename T>
T atomicExch(T* place, std::type_identity_t<T> value) {
  const T old = *place;
  *place = value;
  return old;
}
template <typename T>
T atomicCAS(T* place, std::type_identity_t<T> expected, std::type_identity_t<T> value) {
  const T old = *place;
  if (old == expected) *place = value;
  return old;
}

// ---- Arithmetic -----------------------------------------------------------------------------------------------

template <typename A, typename B>
constexpr auto min(A a, B b) {
  return b < a ? std::common_type_t<A, B>(b) : std::common_type_t<A, B>(a);
}
template <typename A, typename B>
constexpr auto max(A a, B b) {
  return a < b ? std::common_type_t<A, B>(b) : std::common_type_t<A, B>(a);
}
inline float rsqrtf(float x) {
  return 1 / sqrtf(x);
}
inline float rsqrt(float x) {
  return rsqrtf(x);
}
inline double rsqrt(double x) {
  return 1 / sqrt(x);
}
inline float __expf(float x) {
  return expf(x);
}
inline float __logf(float x) {
  return logf(x);
}
inline float __fdividef(float a, float b) {
  return a / b;
}
inline float __frcp_rn(float x) {
  return 1 / x;
}
inline float __fmul_rn(float a, float b) {
  return a * b;
}
inline float __fadd_rn(float a, float b) {
  return a + b;
}
inline float __fmaf_rn(float a, float b, float c) {
  return fmaf(a, b, c);
}
inline int __float_as_int(float x) {
  return std::bit_cast<int>(x);
}
inline float __int_as_float(int x) {
  return std::bit_cast<float>(x);
}
inline unsigned __float_as_uint(float x) {
  return std::bit_cast<unsigned>(x);
}
inline float __uint_as_float(unsigned x) {
  return std::bit_cast<float>(x);
}

// ---- The runtime's templates ----------------------------------------------------------------------------------

template <typename... Parameters>
cudaError_t cudaFuncSetAttribute(void (*kernel)(Parameters...), cudaFuncAttribute attribute, int value) {
  return cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel), attribute, value);
}

// One cluster for each group of as many multiprocessors as it has blocks.
template <typename... Parameters>
cudaError_t cudaOccupancyMaxActiveClusters(
    int* clusters, void (*)(Parameters...), const cudaLaunchConfig_t* configuration) {
  int multiprocessors = 0;
  cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, 0);
  *clusters = multiprocessors / static_cast<int>(configuration->attrs[0].val.clusterDim.x);
  return cudaSuccess;
}

template <typename... Parameters, typename... Arguments>
cudaError_t cudaLaunchKernelEx(
    const cudaLaunchConfig_t* config, void (*kernel)(Parameters...), Arguments&&... arguments) {
  dim3 cluster(1);
  for (unsigned i = 0; i < config->numAttrs; ++i) {
    const cudaLaunchAttribute& attribute = config->attrs[i];
    const auto& size = attribute.val.clusterDim;
    if (attribute.id == cudaLaunchAttributeClusterDimension) cluster = dim3(size.x, size.y, size.z);
  }
  const emulator::Configuration configuration(
      config->gridDim, config->blockDim, config->dynamicSmemBytes, config->stream, cluster);
  return emulator::launch(
      "the kernel of cudaLaunchKernelEx", reinterpret_cast<const void*>(kernel), configuration, [&] {
        kernel(arguments...);
      });
}
