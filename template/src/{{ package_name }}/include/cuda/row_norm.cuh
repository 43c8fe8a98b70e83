// The launch of a normalisation of rows: which threads take a row, in which kernel. The kernels, and so the
// mathematics, are the op's. `Tuned` is the op's Defaults (tuning.h), or what tuned.json has in their place.

#pragma once

#include <cuda_runtime_api.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <type_traits>

#include "column_sums.cuh"
#include "norm_gradient.cuh"
#include "norm_rows.cuh"
#include "tile.cuh"

namespace row_norm {

constexpr int kMaxCluster = 8;

// The blocks of a kernel: blockDim.y groups of blockDim.x threads, or clusters of `cluster` blocks for one group.
struct Grid {
  dim3 block;
  int64_t blocks = 0;
  int cluster = 1;
};

// The launch configuration of a kernel; it refers to `cluster`.
inline cudaLaunchConfig_t configure(
    const Grid& grid, size_t shared, cudaStream_t stream, cudaLaunchAttribute* cluster) {
  cluster->id = cudaLaunchAttributeClusterDimension;
  cluster->val.clusterDim = {static_cast<unsigned>(grid.cluster), 1, 1};
  cudaLaunchConfig_t configuration = {};
  configuration.gridDim = static_cast<unsigned>(grid.blocks);
  configuration.blockDim = grid.block;
  configuration.dynamicSmemBytes = shared;
  configuration.stream = stream;
  configuration.attrs = cluster;
  configuration.numAttrs = grid.cluster > 1;
  return configuration;
}

// Launches a kernel with `shared` bytes of dynamic shared memory.
template <typename... Parameters, typename... Arguments>
cudaError_t launch(
    void (*kernel)(Parameters...), const Grid& grid, size_t shared, cudaStream_t stream, const Arguments&... arguments) {
  if (grid.blocks == 0) return cudaSuccess;
  if (grid.blocks > std::numeric_limits<int>::max()) return cudaErrorInvalidConfiguration;
  const auto error = allow_shared(kernel, shared);
  if (error != cudaSuccess) return error;
  cudaLaunchAttribute cluster;
  const auto configuration = configure(grid, shared, stream, &cluster);
  return cudaLaunchKernelEx(&configuration, kernel, Parameters(arguments)...);
}

// ---- Forward --------------------------------------------------------------------------------------------------

// What a forward kernel is compiled for: N elements an access, the accesses that a thread holds (0: the row is too long
// for registers), whether these may be of several rows; and its launch bounds: the most threads of a block, and the
// blocks that a multiprocessor has registers for.
template <typename Tuned, int N_, int kAccesses_, bool kShort_>
struct ForwardConfig {
  static constexpr int kN = N_, kAccesses = kAccesses_;
  static constexpr bool kShort = kShort_;
  static constexpr int kThreads = kShort ? kLaneGroupThreads : Tuned::forward_threads;
  static constexpr int kBlocks = std::max(1, Tuned::forward_resident_threads / kThreads);
  // The forms of rows that there are versions for. Where a thread holds twice as many accesses, the full form has too
  // many loads in flight for the registers, and the peeled one has none left for shifting.
  static constexpr bool kMany = kAccesses > Tuned::forward_accesses;
  static constexpr bool kHasFull = kAccesses > 0 && kAccesses <= 4 && N_ > 1;
  static constexpr bool kHasAligned = kShort || kMany;
};

// Whether every row of a matrix starts at a multiple of N elements.
template <int N, typename T>
bool rows_aligned(const RowMatrix<T>& matrix) {
  return !matrix.data || (vector_aligned(matrix.data) && matrix.stride % N == 0);
}

inline int power_of_two_above(int64_t count) {
  int power = 1;
  while (power < count) power *= 2;
  return power;
}

// Calls visit(config, grid, layout, form) for short rows of so many accesses: a few lanes of a warp take a row, and a
// thread takes several rows where there are enough for all multiprocessors.
template <typename Config, typename Visit>
cudaError_t visit_short(RowLayout layout, int64_t accesses, const Visit& visit) {
  constexpr int kBusyThreads = 1024;  // of a multiprocessor
  const int lanes = std::min(kWarp, power_of_two_above(accesses));
  const int of_row = power_of_two_above((accesses + lanes - 1) / lanes);
  layout.accesses_log2 = 0;
  while (1 << layout.accesses_log2 < of_row) ++layout.accesses_log2;
  layout.rows_per_thread = Config::kAccesses / of_row;
  const int64_t busy = int64_t(attribute(cudaDevAttrMultiProcessorCount)) * kBusyThreads;
  while (layout.rows_per_thread > 1 && layout.rows * lanes < busy * layout.rows_per_thread) {
    layout.rows_per_thread /= 2;
  }
  const int groups = kLaneGroupThreads / lanes, rows = groups * layout.rows_per_thread;
  const bool full = Config::kHasFull && accesses == lanes * of_row && layout.rows % rows == 0 &&
                    layout.rows_per_thread * of_row == Config::kAccesses;
  const Grid grid{dim3(lanes, groups), (layout.rows + rows - 1) / rows};
  return visit(Config(), grid, layout, full ? RowForm::kFull : RowForm::kAligned);
}

// Calls visit(config, grid, layout, form) for the forward of rows of n elements: a group a row.
template <typename Tuned, typename T, typename Visit>
cudaError_t visit_forward(const NormTensors<T>& tensors, int64_t rows, int64_t n, const Visit& visit) {
  constexpr int N = kVectorLength<T>, kAccesses = Tuned::forward_accesses, kMost = Tuned::forward_threads;
  constexpr int kElements = 4;        // Elements of a row that a thread holds of short rows that are not aligned.
  constexpr int64_t kFewBytes = 256;  // Shorter rows than these are mostly edges.
  RowLayout layout{rows, n, 0, 1};
  const bool aligned = n % N == 0 && rows_aligned<N>(tensors.input) && rows_aligned<N>(tensors.residual) &&
                       rows_aligned<N>(tensors.weight) && rows_aligned<N>(tensors.bias) &&
                       rows_aligned<N>(tensors.output) && rows_aligned<N>(tensors.sum);
  const RowForm form = aligned ? RowForm::kAligned : RowForm::kPeeled;
  const int64_t vectors = n / N;
  if (aligned && vectors <= kWarp * kAccesses) {
    return visit_short<ForwardConfig<Tuned, N, kAccesses, true>>(layout, vectors, visit);
  }
  if (!aligned && n * int64_t(sizeof(T)) <= kFewBytes && n <= kWarp * kElements) {
    return visit_short<ForwardConfig<Tuned, 1, kElements, true>>(layout, n, visit);
  }
  using Usual = ForwardConfig<Tuned, N, kAccesses, false>;
  if (vectors <= kWarp * kAccesses) {
    constexpr int kGroups = kLaneGroupThreads / kWarp;
    return visit(Usual(), Grid{dim3(kWarp, kGroups), (rows + kGroups - 1) / kGroups}, layout, form);
  }
  if (vectors <= int64_t(kMost) * kAccesses) {
    const int threads = threads_for(vectors, kAccesses);
    const bool full = Usual::kHasFull && aligned && vectors == int64_t(threads) * kAccesses;
    return visit(Usual(), Grid{dim3(threads), rows}, layout, full ? RowForm::kFull : RowForm::kPeeled);
  }
  const auto visit_long = [&](auto config) {
    using Config = decltype(config);
    if (vectors <= int64_t(kMost) * Config::kAccesses) return visit(config, Grid{dim3(kMost), rows}, layout, form);
    int blocks = 2;
    while (blocks < kMaxCluster && int64_t(blocks) * kMost * Config::kAccesses < vectors) blocks *= 2;
    const int threads = threads_for(vectors, int64_t(blocks) * Config::kAccesses);
    const bool fits = threads <= kMost && blocks * threads <= RowGroup<false>::kMaxWarps * kWarp;
    if (fits && attribute(cudaDevAttrComputeCapabilityMajor) >= 9) {
      return visit(config, Grid{dim3(threads), rows * blocks, blocks}, layout, form);
    }
    return visit(ForwardConfig<Tuned, N, 0, false>(), Grid{dim3(kMost), rows}, layout, RowForm::kPeeled);
  };
  return aligned ? visit_long(ForwardConfig<Tuned, N, 2 * kAccesses, false>()) : visit_long(Usual());
}

// Calls normalise(rows) with the rows of the group, in the form that the launch chose.
template <typename Config, typename T, typename F>
__device__ void visit_rows(const RowLayout& layout, const NormTensors<T>& tensors, RowForm form, const F& normalise) {
  RowGroup<false> group;
  if constexpr (Config::kAccesses == 0) {
    LongNormRow<T, Config::kN> rows(group, layout, tensors);
    normalise(rows);
  } else {
    const auto visit = [&](auto known) {
      NormRows<RowGroup<false>, T, Config::kN, Config::kAccesses, decltype(known)::value, Config::kShort> rows(
          group, layout, tensors);
      normalise(rows);
    };
    constexpr RowForm kOther = Config::kHasAligned ? RowForm::kAligned : RowForm::kPeeled;
    if constexpr (Config::kHasFull) {
      if (form == RowForm::kFull) return visit(std::integral_constant<RowForm, RowForm::kFull>());
    }
    visit(std::integral_constant<RowForm, kOther>());
  }
}

// ---- Backward -------------------------------------------------------------------------------------------------

// What the persistent kernel is compiled for, and the stages of its pipeline: half as many where a thread holds twice
// as many accesses.
template <typename Tuned, int N_, int kAccesses_>
struct BackwardConfig {
  static constexpr int kN = N_, kAccesses = kAccesses_;
  static constexpr int kThreads = Tuned::backward_threads;
  static constexpr int kBlocks = std::max(1, Tuned::backward_resident_threads / kThreads);
  // Where a thread holds twice as many accesses, it has no registers left for the edges of peeled rows.
  static constexpr bool kPeeled = kAccesses <= Tuned::backward_accesses;
  static constexpr int kStages = std::max(2, Tuned::backward_stages / (kAccesses / Tuned::backward_accesses));

