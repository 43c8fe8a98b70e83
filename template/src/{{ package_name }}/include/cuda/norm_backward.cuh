// The launch of a normalisation's gradient: which threads take a row, in which kernel. The kernels, and so the mathematics, are
// the op's. `Tuned` is the op's Defaults (tuning.h), or what tuned.json has in their place.

#pragma once

#include <cuda_runtime_api.h>

#include <algorithm>
#include <numeric>

#include "column_sums.cuh"
#include "norm_gradient.cuh"
#include "row_norm.cuh"
#include "tile.cuh"

namespace row_norm {

// What the persistent kernel is compiled for: N elements an access, the accesses that a thread holds of a row (0: it is too
// long for registers), whether rows are peeled, whether lanes of a warp may have rows of their own; and the stages of its
// pipeline: half as many where a thread holds twice as many accesses.
template <typename Tuned, int N_, int kAccesses_, bool kPeeled_, bool kLanes_ = false>
struct BackwardConfig {
  static constexpr int kN = N_, kAccesses = kAccesses_;
  static constexpr bool kPeeled = kPeeled_, kWholeWarps = !kLanes_;
  static constexpr int kThreads = Tuned::backward_threads;
  static constexpr int kBlocks = std::max(1, Tuned::backward_resident_threads / kThreads);
  static constexpr int kStages = std::max(2, Tuned::backward_stages / (kAccesses / Tuned::backward_accesses));

