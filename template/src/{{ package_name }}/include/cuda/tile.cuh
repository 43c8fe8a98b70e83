// Which thread group takes a row of a given length, and how a kernel over such groups is launched.

#pragma once

#include <cuda_runtime_api.h>

#include <algorithm>
#include <limits>
#include <type_traits>

#include "thread_group.cuh"

// What a kernel is instantiated with (its thread group, the N elements of an access, the accesses that a thread holds:
// 0 if the row is too long for registers), and the shape of its blocks.
template <typename Group_, int kN_, int kAccesses_>
struct Tile {
  using Group = Group_;
  static constexpr int kN = kN_;
  static constexpr int kAccesses = kAccesses_;

  // The second names are those for ops that were written with them.
  using Team = Group;
  int threads;  // of a block
  union {
    int groups_per_block, teams_per_block;
  };
  union {
    int blocks_per_group, blocks_per_team;  // more than 1 for clusters
  };

  dim3 block() const { return Group::kOfOneWarp ? dim3(threads) : dim3(threads / groups_per_block, groups_per_block); }
};

// The threads of a block that lane groups share.
constexpr int kLaneGroupThreads = 128;

// The most threads of a block of a kernel for this group, if `most` is the limit for groups of whole warps.
template <typename Group>
constexpr int block_threads(int most) {
  return Group::kOfOneWarp ? kLaneGroupThreads : most;
}

// An attribute of the current GPU.
inline int attribute(cudaDeviceAttr which) {
  int device = 0, value = 0;
  cudaGetDevice(&device);
  cudaDeviceGetAttribute(&value, which, device);
  return value;
}

// The threads, in whole warps, that hold a row of so many accesses, if each thread holds up to `per_thread`.
inline int threads_for(int64_t accesses, int64_t per_thread) {
  const int64_t threads = (accesses + per_thread - 1) / per_thread;
  return static_cast<int>((threads + kWarp - 1) / kWarp * kWarp);
}

// Calls visit(tile) with the smallest group of at most a block that holds a row of so many accesses, in blocks of up to
// `most` threads. A thread holds kAccesses, or kMore of a row that a block could not hold otherwise. The row has at
// most most * kMore accesses. The smallest group is kLeastLanes, 8 or a warp.
template <int N, int kAccesses, int kMore, int kLeastLanes = 8, typename Visit>
cudaError_t visit_block_tile(int64_t accesses, int most, const Visit& visit) {
  if constexpr (kLeastLanes == 8) {
    if (accesses <= 8 * kAccesses) {
      return visit(Tile<LaneGroup<8>, N, kAccesses>{kLaneGroupThreads, {kLaneGroupThreads / 8}, {1}});
    }
  }
  if (accesses <= kWarp * kAccesses) {
    return visit(Tile<LaneGroup<kWarp>, N, kAccesses>{kLaneGroupThreads, {kLaneGroupThreads / kWarp}, {1}});
  }
  if constexpr (kMore > kAccesses) {
    if (accesses > int64_t(most) * kAccesses) return visit(Tile<BlockGroup, N, kMore>{most, {1}, {1}});
  }
  return visit(Tile<BlockGroup, N, kAccesses>{threads_for(accesses, kAccesses), {1}, {1}});
}

// The same for rows of any length: a block that holds kMore accesses a thread is faster than a cluster, whose blocks
// have to wait for each other.
template <int N, int kAccesses, int kMore, int kLeastLanes = 8, typename Visit>
cudaError_t visit_tile(int64_t accesses, int most, const Visit& visit) {
  constexpr int kMaxCluster = 8;
  if (accesses <= int64_t(most) * kMore) {
    return visit_block_tile<N, kAccesses, kMore, kLeastLanes>(accesses, most, visit);
  }
  int blocks = 2;
  while (blocks < kMaxCluster && int64_t(blocks) * most * kMore < accesses) {
    blocks *= 2;
  }
  const int threads = threads_for(accesses, int64_t(blocks) * kMore);
  const bool fits = threads <= most && blocks * threads <= ClusterGroup::kMaxWarps * kWarp;
  if (fits && attribute(cudaDevAttrComputeCapabilityMajor) >= 9) {
    return visit(Tile<ClusterGroup, N, kMore>{threads, {1}, {blocks}});
  }
  return visit(Tile<BlockGroup, N, 0>{most, {1}, {1}});
}

