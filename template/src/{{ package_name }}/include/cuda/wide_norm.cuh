// The forward of a normalisation of rows that are too long for the registers of a block or a cluster, by all blocks of
// the GPU and in two passes, each a launch of one kernel. In both a block has a part of a row. In the first it leaves
// sums over its part; in the second it adds up those of the row's parts, and writes its part of the output. The second
// pass reads the input while the first one ends, mostly from the L2 cache: it begins with what that read last.

#pragma once

#include <cuda_runtime_api.h>

#include <algorithm>
#include <limits>

#include "dependent_launch.cuh"
#include "norm_tensors.cuh"
#include "peeled_norm.cuh"
#include "row_grid.cuh"
#include "row_group.cuh"
#include "tile.cuh"
#include "vector.cuh"

// How rows are divided, and which pass a launch is.
template <typename Sum>
struct WideNorm {
  int pass = 0;
  int parts = 0;        // Of a row.
  Sum* sums = nullptr;  // What the first pass leaves: by rows, parts, sums.
};

// A block that has a part of a row. The second pass has the parts in reverse.
class PartGroup {
 public:
  __device__ PartGroup(int parts, bool reversed) {
    const unsigned block = reversed ? gridDim.x - 1 - blockIdx.x : blockIdx.x;
    row_ = block / parts;
    part_ = block % parts;
  }

  __device__ int64_t first() const { return row_; }
  __device__ int part() const { return part_; }
  __device__ int rank() const { return part_ * blockDim.x + threadIdx.x; }

  // The sum over the block.
  template <typename T>
  __device__ T sum(T value) {
    return block_.sum(value);
  }

 private:
  RowGroup<false> block_;
  unsigned row_;
  int part_;
};

// A block's part of a row, in registers, and the sums of the row's other parts: kSums of each.
template <typename T, int kAccesses, int kSums>
class WideNormRow : public PeeledNormRow<T, kAccesses, PartGroup> {
  using Base = PeeledNormRow<T, kAccesses, PartGroup>;

 public:
  using Sum = accumulate_t<T>;
  using Sums = Vector<Sum, kSums>;

  __device__ WideNormRow(const NormTensors<T>& tensors, const WideNorm<Sum>& wide)
      : Base(tensors, PartGroup(wide.parts, wide.pass > 0), values_of(tensors, wide)), wide_(wide) {
    if (tensors.residual.data && wide.pass == 0) this->add();
  }

  // The elements of the block's part.
  __device__ Sum count() const { return count(this->group_.part()); }

  // Leaves the sums of the block's part to the second pass.
  __device__ void leave(const Sums& sums) const {
    if (threadIdx.x == 0) of_parts()[this->group_.part()] = sums;
  }

  // The sum of f(sums, count) over the row's parts.
  template <typename F>
  __device__ Sum total(F f) {
    Sum total = 0;
    for (int part = threadIdx.x; part < wide_.parts; part += blockDim.x) {
      const Sum elements = count(part);
      if (elements > 0) total += f(of_parts()[part], elements);
    }
    return this->group_.sum(total);
  }

 private:
  __device__ Sums* of_parts() const { return reinterpret_cast<Sums*>(wide_.sums) + this->row_ * wide_.parts; }

  // The edges are in the first part.
  __device__ Sum count(int part) const {
    const int most = blockDim.x * kAccesses, vectors = min(max(this->vectors_ - part * most, 0), most);
    const int64_t edges = part == 0 ? this->tensors_.n - int64_t(this->vectors_) * Base::N : 0;
    return static_cast<Sum>(vectors * Base::N + edges);
  }

  // The second pass reads the sum of input and residual.
  __device__ static RowMatrix<const T> values_of(const NormTensors<T>& tensors, const WideNorm<Sum>& wide) {
    if (tensors.residual.data && wide.pass > 0) return {tensors.sum.data, tensors.sum.stride};
    return tensors.input;
  }

  const WideNorm<Sum>& wide_;
};

// Calls normalise(row) with the block's part.
template <typename Config, int kSums, typename T, typename F>
__device__ void visit_wide_row(
    const NormTensors<T>& tensors, const WideNorm<accumulate_t<T>>& wide, const F& normalise) {
  const bool is_first = wide.pass == 0, reads_sum = !is_first && tensors.residual.data;
  if (is_first) let_next_kernel_start();
  if (reads_sum) wait_for_kernel_before();
  WideNormRow<T, Config::kAccesses, kSums> row(tensors, wide);
  if (!is_first && !reads_sum) wait_for_kernel_before();
  normalise(row);
}

namespace row_norm {

template <typename Tuned>
using WideForwardConfig = PeeledForwardConfig<Tuned, std::min(4, Tuned::forward_accesses)>;

// Launches the two passes; with `scratch_size`, it only says how many numbers of scratch memory these need, for kSums
// sums of each part.
template <typename Tuned, int kSums, typename T, typename... Parameters, typename... Arguments>
cudaError_t launch_wide_norm(
    void (*kernel)(NormTensors<T>, WideNorm<accumulate_t<T>>, Parameters...),
    const NormTensors<T>& tensors,
    accumulate_t<T>* scratch,
    int64_t* scratch_size,
    cudaStream_t stream,
    const Arguments&... arguments) {
  using Config = WideForwardConfig<Tuned>;
  constexpr int kLeastThreads = 128, kMostThreads = 256, kBlocks = 2;  // Of a block, and of each multiprocessor.
  const int64_t vectors = tensors.n / kVectorLength<T>, wanted = kBlocks * attribute(cudaDevAttrMultiProcessorCount);
  int threads = std::min(kMostThreads, Config::kThreads);
  const auto parts_of = [&] { return (vectors + threads * Config::kAccesses - 1) / (threads * Config::kAccesses); };
  while (threads > kLeastThreads && tensors.rows * parts_of() < wanted) threads /= 2;
  const int64_t parts = parts_of(), blocks = tensors.rows * parts;
  if (scratch_size) {
    *scratch_size = blocks * kSums;
    return cudaSuccess;
  }
  WideNorm<accumulate_t<T>> wide{0, static_cast<int>(parts), scratch};
  const auto error = launch_grid(kernel, Grid{dim3(threads), blocks}, 0, stream, tensors, wide, arguments...);
  if (error != cudaSuccess) return error;
  wide.pass = 1;
  const auto grid = dim3(static_cast<unsigned>(blocks));
  return launch_dependent(kernel, grid, dim3(threads), stream, tensors, wide, arguments...);
}

}  // namespace row_norm
