// Calls of the runtime by host code, with faults that an argument turns on.

#include <cuda_runtime.h>

#include <cstdint>

namespace {

constexpr int kNumbers = 100;

__global__ void add(const float* x, float* y) {
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < kNumbers; i += gridDim.x * blockDim.x) y[i] += x[i];
}

// Its array takes more stack than a thread has.
__global__ void sorts_in_registers(float* x) {
  float values[100'000];
  for (int i = 0; i < 100'000; ++i) values[i] = x[(threadIdx.x + i) % kNumbers];
  x[threadIdx.x] = values[int(x[0])];
}

void count(void* calls) {
  ++*static_cast<int*>(calls);
}

}  // namespace

// The host fills managed and pinned memory, as textbooks have it; the results go through rows with a pitch.
extern "C" cudaError_t run_host_calls(float* out, int64_t fault) {
  float *x = nullptr, *y = nullptr, *rows = nullptr;
  size_t pitch = 0;
  cudaMallocManaged(&x, kNumbers * sizeof(float));
  cudaMallocHost(&y, kNumbers * sizeof(float));
  cudaMallocPitch(&rows, &pitch, 10 * sizeof(float), 10);
  for (int i = 0; i < kNumbers; ++i) x[i] = 1, y[i] = i;
  add<<<2, 32>>>(x, y);
  if (fault == 1) add<<<1, dim3(1, 1, 65)>>>(x, y);
  if (fault == 2) sorts_in_registers<<<1, 32>>>(y);
  if (cudaError_t error = cudaGetLastError()) return error;
  cudaMemset2D(rows, pitch, 0, 10 * sizeof(float), 10);
  cudaMemcpy2D(rows, pitch, y, 40, 40, 10, cudaMemcpyDefault);
  cudaMemcpy2D(out, 40, rows, pitch, 40, 10, cudaMemcpyDefault);
  int calls = 0;
  cudaLaunchHostFunc(nullptr, count, &calls);
  if (fault == 3) cudaMemset(rows, 0, 10 * pitch + 8);
  if (fault == 4) cudaMemcpy(out, x, kNumbers * sizeof(float) + 4, cudaMemcpyDefault);
  if (fault == 5) cudaFree(rows);
  if (fault == 6) cudaFree(x + 1);
  cudaFree(x);
  cudaFreeHost(y);
  cudaFree(rows);
  return calls == 1 ? cudaGetLastError() : cudaErrorUnknown;
}
