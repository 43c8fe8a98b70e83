// The launch of a normalisation of rows and of its gradient, for contiguous rows: which thread group takes a row, in
// how many blocks, with how much shared memory. The kernels, and so the mathematics, are the op's. Accesses are vectors
// where every row of every tensor is aligned. Short rows that are not are flat (flat_rows.cuh) in 16 bits and read by
// single elements otherwise; all others are peeled (peeled_row.cuh).
//
// `Tuned` is the op's Defaults (tuning.h), or what tuned.json has in their place. A gradient is described by a struct:
//
//     template <typename T>
//     struct Gradient {
//       using Element = T;
//       static constexpr int kParameters = 1;  // with gradients that are sums over the rows
//       int64_t rows() const, n() const;       // of the input
//       int tensors() const;                   // that the persistent kernel's pipeline reads
//       bool needs_parameters() const;
//
//       // The persistent kernel, which writes rows of partial sums to `partial` unless that is null; and its launch.
//       template <typename Config> static constexpr auto kernel();
//       template <typename Kernel, typename Tile>
//       cudaError_t launch(Kernel, const Tile&, int64_t blocks, size_t shared, Sum* partial, cudaStream_t) const;
//
//       Columns<T> parameters() const;  // Where the gradients of the parameters are written.
//     };

#pragma once

#include <algorithm>
#include <type_traits>

#include "column_sums.cuh"
#include "few_rows.h"
#include "pipeline.cuh"
#include "registers.cuh"
#include "row.cuh"
#include "row_matrix.h"
#include "tile.cuh"
#include "vector.cuh"

