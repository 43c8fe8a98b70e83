// The GPUs that can be emulated, and their limits. gpus.py reads this table too.

#pragma once

#include <cstddef>
#include <cstring>

namespace emulator {

struct Gpu {
  const char* architecture;
  const char* name;  // Of a common GPU of that architecture, whose number of multiprocessors is below.
  int capability;    // 90 for 9.0.
  int multiprocessors;
  // Kilobytes: the most that a block may ask for, and what a multiprocessor has for all its blocks.
  int shared_per_block, shared_per_multiprocessor;
  int threads_per_multiprocessor, blocks_per_multiprocessor;
  int l2_cache;  // Kilobytes.

  size_t shared_limit() const { return size_t(shared_per_block) * 1024; }
};

// clang-format off
constexpr Gpu kGpus[] = {
    {"sm_75", "Tesla T4", 75, 40, 64, 64, 1024, 16, 4096},
    {"sm_80", "NVIDIA A100-SXM4-80GB", 80, 108, 163, 164, 2048, 32, 40960},
    {"sm_86", "NVIDIA RTX A6000", 86, 84, 99, 100, 1536, 16, 6144},
    {"sm_89", "NVIDIA L4", 89, 58, 99, 100, 1536, 24, 49152},
    {"sm_90a", "NVIDIA H100 80GB HBM3", 90, 132, 227, 228, 2048, 32, 51200},
};
// clang-format on

// The GPU of this compute capability; the last one, if there is none.
inline const Gpu& gpu_of(int capability) {
  const Gpu* chosen = kGpus;
  for (const Gpu& gpu : kGpus) {
    chosen = &gpu;
    if (gpu.capability == capability) break;
  }
  return *chosen;
}

}  // namespace emulator
