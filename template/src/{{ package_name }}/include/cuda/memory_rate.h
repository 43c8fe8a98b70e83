// How fast a GPU's memory is, for what estimates the time of a kernel.

#pragma once

#include <cuda_runtime_api.h>

// The bytes that memory delivers in a cycle of the multiprocessors, by the highest clocks of both: 1693 on an H100,
// 2483 on an H200. Where a clock is hidden, as if it was an H100. The driver takes long to look clocks up.
inline cudaError_t memory_bytes_a_cycle(double& bytes, int device) {
  int memory_clock = 0, bus_bits = 0, clock = 0;  // Clocks in kHz.
  cudaError_t error = cudaDeviceGetAttribute(&memory_clock, cudaDevAttrMemoryClockRate, device);
  if (error == cudaSuccess) error = cudaDeviceGetAttribute(&bus_bits, cudaDevAttrGlobalMemoryBusWidth, device);
  if (error == cudaSuccess) error = cudaDeviceGetAttribute(&clock, cudaDevAttrClockRate, device);
  const bool is_known = memory_clock > 0 && bus_bits > 0 && clock > 0;
  bytes = is_known ? 2.0 * memory_clock * bus_bits / 8 / clock : 1693;
  return error;
}
