// The forward of a normalisation of short rows that start at any address, one after the other, such as rows of 127
// elements. A block takes neighbouring rows, which are one piece of memory: it copies the piece to shared memory in
// whole vectors, works there on single elements, a few lanes a row, and writes it back in whole vectors. The
// mathematics is the op's; it gives functions of a single element.

#pragma once

#include <cuda_pipeline.h>
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdint>

#include "accumulate.cuh"
#include "evict_last.cuh"
#include "norm_tensors.cuh"
#include "reduce.cuh"
#include "row_grid.cuh"
#include "vector.cuh"
#include "widen.cuh"

constexpr int kStagedThreads = 128;      // Of a block.
constexpr int kStagedBytes = 16 * 1024;  // Of a piece, at most.

// The shared memory of a piece, which starts as far past a vector as in memory.
constexpr int kStagedBuffer = kStagedBytes + kVectorBytes;

// A piece of `count` elements, from `memory` on; in shared memory element i is at buffer[first + i].
template <typename T>
struct StagedPiece {
  static constexpr int N = kVectorLength<T>;

  T* buffer;
  int first, count;

  // The elements of a tensor from `memory` on, whose copies wait() ends.
  __device__ StagedPiece(void* shared, const T* memory, int count)
      : buffer(static_cast<T*>(shared)), first(offset(memory)), count(count) {
    const int begin = whole_from(first), vectors = vectors_from(begin);
    for (int i = thread(); i < vectors; i += kStagedThreads) {
      __pipeline_memcpy_async(buffer + first + begin + i * N, memory + begin + i * N, kVectorBytes);
    }
    each_edge(begin, vectors, [&](int i) { buffer[first + i] = memory[i]; });
  }

  __device__ static void wait() {
    __pipeline_commit();
    __pipeline_wait_prior(0);
    __syncthreads();
  }

  __device__ void write(T* memory) const {
    const int begin = whole_from(offset(memory)), vectors = vectors_from(begin);
    const bool aligned = (first + begin) % N == 0;
    for (int i = thread(); i < vectors; i += kStagedThreads) {
      const T* const from = buffer + first + begin + i * N;
      Vector<T, N> values;
      if (aligned) {
        values = load<N>(from, 0);
      } else {
#pragma unroll
        for (int k = 0; k < N; ++k) {
          values[k] = from[k];
        }
      }
      store_evict_last(memory + begin, i, values);
    }
    each_edge(begin, vectors, [&](int i) { memory[i] = buffer[first + i]; });
  }

  __device__ static int thread() { return threadIdx.y * blockDim.x + threadIdx.x; }

 private:
  // How many elements an address is past whole vectors.
  __device__ static int offset(const T* memory) { return reinterpret_cast<uintptr_t>(memory) / sizeof(T) % N; }

  // The first element of whole vectors, where the piece starts so many past them.
  __device__ int whole_from(int offset) const { return min((N - offset) % N, count); }
  __device__ int vectors_from(int begin) const { return (count - begin) / N; }

  // Calls f(i) for each element before and after the whole vectors.
  template <typename F>
  __device__ void each_edge(int begin, int vectors, const F& f) const {
    const int edges = count - vectors * N;
    for (int i = thread(); i < edges; i += kStagedThreads) {
      f(i < begin ? i : i + vectors * N);
    }
  }
};

// A row in shared memory, which blockDim.x lanes of a warp share.
template <typename T>
class StagedRow {
 public:
  using Sum = accumulate_t<T>;

  // `valid`: whether there is such a row.
  __device__ StagedRow(const NormTensors<T>& tensors, T* elements, int64_t row, bool valid)
      : tensors_(tensors), elements_(elements), row_(row), n_(valid ? static_cast<int>(tensors.n) : 0) {}

  // The sum of f(element) over the row.
  template <typename F>
  __device__ Sum sum(F f) const {
    Sum total = 0;
#pragma unroll 4
    for (int i = threadIdx.x; i < n_; i += blockDim.x) {
      total += f(widen(elements_[i]));
    }
    for (int distance = blockDim.x / 2; distance > 0; distance /= 2) {
      total += __shfl_xor_sync(0xffffffff, total, distance);
    }
    return total;
  }

  // Writes a number of the row.
  __device__ void write_number(Sum* out, Sum number) const {
    if (threadIdx.x == 0 && n_ > 0) out[row_] = number;
  }

  // Puts f(element, weight, bias) in place of the elements.
  template <bool kBias, typename F>
  __device__ void write(F f) const {
    const T *const weight = tensors_.weight.data, *const bias = kBias ? tensors_.bias.data : nullptr;
#pragma unroll 4
    for (int i = threadIdx.x; i < n_; i += blockDim.x) {
      const Sum factor = weight ? widen(weight[i]) : Sum(1), shift = bias ? widen(bias[i]) : Sum(0);
      elements_[i] = static_cast<T>(f(widen(elements_[i]), factor, shift));
    }
  }

 private:
  const NormTensors<T>& tensors_;
  T* elements_;
  int64_t row_;
  int n_;
};

// Calls normalise(row) for each row of the block's piece, and writes the piece to the output.
template <typename T, typename F>
__device__ void visit_staged_rows(const NormTensors<T>& tensors, const F& normalise) {
  extern __shared__ __align__(16) char shared[];
  const int64_t rows_of_block = (tensors.rows + gridDim.x - 1) / gridDim.x, row = blockIdx.x * rows_of_block;
  const int n = static_cast<int>(tensors.n);
  const int rows = static_cast<int>(max(int64_t(0), min(rows_of_block, tensors.rows - row)));
  StagedPiece<T> piece(shared, tensors.input.data + row * n, rows * n);
  if (tensors.residual.data) {
    const StagedPiece<T> residual(shared + kStagedBuffer, tensors.residual.data + row * n, rows * n);
    piece.wait();
    for (int i = piece.thread(); i < piece.count; i += kStagedThreads) {
      T& element = piece.buffer[piece.first + i];
      element = static_cast<T>(widen(element) + widen(residual.buffer[residual.first + i]));
    }
    __syncthreads();
    piece.write(tensors.sum.data + row * n);
  } else {
    piece.wait();
  }
  __syncthreads();
  for (int first = 0; first < rows; first += blockDim.y) {  // As often for all lanes of a warp.
    const int i = first + threadIdx.y;
    StagedRow<T> staged(tensors, piece.buffer + piece.first + i * n, row + i, i < rows);
    normalise(staged);
  }
  __syncthreads();
  piece.write(tensors.output.data + row * n);
}

namespace row_norm {

// The blocks of a kernel over pieces of such rows: enough for all multiprocessors where there are few.
template <typename T>
Grid staged_grid(int64_t rows, int64_t n) {
  constexpr int kBlocksEach = 8;  // That a multiprocessor is to have.
  int lanes = 1;
  while (lanes < kWarp && lanes * 4 < n) lanes *= 2;
  const int64_t groups = kStagedThreads / lanes, blocks = kBlocksEach * attribute(cudaDevAttrMultiProcessorCount);
  const int64_t most = std::max<int64_t>(1, kStagedBytes / (n * sizeof(T)));
  const int64_t rows_of_block = std::min(most, std::max(groups, (rows + blocks - 1) / blocks));
  return Grid{dim3(lanes, groups), (rows + rows_of_block - 1) / rows_of_block};
}

}  // namespace row_norm