namespace row_norm {

// What a forward kernel is compiled for: its thread group, the N elements of an access, the accesses that a thread
// holds; and its launch bounds: the most threads of a block, and the blocks that a multiprocessor has registers for.
template <typename Tuned, typename Tile>
struct ForwardConfig {
  using Group = typename Tile::Group;
  static constexpr int kN = Tile::kN;
  static constexpr int kAccesses = Tile::kAccesses;
  static constexpr int kThreads = block_threads<Group>(Tuned::forward_threads);
  static constexpr int kBlocks = Tuned::forward_resident_threads / kThreads;
};

// The accesses that a thread holds of a row that its block can hold: twice as many where an access is a single element.
template <typename Tuned, int N>
constexpr int kForwardAccesses = (N == 1 ? 2 : 1) * Tuned::forward_accesses;
template <typename Tuned, int N>
constexpr int kBackwardAccesses = (N == 1 ? 2 : 1) * Tuned::backward_accesses;

// The same for a persistent backward kernel, and the stages of its pipeline: half as many where a thread holds twice as
// many accesses.
template <typename Tuned, typename Tile>
struct BackwardConfig {
  using Group = typename Tile::Group;
  static constexpr int kN = Tile::kN;
  static constexpr int kAccesses = Tile::kAccesses;
  static constexpr int kThreads = persistent_threads<Group>(Tuned::backward_threads);
  static constexpr int kBlocks = Tuned::backward_resident_threads / kThreads;
  static constexpr int kStages = std::max(2, Tuned::backward_stages / (kAccesses / kBackwardAccesses<Tuned, Tile::kN>));
};

// Whether a thread of a backward kernel keeps its part of the weight beside its sums. Otherwise it reads it again for
// each row, mostly from the L1 cache. For device code only.
template <typename Config, typename Sum>
constexpr bool kKeepsWeight = !kHoldsLess || Config::kAccesses * Config::kN * sizeof(Sum) <= 64;

// Whether a backward kernel may have rows that lie in groups: of up to kMostShortBytes, which longer ones' groups of
// threads never take.
template <typename Config>
constexpr bool kTakesShortRows =
    Config::kN > 1 && (Config::Group::kOfOneWarp || Config::kAccesses * kWarp * kVectorBytes < kMostShortBytes);

// Whether a matrix has rows of n elements, one after the other.
template <typename T>
bool contiguous(const RowMatrix<T>& matrix, int64_t n) {
  return !matrix.data || matrix.stride == n;
}

// Rows that are not aligned are peeled if they have so many elements; of shorter ones too much is at their edges.
constexpr int64_t kLeastPeeled = 1024, kLeastPeeledBackward = 256;

// Whether the forward reads single elements of rows that are not aligned.
template <typename Tuned>
bool reads_elements_forward(int64_t n) {
  return n < kLeastPeeled && n <= int64_t(kForwardAccesses<Tuned, 1>) * Tuned::forward_threads;
}

// Calls visit(tile, blocks, full) for the forward of rows of n elements, in accesses of N: a group a row. If `full`, no
// access of a thread is past the end of its row. Tile::kAccesses is 0 for rows that are too long for registers.
template <typename Tuned, int N, typename Visit>
cudaError_t visit_forward(int64_t rows, int64_t n, const Visit& visit) {
  constexpr int kAccesses = kForwardAccesses<Tuned, N>, kMore = (N == 1 ? 1 : 2) * kAccesses;
  const auto visit_launch = [&](const auto& tile) {
    using Tile = std::decay_t<decltype(tile)>;
    const bool full = kHasFullRows<Tile::kAccesses> && is_full(tile, rows, n);
    return visit(tile, blocks_for_rows(tile, rows), full);
  };
  if constexpr (N == 1) {
    return visit_block_tile<N, kAccesses, kMore>(n, Tuned::forward_threads, visit_launch);
  } else {
    // Rows that fewer lanes could hold have a kernel of their own (short_norm.cuh).
    return visit_tile<N, kAccesses, kMore, kWarp>(n / N, Tuned::forward_threads, visit_launch);
  }
}

// Whether the registers of a block or a cluster hold an aligned row of n elements in the forward.
template <typename Tuned, typename T>
bool is_held_forward(int64_t n) {
  bool held = true;
  visit_forward<Tuned, kVectorLength<T>>(1, n, [&](const auto& tile, int64_t, bool) {
    held = std::decay_t<decltype(tile)>::kAccesses > 0;
    return cudaSuccess;
  });
  return held;
}

// The dynamic shared memory of the backward's pipeline for so many threads, in bytes.
template <typename Tuned, typename Tile, typename Gradient>
size_t pipeline_bytes(const Gradient& gradient, int threads) {
  constexpr int kStages = BackwardConfig<Tuned, Tile>::kStages;
  using Pipeline = RowPipeline<typename Gradient::Element, Tile::kN, Tile::kAccesses, kStages>;
  return Pipeline::bytes(threads, gradient.tensors());
}

// The most threads of a block of the backward: as many as shared memory has room for.
template <typename Tuned, int N, typename Gradient>
int most_backward_threads(const Gradient& gradient) {
  constexpr int kAccesses = kBackwardAccesses<Tuned, N>;
  const size_t per_thread = std::max(
      pipeline_bytes<Tuned, Tile<BlockGroup, N, kAccesses>>(gradient, 1),
      pipeline_bytes<Tuned, Tile<BlockGroup, N, 2 * kAccesses>>(gradient, 1));
  return threads_with_shared(Tuned::backward_threads, per_thread);
}

// Whether the backward reads single elements of rows that are not aligned: of many short ones.
template <typename T>
bool reads_elements_backward(int64_t rows, int64_t n) {
  return n < kLeastPeeledBackward && !are_few_rows(rows, n * sizeof(T));
}

// Calls visit(tile) for the lanes of a warp that share a short row of n single elements.
template <typename Visit>
cudaError_t visit_short_tile(int64_t n, const Visit& visit) {
  constexpr int kFew = 4, kMost = kLeastPeeledBackward / kWarp, kThreads = kLaneGroupThreads;
  if (n <= 8 * kFew) return visit(Tile<LaneGroup<8>, 1, kFew>{kThreads, {kThreads / 8}, {1}});
  if (n <= kWarp * kFew) return visit(Tile<LaneGroup<kWarp>, 1, kFew>{kThreads, {kThreads / kWarp}, {1}});
  return visit(Tile<LaneGroup<kWarp>, 1, kMost>{kThreads, {kThreads / kWarp}, {1}});
}

// Calls visit(tile, blocks, shared) for the backward; Tile::kAccesses is 0 for rows that are too long for registers.
template <typename Tuned, int N, typename Gradient, typename Visit>
cudaError_t visit_backward(const Gradient& gradient, const Visit& visit) {
  constexpr int kAccesses = kBackwardAccesses<Tuned, N>, kMore = 2 * kAccesses;
  const int most = most_backward_threads<Tuned, N>(gradient);
  const auto visit_launch = [&](const auto& smallest) {
    if constexpr (std::decay_t<decltype(smallest)>::kAccesses > 0) {
      const auto tile = fill_block<kAccesses>(smallest, most, gradient.rows());
      using Tile = std::decay_t<decltype(tile)>;
      const auto kernel = Gradient::template kernel<BackwardConfig<Tuned, Tile>>();
      const size_t shared = pipeline_bytes<Tuned, Tile>(gradient, tile.threads);
      const int per_multiprocessor = Tuned::backward_resident_threads / tile.threads;
      return visit(tile, persistent_blocks(kernel, tile, gradient.rows(), per_multiprocessor, shared), shared);
    } else {
      return visit(smallest, 0, 0);
    }
  };
  if constexpr (N == 1) {
    return visit_short_tile(gradient.n(), visit_launch);
  } else {
    return visit_tile<N, kAccesses, kMore>(gradient.n() / N, most, visit_launch);
  }
}

// The scratch memory that launch_backward needs, in numbers of type accumulate_t<T>: a row of partial sums for each
// group, or for each block of groups. long_size() is that for rows that are too long for registers.
template <typename Tuned, int N, typename Gradient, typename LongSize>
int64_t scratch_size(const Gradient& gradient, const LongSize& long_size) {
  int64_t size = 0;
  visit_backward<Tuned, N>(gradient, [&](const auto& tile, int64_t blocks, size_t) {
    if constexpr (std::decay_t<decltype(tile)>::kAccesses == 0) {
      size = long_size();
    } else if (gradient.needs_parameters()) {
      size = Gradient::kParameters * gradient.n() * (blocks / tile.blocks_per_group);
    }
    return cudaSuccess;
  });
  return size;
}

// Launches the gradient of the input, and the two steps of the parameters' gradients; launch_long() for rows that are
// too long for registers.
template <typename Tuned, int N, typename Gradient, typename LaunchLong>
cudaError_t launch_backward(
    const Gradient& gradient,
    accumulate_t<typename Gradient::Element>* scratch,
    cudaStream_t stream,
    const LaunchLong& launch_long) {
  using Sum = accumulate_t<typename Gradient::Element>;
  const int64_t columns = Gradient::kParameters * gradient.n();
  Sum* const partial = gradient.needs_parameters() ? scratch : nullptr;
  return visit_backward<Tuned, N>(gradient, [&](const auto& tile, int64_t blocks, size_t shared) {
    using Tile = std::decay_t<decltype(tile)>;
    if constexpr (Tile::kAccesses == 0) {
      return launch_long();
    } else {
      const auto kernel = Gradient::template kernel<BackwardConfig<Tuned, Tile>>();
      const auto error = gradient.launch(kernel, tile, blocks, shared, partial, stream);
      if (error != cudaSuccess || !partial) return error;
      const int64_t partials = blocks / tile.blocks_per_group;
      return launch_sum_columns<Sum>(
          Stored<Sum>{partial, columns}, gradient.parameters(), partials, columns, 1, stream);
    }
  });
}

}  // namespace row_norm
