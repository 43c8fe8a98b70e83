// Kernels that use memory, each with faults that an argument turns on. The host's functions register the tensors, as
// the glue of an op does.

#include <cuda_runtime_api.h>

#include "memory.h"
#include "reduce.cuh"

namespace {

constexpr int kRows = 3, kColumns = 5, kPitch = 8, kThreads = 64;

__device__ const int constants[4] = {1, 2, 3, 4};
__device__ int device_variable[4];

struct Views {
  float *in, *out, *temporary;
};

// Doubles a matrix. `in` is a view of the first columns of a wider one.
__global__ void doubled(Views views, int fault) {
  const int row = threadIdx.x / kColumns, column = threadIdx.x % kColumns;
  if (threadIdx.x >= kRows * kColumns) return;
  float value = views.in[row * kPitch + column];
  if (fault == 1 && threadIdx.x == 0) views.out[kRows * kColumns] = 0;
  if (fault == 2 && threadIdx.x == 0) views.out[-1] = 0;
  if (fault == 3 && threadIdx.x == 0) value = views.in[kRows * kPitch];
  if (fault == 4 && threadIdx.x == 0) value += 0 * views.in[kColumns];  // A gap may be read,
  if (fault == 5 && threadIdx.x == 0) views.in[kColumns] = 0;           // but not written.
  if (fault == 6 && threadIdx.x == 0) value = reinterpret_cast<const float4*>(views.in)[6].x;
  if (fault == 7 && threadIdx.x == 14) memcpy(&views.out[12], &views.in[0], 16);
  if (fault == 8 && threadIdx.x == 14) memset(&views.out[12], 0, 20);
  if (fault == 9) value += constants[column % 4] - (column % 4 + 1) + device_variable[0];
  views.out[threadIdx.x] = 2 * value;
}

// Through a temporary, of which the first kernel writes all but what the fault leaves out.
__global__ void fill(Views views, int fault) {
  const int i = threadIdx.x;
  if (fault == 1 && i == 7) return;
  if (fault == 2 && i >= 12) return;
  views.temporary[i] = views.in[i / 5 * kPitch + i % 5];
}
__global__ void use(Views views, int fault) {
  const int i = threadIdx.x;
  if (fault == 3) {
    // Reads half of what has been written, and half of what has not.
    const float4 four = reinterpret_cast<const float4*>(views.temporary)[4];
    views.out[i] = four.x;
    return;
  }
  if (fault == 2 && i < 15) {
    const float2 two = reinterpret_cast<const float2*>(views.temporary)[6];
    views.out[i] = two.x;
    return;
  }
  if (i < 15) views.out[i] = 2 * views.temporary[i];
}

struct Padded {
  int number;
  double value;
};

__global__ void shared_memory(const float* in, float* out, int fault) {
  __shared__ float numbers[kThreads], others[kThreads];
  __shared__ Padded padded[kThreads];
  extern __shared__ float dynamic[];
  const int i = threadIdx.x;
  if (fault != 1 || i != 20) numbers[i] = in[i];
  others[i] = 1;
  dynamic[i] = in[i];
  padded[i].number = i;
  padded[i].value = in[i];
  __syncthreads();
  if (fault == 2 && i == 0) others[kThreads] = 0;
  if (fault == 3 && i == 0) dynamic[kThreads + 1] = 0;
  if (fault == 4 && i == 0) dynamic[-1] = 0;
  if (fault == 5 && i == 0) out[0] = dynamic[kThreads];
  const Padded copy = padded[i ^ 1];
  const Padded* volatile place = &padded[i ^ 1];
  Padded again;
  memcpy(&again, const_cast<const Padded*>(place), sizeof(Padded));
  out[i] = numbers[i ^ 1] + others[i ^ 1] - 1 + dynamic[i ^ 1] - float(copy.value) + again.number - copy.number;
}

__global__ void half_words(const float* in, float* out, int fault) {
  __shared__ short numbers[kThreads + 2];
  const int i = threadIdx.x;
  if (i % 2 == 0 || fault == 0 || fault == 3) numbers[i] = short(in[i]);
  __syncthreads();
  if (fault == 3 && i == 0) out[kThreads + (numbers[kThreads] & 1)] = -1;  // An index that nobody has written.
  if (fault == 2) {
    out[i] = reinterpret_cast<const short2*>(numbers)[i / 2].x;  // A word with one half written: right.
    return;
  }
  out[i] = numbers[fault == 1 ? i : i ^ 1];
}

void note(
    const char* name,
    float* data,
    std::vector<int64_t> sizes,
    std::vector<int64_t> strides,
    size_t bytes,
    bool initialised) {
  emulator::note_tensor(
      {name, reinterpret_cast<char*>(data), 4, sizes, strides, reinterpret_cast<char*>(data), bytes, "float32"},
      initialised);
}

}  // namespace

extern "C" cudaError_t run_doubled(float* in, float* out, int64_t fault) {
  emulator::begin_call("test");
  note("x", in, {kRows, kColumns}, {kPitch, 1}, kRows * kPitch * 4, true);
  note("output", out, {kRows, kColumns}, {kColumns, 1}, kRows * kColumns * 4, false);
  if (fault == 10) cudaMemsetAsync(out, 0, kThreads, nullptr);
  doubled<<<1, kThreads, 0, nullptr>>>({in, out, nullptr}, fault);
  return cudaGetLastError();
}

extern "C" cudaError_t run_through_a_temporary(float* in, float* out, int64_t fault) {
  emulator::begin_call("test");
  note("x", in, {kRows, kColumns}, {kPitch, 1}, kRows * kPitch * 4, true);
  note("output", out, {kRows, kColumns}, {kColumns, 1}, kRows * kColumns * 4, false);
  auto* const data = static_cast<float*>(aligned_alloc(16, 80));
  note("temporary", data, {20}, {1}, 80, false);
  fill<<<1, 15, 0, nullptr>>>({in, out, data}, fault);
  use<<<1, fault == 3 ? 1 : kThreads, 0, nullptr>>>({in, out, data}, fault);
  free(data);
  return cudaGetLastError();
}

#define EXPORT(kernel, shared) \
  extern "C" cudaError_t run_##kernel(float* in, float* out, int64_t fault) { \
    emulator::begin_call("test"); \
    note("x", in, {kThreads}, {1}, kThreads * 4, true); \
    note("output", out, {kThreads}, {1}, kThreads * 4, false); \
    kernel<<<1, kThreads, shared, nullptr>>>(in, out, fault); \
    return cudaGetLastError(); \
  }
EXPORT(shared_memory, kThreads * 4)
EXPORT(half_words, 0)
