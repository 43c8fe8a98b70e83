// Launches.

#pragma once

namespace emulator {

struct Configuration {
  dim3 grid, block;
  size_t shared;
  dim3 cluster;
  bool is_cooperative = false;

  Configuration(dim3 grid, dim3 block, size_t shared = 0, cudaStream_t = nullptr, dim3 cluster = 1)
      : grid(grid), block(block), shared(shared), cluster(cluster) {}
  // Of a kernel that has __cluster_dims__.
  Configuration with_cluster(unsigned x = 1, unsigned y = 1, unsigned z = 1) const {
    Configuration result = *this;
    result.cluster = dim3(x, y, z);
    return result;
  }
};

cudaError_t run(const char* name, const void* kernel, const Configuration&, void (*body)(void*), void* arguments);

bool is_in_kernel();
[[noreturn]] void refuse(const char* what, const char* file = __builtin_FILE(), int line = __builtin_LINE());

template <typename Body>
cudaError_t launch(const char* name, const void* kernel, const Configuration& configuration, Body body) {
  if (is_in_kernel()) refuse("launches from kernels (dynamic parallelism)");
  return run(name, kernel, configuration, [](void* body) { (*static_cast<Body*>(body))(); }, &body);
}

// Called at the start of a kernel, with its __launch_bounds__.
void check_bounds(int most_threads, int = 0, int = 0);
}  // namespace emulator