  template <typename T>
  static constexpr size_t shared(const dim3& block, int tensors) {
    const int lanes = std::min<int>(kWarp, block.x);
    return RowStages<Vector<T, kN>, kAccesses, kStages, kWholeWarps>::bytes(block.x * block.y, lanes, tensors);
  }
};

// The blocks of a persistent kernel, all of them resident at once.
template <typename... Parameters>
int64_t resident_groups(void (*kernel)(Parameters...), const Grid& grid, size_t shared, int resident_threads) {
  if (grid.cluster > 1) {
    int clusters = 0;
    cudaLaunchAttribute cluster;
    const auto configuration = configure(grid, shared, nullptr, &cluster);
    if (allow_shared(kernel, shared) != cudaSuccess) return 1;
    if (cudaOccupancyMaxActiveClusters(&clusters, kernel, &configuration) != cudaSuccess) return 1;
    return std::max(1, clusters);
  }
  constexpr size_t kReserved = 3072;  // Static shared memory of a block, and what CUDA reserves.
  const int64_t fit = attribute(cudaDevAttrMaxSharedMemoryPerMultiprocessor) / (shared + kReserved);
  const int64_t blocks = std::clamp<int64_t>(resident_threads / int(grid.block.x * grid.block.y), 1, std::max<int64_t>(1, fit));
  return blocks * attribute(cudaDevAttrMultiProcessorCount) * grid.block.y;
}

// Few rows: clusters of blocks that add up their sums leave fewer partial sums, or none if one cluster takes all rows.
template <typename T>
void gather_in_clusters(const GradientTensors<T>& tensors, Grid& grid) {
  constexpr int64_t kBytes = 1 << 17;  // What a block reads in about the time that a second kernel takes.
  constexpr int kFew = 4;              // Larger clusters leave multiprocessors idle.
  const int64_t multiprocessors = attribute(cudaDevAttrMultiProcessorCount);
  if (!tensors.parameters[0] && !tensors.parameters[1]) return;
  if (grid.blocks <= 1 || grid.blocks > multiprocessors || attribute(cudaDevAttrComputeCapabilityMajor) < 9) return;
  const int64_t bytes = tensors.rows * tensors.n * int64_t(sizeof(T)) * (tensors.grad_sum.data ? 3 : 2);
  grid.cluster = bytes <= kBytes * kMaxCluster ? kMaxCluster : kFew;
  grid.cluster = std::min<int>(grid.cluster, power_of_two_above(grid.blocks));
  grid.cluster_of_rows = true;
  grid.blocks = grid.cluster == kMaxCluster ? kMaxCluster : (grid.blocks + grid.cluster - 1) / grid.cluster * grid.cluster;
}

// Calls visit(config, grid, shared) for the persistent kernel of a gradient; with Config::kAccesses of 0, of the one for
// long rows. `Kernels::persistent<Config>()` is the former.
template <typename Tuned, typename Kernels, typename T, typename Visit>
cudaError_t visit_backward(const GradientTensors<T>& tensors, const Visit& visit) {
  constexpr int N = kVectorLength<T>, kAccesses = Tuned::backward_accesses;
  using Usual = BackwardConfig<Tuned, N, kAccesses, false, true>;
  using Peeled = BackwardConfig<Tuned, N, kAccesses, true>;
  using More = BackwardConfig<Tuned, N, 2 * kAccesses, false>;
  constexpr int kMostGroups = 4;  // A block ends with its last group; with more of them the others would idle longer.
  constexpr int kLaneThreads = 2 * kLaneGroupThreads;
  const int64_t vectors = tensors.n / N, rows = tensors.rows;
  const int read = tensors.grad_sum.data ? 3 : 2, multiprocessors = attribute(cudaDevAttrMultiProcessorCount);
  const auto warp_bytes = [&](auto config) { return decltype(config)::template shared<T>(dim3(kWarp), read); };
  const size_t per_warp = std::max(warp_bytes(Usual()), warp_bytes(More()));
  const int most = threads_with_shared(Tuned::backward_threads, (per_warp + kWarp - 1) / kWarp);

  // Up to `factor` times as many groups in a block, if there are rows for all multiprocessors.
  const auto visit_persistent = [&](auto config, Grid grid, int factor) {
    using Config = decltype(config);
    const int64_t enough = rows / (int64_t(multiprocessors) * grid.block.y);
    grid.block.y *= static_cast<unsigned>(std::clamp<int64_t>(enough, 1, std::max(1, factor)));
    const size_t shared = Config::template shared<T>(grid.block, read);
    const int groups = static_cast<int>(grid.block.y);
    grid.blocks = grid.cluster;
    const int64_t resident = resident_groups(
        Kernels::template persistent<Config>(), grid, shared, Tuned::backward_resident_threads);
    int64_t blocks = std::min(resident / groups, (rows + groups - 1) / groups);
    if (Config::kPeeled && blocks * groups < rows) {
      // All rows of a group have the same offsets if as many rows as there are groups are whole vectors.
      const int64_t step = N / std::gcd(groups, N);
      blocks = std::max(step, blocks / step * step);
    }
    grid.blocks = blocks * grid.cluster;
    if (grid.cluster == 1) gather_in_clusters(tensors, grid);
    return visit(config, grid, shared);
  };
  if (vectors <= kWarp * kAccesses) {
    const int factor = std::min(most, kLaneThreads) / kWarp;
    if (!tensors.aligned) return visit_persistent(Peeled(), Grid{dim3(kWarp)}, factor);
    const int lanes = std::min(kWarp, power_of_two_above((vectors + kAccesses - 1) / kAccesses));
    return visit_persistent(Usual(), Grid{dim3(lanes, kWarp / lanes)}, factor);
  }
  if (vectors <= int64_t(most) * kAccesses) {
    const int threads = threads_for(vectors, kAccesses), factor = std::min(most / threads, kMostGroups);
    if (!tensors.aligned) return visit_persistent(Peeled(), Grid{dim3(threads)}, factor);
    return visit_persistent(Usual(), Grid{dim3(threads)}, factor);
  }
  const auto visit_cluster = [&](auto config) {
    using Config = decltype(config);
    if (vectors <= int64_t(most) * Config::kAccesses) return visit_persistent(config, Grid{dim3(most)}, 1);
    int cluster = 2;
    while (cluster < kMaxCluster && int64_t(cluster) * most * Config::kAccesses < vectors) cluster *= 2;
    const int threads = threads_for(vectors, int64_t(cluster) * Config::kAccesses);
    const bool fits = threads <= most && cluster * threads <= RowGroup<true>::kMaxWarps * kWarp;
    if (fits && attribute(cudaDevAttrComputeCapabilityMajor) >= 9) {
      return visit_persistent(config, Grid{dim3(threads), 0, cluster}, 1);
    }
    return visit(BackwardConfig<Tuned, N, 0, true>(), Grid{dim3(Tuned::backward_threads), rows}, 0);
  };
  return tensors.aligned ? visit_cluster(More()) : visit_cluster(Peeled());
}

// Launches the gradient of the input, and the two steps of the parameters' gradients; with `scratch` null it only says
// how many numbers of scratch memory these need. `Kernels::long_rows<Tuned>()` is the kernel for long rows.
template <typename Tuned, typename Kernels, typename T, typename Mathematics>
cudaError_t launch_backward(
    GradientTensors<T> tensors,
    const Mathematics& mathematics,
    accumulate_t<T>* scratch,
    int64_t* scratch_size,
    cudaStream_t stream) {
  using Sum = accumulate_t<T>;
  constexpr int N = kVectorLength<T>;
  const int64_t columns = Mathematics::kParameters * tensors.n;
  const bool needs_parameters = tensors.parameters[0] || tensors.parameters[1];
  const Columns<T> results{tensors.parameters[0], tensors.parameters[1], tensors.n};
  tensors.aligned = tensors.n % N == 0 && rows_aligned<N>(tensors.input) && rows_aligned<N>(tensors.grad) &&
                    rows_aligned<N>(tensors.grad_sum) && rows_aligned<N>(tensors.weight) &&
                    rows_aligned<N>(tensors.grad_input);
  int64_t partials = 0;
  bool finished = !needs_parameters;
  const auto error = visit_backward<Tuned, Kernels>(tensors, [&](auto config, const Grid& grid, size_t shared) {
    using Config = decltype(config);
    if constexpr (Config::kAccesses > 0) {
      partials = grid.blocks / grid.cluster;
      finished |= partials == 1;
      if (scratch_size) return cudaSuccess;
      tensors.partial = finished ? nullptr : scratch;
      tensors.cluster_of_rows = grid.cluster_of_rows;
      return launch(Kernels::template persistent<Config>(), grid, shared, stream, tensors, mathematics);
    } else {
      partials = row_groups(tensors.rows, columns);
      if (scratch_size) return cudaSuccess;
      if (tensors.grad_input.data) {
        launch(Kernels::template long_rows<Tuned>(), grid, 0, stream, tensors, mathematics);
      }
      if (!needs_parameters) return cudaGetLastError();
      const Columns<Sum> out{scratch, nullptr, partials * columns};
      const ParameterTerm<T, Mathematics> term{tensors.input, tensors.grad, mathematics, tensors.n};
      return launch_sum_columns<Sum>(term, out, tensors.rows, columns, partials, stream);
    }
  });
  if (scratch_size) *scratch_size = finished ? 0 : columns * partials;
  if (error != cudaSuccess || scratch_size || finished) return error;
  return launch_sum_columns<Sum>(Stored<Sum>{scratch, columns}, results, partials, columns, 1, stream);
}

}  // namespace row_norm