// The dynamic shared memory in bytes that a kernel gets without opting in: 48 KiB less what it declares statically.
constexpr size_t kSharedWithoutAsking = 40 * 1024;

// The launch configuration of a kernel over a tile's groups, in clusters if a group has several blocks.
struct LaunchConfiguration : cudaLaunchConfig_t {
  template <typename Tile>
  LaunchConfiguration(const Tile& tile, int64_t blocks, size_t shared, cudaStream_t launch_stream)
      : cudaLaunchConfig_t{} {
    cluster_.id = cudaLaunchAttributeClusterDimension;
    cluster_.val.clusterDim = {static_cast<unsigned>(tile.blocks_per_group), 1, 1};
    gridDim = static_cast<unsigned>(blocks);
    blockDim = tile.block();
    dynamicSmemBytes = shared;
    stream = launch_stream;
    attrs = &cluster_;
    numAttrs = tile.blocks_per_group > 1;
  }
  LaunchConfiguration(const LaunchConfiguration&) = delete;

 private:
  cudaLaunchAttribute cluster_ = {};
};

// Opts a kernel in to `shared` bytes of dynamic shared memory.
template <typename... Parameters>
cudaError_t allow_shared(void (*kernel)(Parameters...), size_t shared) {
  if (shared <= kSharedWithoutAsking) return cudaSuccess;
  return cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(shared));
}

// Launches a kernel with `blocks` blocks and `shared` bytes of dynamic shared memory.
template <typename Tile, typename... Parameters, typename... Arguments>
cudaError_t launch(
    void (*kernel)(Parameters...),
    const Tile& tile,
    int64_t blocks,
    size_t shared,
    cudaStream_t stream,
    Arguments... arguments) {
  if (blocks == 0) return cudaSuccess;
  if (blocks > std::numeric_limits<int>::max()) return cudaErrorInvalidConfiguration;
  const auto error = allow_shared(kernel, shared);
  if (error != cudaSuccess) return error;
  const LaunchConfiguration configuration(tile, blocks, shared, stream);
  return cudaLaunchKernelEx(&configuration, kernel, Parameters(arguments)...);
}

// A persistent kernel has no more groups than leave this many rows to each: what a group sets up is worth several rows.
constexpr int64_t kRowsPerGroup = 4;

// The most threads of a block, in whole warps and up to `most`, that fit if each takes so many bytes of shared memory.
inline int threads_with_shared(int most, size_t bytes_per_thread) {
  constexpr int kReserved = 4096;
  const int memory = attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin) - kReserved;
  return std::min(most, static_cast<int>(memory / bytes_per_thread) / kWarp * kWarp);
}

// Blocks for `rows` groups, one for each row.
template <typename Tile>
int64_t blocks_for_rows(const Tile& tile, int64_t rows) {
  return (rows + tile.groups_per_block - 1) / tile.groups_per_block * tile.blocks_per_group;
}

// Whether rows of n elements are full: every thread of every group in blocks_for_rows has all of its accesses.
template <typename Tile>
bool is_full(const Tile& tile, int64_t rows, int64_t n) {
  const int64_t threads = int64_t(tile.threads) / tile.groups_per_block * tile.blocks_per_group;
  return n == threads * Tile::kAccesses * Tile::kN && rows % tile.groups_per_block == 0;
}

// The tile with up to `factor` times as many groups in a block: fewer if that would leave a multiprocessor fewer than
// kRowsPerGroup rows for each.
template <typename Tile>
Tile with_more_groups(int64_t factor, Tile tile, int64_t rows) {
  const int64_t per_group = int64_t(kRowsPerGroup) * attribute(cudaDevAttrMultiProcessorCount);
  factor = std::max<int64_t>(1, std::min(factor, rows / (per_group * tile.groups_per_block)));
  tile.threads *= factor;
  tile.groups_per_block *= factor;
  return tile;
}

