// Which team takes a row of a given length, and how a kernel over such teams is launched.

#pragma once

#include <cuda_runtime_api.h>

#include <algorithm>
#include <limits>
#include <type_traits>

#include "team.cuh"

// What a kernel is instantiated with: its team, the elements N of an access, and how many accesses a thread holds (0:
// the row is too long to be held). And what it is launched with.
template <typename Team_, int kN_, int kAccesses_>
struct Tile {
  using Team = Team_;
  static constexpr int kN = kN_;
  static constexpr int kAccesses = kAccesses_;

  int threads;  // of a block
  int teams_per_block;
  int blocks_per_team;  // more than 1 for clusters

  dim3 block() const { return Team::kOfOneWarp ? dim3(threads) : dim3(threads / teams_per_block, teams_per_block); }
};

// The threads of a block that teams of a few lanes share.
constexpr int kLaneTeamThreads = 128;

// The most threads of a block whose kernel is instantiated for this team.
template <typename Team>
constexpr int block_threads(int most) {
  return Team::kOfOneWarp ? kLaneTeamThreads : most;
}

// Facts about the current GPU.
inline int attribute(cudaDeviceAttr which) {
  int device = 0, value = 0;
  cudaGetDevice(&device);
  cudaDeviceGetAttribute(&value, which, device);
  return value;
}

// The threads that hold so many accesses, `each` of them; whole warps.
inline int threads_for(int64_t accesses, int64_t each) {
  const int64_t threads = (accesses + each - 1) / each;
  return static_cast<int>((threads + kWarp - 1) / kWarp * kWarp);
}

// Calls visit(Tile) with the smallest team that holds a row of so many accesses, in blocks of up to `most` threads. A
// thread holds kAccesses; of a row that a block cannot hold so, kMore: rather that than a block more to wait for.
template <int N, int kAccesses, int kMore, typename Visit>
cudaError_t visit_tile(int64_t accesses, int most, const Visit& visit) {
  constexpr int kMaxCluster = 8;
  if (accesses <= 8 * kAccesses) {
    return visit(Tile<LaneTeam<8>, N, kAccesses>{kLaneTeamThreads, kLaneTeamThreads / 8, 1});
  }
  if (accesses <= kWarp * kAccesses) {
    return visit(Tile<LaneTeam<kWarp>, N, kAccesses>{kLaneTeamThreads, kLaneTeamThreads / kWarp, 1});
  }
  if (accesses <= int64_t(most) * kAccesses) {
    return visit(Tile<BlockTeam, N, kAccesses>{threads_for(accesses, kAccesses), 1, 1});
  }
  if (accesses <= int64_t(most) * kMore) {
    return visit(Tile<BlockTeam, N, kMore>{most, 1, 1});
  }
  int blocks = 2;
  while (blocks < kMaxCluster && int64_t(blocks) * most * kMore < accesses) {
    blocks *= 2;
  }
  const int threads = threads_for(accesses, int64_t(blocks) * kMore);
  const bool fits = threads <= most && blocks * threads <= ClusterTeam::kMaxWarps * kWarp;
  if (fits && attribute(cudaDevAttrComputeCapabilityMajor) >= 9) {
    return visit(Tile<ClusterTeam, N, kMore>{threads, 1, blocks});
  }
  return visit(Tile<BlockTeam, N, 0>{most, 1, 1});
}

// The dynamic shared memory that a kernel gets without asking; what it declares itself counts too.
constexpr size_t kSharedWithoutAsking = 40 * 1024;

// How a kernel is launched over a tile's teams, in clusters if the tile says so.
struct LaunchConfiguration : cudaLaunchConfig_t {
  template <typename Tile>
  LaunchConfiguration(const Tile& tile, int64_t blocks, size_t shared, cudaStream_t on) : cudaLaunchConfig_t{} {
    cluster_.id = cudaLaunchAttributeClusterDimension;
    cluster_.val.clusterDim = {static_cast<unsigned>(tile.blocks_per_team), 1, 1};
    gridDim = static_cast<unsigned>(blocks);
    blockDim = tile.block();
    dynamicSmemBytes = shared;
    stream = on;
    attrs = &cluster_;
    numAttrs = tile.blocks_per_team > 1;
  }
  LaunchConfiguration(const LaunchConfiguration&) = delete;

 private:
  cudaLaunchAttribute cluster_ = {};
};

// Lets a kernel have so many bytes of dynamic shared memory.
template <typename... Parameters>
cudaError_t allow_shared(void (*kernel)(Parameters...), size_t shared) {
  if (shared <= kSharedWithoutAsking) return cudaSuccess;
  return cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(shared));
}