  template <typename T>
  static size_t shared(const dim3& block, int tensors) {
    const int lanes = std::min<int>(kWarp, block.x);
    return RowStages<Vector<T, kN>, kAccesses, kStages>::bytes(block.x * block.y, lanes, tensors);
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

// Calls visit(config, grid, shared) for the persistent kernel of a gradient; with Config::kAccesses of 0, of the one for
// long rows. `Kernels::persistent<Config>()` is the former.
template <typename Tuned, typename Kernels, typename T, typename Visit>
cudaError_t visit_backward(const GradientTensors<T>& tensors, const Visit& visit) {
  constexpr int N = kVectorLength<T>, kAccesses = Tuned::backward_accesses;
  using Usual = BackwardConfig<Tuned, N, kAccesses>;
  using More = BackwardConfig<Tuned, N, 2 * kAccesses>;
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
    if (!tensors.aligned && blocks * groups < rows) {
      // All rows of a group have the same offsets if as many rows as there are groups are whole vectors.
      const int64_t step = N / std::gcd(groups, N);
      blocks = std::max(step, blocks / step * step);
    }
    grid.blocks = blocks * grid.cluster;
    return visit(config, grid, shared);
  };
  if (vectors <= kWarp * kAccesses) {
    const int lanes = tensors.aligned ? std::min(kWarp, power_of_two_above((vectors + kAccesses - 1) / kAccesses)) : kWarp;
    return visit_persistent(Usual(), Grid{dim3(lanes, kWarp / lanes)}, std::min(most, kLaneThreads) / kWarp);
  }
  if (vectors <= int64_t(most) * kAccesses) {
    const int threads = threads_for(vectors, kAccesses);
    return visit_persistent(Usual(), Grid{dim3(threads)}, std::min(most / threads, kMostGroups));
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
    return visit(BackwardConfig<Tuned, N, 0>(), Grid{dim3(Tuned::backward_threads), rows}, 0);
  };
  return tensors.aligned ? visit_cluster(More()) : visit_cluster(Usual());
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