// The most threads of a block of a persistent kernel for this group.
template <typename Group>
constexpr int persistent_threads(int most) {
  return Group::kOfOneWarp ? std::min(most, 2 * kLaneGroupThreads) : most;
}

// The tile of a persistent kernel whose groups reduce what they keep within their block: several groups in a block of
// up to `most` threads. A group that holds more than kAccesses accesses a thread (visit_tile's kMore) fills its block
// alone.
template <int kUsualAccesses, typename Group, int N, int kAccesses>
auto fill_block(const Tile<Group, N, kAccesses>& tile, int most, int64_t rows) {
  constexpr int kMostGroups = 4;  // A block ends with its last group; with more of them the others would idle longer.
  if constexpr (Group::kOfOneWarp) {
    return with_more_groups(persistent_threads<Group>(most) / tile.threads, tile, rows);
  } else if constexpr (std::is_same_v<Group, BlockGroup> && kAccesses == kUsualAccesses) {
    const Tile<SubBlockGroup, N, kAccesses> part{tile.threads, {1}, {1}};
    return with_more_groups(std::min(most / tile.threads, kMostGroups), part, rows);
  } else {
    return tile;
  }
}

// The clusters that are resident at once. They are fewer than the multiprocessors have room for, because the blocks of
// a cluster share a GPC and some GPCs have multiprocessors left over. 1 where CUDA does not tell.
template <typename Tile, typename... Parameters>
int64_t resident_clusters(void (*kernel)(Parameters...), const Tile& tile, size_t shared) {
  int clusters = 0;
  const LaunchConfiguration configuration(tile, tile.blocks_per_group, shared, nullptr);
  if (allow_shared(kernel, shared) != cudaSuccess) return 1;
  if (cudaOccupancyMaxActiveClusters(&clusters, kernel, &configuration) != cudaSuccess) return 1;
  return std::max(1, clusters);
}

// The blocks of a persistent kernel, all of them resident at once: `per_multiprocessor`, or as many as fit in its
// shared memory; fewer if that would leave a group fewer than kRowsPerGroup rows.
template <typename Tile, typename... Parameters>
int64_t persistent_blocks(
    void (*kernel)(Parameters...), const Tile& tile, int64_t rows, int per_multiprocessor, size_t shared) {
  constexpr size_t kReserved = 2048;  // Static shared memory of a block, and what CUDA reserves.
  const int64_t memory = attribute(cudaDevAttrMaxSharedMemoryPerMultiprocessor) / (shared + kReserved);
  const int64_t blocks = std::clamp<int64_t>(per_multiprocessor, 1, std::max<int64_t>(1, memory));
  int64_t groups = std::max<int64_t>(1, blocks * attribute(cudaDevAttrMultiProcessorCount) / tile.blocks_per_group);
  if (tile.blocks_per_group > 1) groups = std::min(groups, resident_clusters(kernel, tile, shared));
  return std::min(groups * tile.blocks_per_group, blocks_for_rows(tile, (rows + kRowsPerGroup - 1) / kRowsPerGroup));
}

// The names that these had, for ops that were written with them.
constexpr int kLaneTeamThreads = kLaneGroupThreads;

template <typename Tile>
bool is_whole(const Tile& tile, int64_t rows, int64_t n) {
  return is_full(tile, rows, n);
}

template <typename Group>
constexpr int staying_threads(int most) {
  return persistent_threads<Group>(most);
}

template <int kUsualAccesses, typename Group, int N, int kAccesses>
auto filled(const Tile<Group, N, kAccesses>& tile, int most, int64_t rows) {
  return fill_block<kUsualAccesses>(tile, most, rows);
}

template <typename Tile, typename... Parameters>
int64_t blocks_that_stay(
    void (*kernel)(Parameters...), const Tile& tile, int64_t rows, int per_multiprocessor, size_t shared) {
  return persistent_blocks(kernel, tile, rows, per_multiprocessor, shared);
}