// Launches a kernel over `blocks` blocks with so many bytes of dynamic shared memory.
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

// So many rows a team are few: where something is kept from row to row, less teams take more.
constexpr int64_t kFewRows = 4;

// The most threads of a block, up to `most`, that can have so many bytes of shared memory each; whole warps.
inline int threads_with_shared(int most, size_t bytes_each) {
  constexpr int kReserved = 4096;
  const int memory = attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin) - kReserved;
  return std::min(most, static_cast<int>(memory / bytes_each) / kWarp * kWarp);
}

// Blocks with a team for each of `rows` rows.
template <typename Tile>
int64_t blocks_for_rows(const Tile& tile, int64_t rows) {
  return (rows + tile.teams_per_block - 1) / tile.teams_per_block * tile.blocks_per_team;
}

// Whether each thread of each team in these blocks has all of its accesses, in rows of n elements.
template <typename Tile>
bool is_whole(const Tile& tile, int64_t rows, int64_t n) {
  const int64_t threads = int64_t(tile.threads) / tile.teams_per_block * tile.blocks_per_team;
  return n == threads * Tile::kAccesses * Tile::kN && rows % tile.teams_per_block == 0;
}

// So many times as many teams in a block; fewer if not every multiprocessor would have a few rows for each team.
template <typename Tile>
Tile times(int64_t times, Tile tile, int64_t rows) {
  const int64_t enough = rows / (int64_t(kFewRows) * attribute(cudaDevAttrMultiProcessorCount) * tile.teams_per_block);
  times = std::max<int64_t>(1, std::min(times, enough));
  tile.threads *= times;
  tile.teams_per_block *= times;
  return tile;
}

// The most threads of a block of a kernel that stays on the GPU, if it is instantiated for this team.
template <typename Team>
constexpr int staying_threads(int most) {
  return Team::kOfOneWarp ? std::min(most, 2 * kLaneTeamThreads) : most;
}

// The tile for teams that leave something together: several in a block of up to `most` threads. A team that holds more
// than kUsual accesses a thread has its block to itself already.
template <int kUsual, typename Team, int N, int kAccesses>
auto filled(const Tile<Team, N, kAccesses>& tile, int most, int64_t rows) {
  constexpr int kMostParts = 4;  // More would be too seldom done all at once, as a block is only then.
  if constexpr (Team::kOfOneWarp) {
    return times(staying_threads<Team>(most) / tile.threads, tile, rows);
  } else if constexpr (std::is_same_v<Team, BlockTeam> && kAccesses == kUsual) {
    return times(std::min(most / tile.threads, kMostParts), Tile<PartTeam, N, kAccesses>{tile.threads, 1, 1}, rows);
  } else {
    return tile;
  }
}

// The clusters that are on the GPU at once, which are fewer than its multiprocessors have room for: the blocks of one
// lie in the same part of the GPU, and some parts have multiprocessors left over. 1 where that is not known.
template <typename Tile, typename... Parameters>
int64_t clusters_at_once(void (*kernel)(Parameters...), const Tile& tile, size_t shared) {
  int clusters = 0;
  const LaunchConfiguration configuration(tile, tile.blocks_per_team, shared, nullptr);
  if (allow_shared(kernel, shared) != cudaSuccess) return 1;
  if (cudaOccupancyMaxActiveClusters(&clusters, kernel, &configuration) != cudaSuccess) return 1;
  return std::max(1, clusters);
}

// Blocks that are all on the GPU at once, for kernels that keep something from row to row: `each` on a multiprocessor,
// or as many as have shared memory there; fewer if there would not be a few rows for each team.
template <typename Tile, typename... Parameters>
int64_t blocks_that_stay(void (*kernel)(Parameters...), const Tile& tile, int64_t rows, int each, size_t shared) {
  constexpr size_t kReserved = 2048;  // What a block takes beside what it asks for, and declares.
  const int64_t memory = attribute(cudaDevAttrMaxSharedMemoryPerMultiprocessor) / (shared + kReserved);
  const int64_t blocks = std::clamp<int64_t>(each, 1, std::max<int64_t>(1, memory));
  int64_t teams = std::max<int64_t>(1, blocks * attribute(cudaDevAttrMultiProcessorCount) / tile.blocks_per_team);
  if (tile.blocks_per_team > 1) teams = std::min(teams, clusters_at_once(kernel, tile, shared));
  return std::min(teams * tile.blocks_per_team, blocks_for_rows(tile, (rows + kFewRows - 1) / kFewRows));
}
