// The GPU that a kernel is about to run on.

#pragma once

#include <cuda_runtime_api.h>

#include <atomic>

// The compute capability of the current device, such as 90 for 9.0; 0 where CUDA does not tell. Each device is queried
// once, because a query takes longer than a kernel launch.
inline int compute_capability() {
  constexpr int kDevices = 64;
  static std::atomic<int> known[kDevices];
  int device = 0, major = 0, minor = 0;
  if (cudaGetDevice(&device) != cudaSuccess || device >= kDevices) return 0;
  if (const int cached = known[device].load(std::memory_order_relaxed)) return cached;
  if (cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device) != cudaSuccess) return 0;
  if (cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device) != cudaSuccess) return 0;
  known[device].store(10 * major + minor, std::memory_order_relaxed);
  return 10 * major + minor;
}
