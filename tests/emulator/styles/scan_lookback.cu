// An inclusive prefix sum in one pass, by decoupled look-back (Merrill and Garland, 2016): a tile publishes its sum,
// then adds up those of the tiles before it until it meets one whose prefix is known.

#include <cstdint>

typedef unsigned int u32;

static const int kTileThreads = 64;
static const int kItems = 4;
static const int kTileItems = kTileThreads * kItems;

enum Status : u32 { kInvalid = 0, kAggregate = 1, kPrefix = 2 };

struct TileStates {
  volatile u32* status;
  u32* aggregate;  // Written before the status that tells of them.
  u32* prefix;
};

__device__ u32 warp_inclusive_sum(u32 value) {
  const int lane = threadIdx.x % 32;
  for (int d = 1; d < 32; d *= 2) {
    const u32 below = __shfl_up_sync(~0u, value, d);
    if (lane >= d) value += below;
  }
  return value;
}

__device__ u32 warp_sum(u32 value) {
  for (int d = 16; d > 0; d /= 2) value += __shfl_xor_sync(~0u, value, d);
  return value;
}

// The sum of all tiles before `tile`, by one warp. Lane 0 looks at the tile before, lane 1 at the one before that.
__device__ u32 look_back(const TileStates& states, int tile) {
  const int lane = threadIdx.x % 32;
  u32 exclusive = 0;
  for (int window = tile - 1; window >= 0; window -= 32) {
    const int other = window - lane;
    u32 status = kPrefix, value = 0;
    if (other >= 0) {
      do {
        status = states.status[other];
      } while (status == kInvalid);
      __threadfence();
      value = status == kPrefix ? states.prefix[other] : states.aggregate[other];
    }
    const u32 known = __ballot_sync(~0u, status == kPrefix);
    const int last = known ? __ffs(known) - 1 : 31;
    exclusive += warp_sum(lane <= last ? value : 0);
    if (known) break;
  }
  return exclusive;
}

__global__ void scan_kernel(const u32* in, u32* out, int n, u32* next_tile, TileStates states) {
  __shared__ u32 warp_sums[kTileThreads / 32];
  __shared__ u32 tile_exclusive;
  __shared__ int tile_shared;
  const int t = threadIdx.x, lane = t % 32, warp = t / 32;

  // Tiles are numbered in the order in which blocks start, so that the tiles before this one are under way.
  if (t == 0) tile_shared = atomicAdd(next_tile, 1u);
  __syncthreads();
  const int tile = tile_shared;
  const int first = tile * kTileItems + t * kItems;

  u32 items[kItems], sum = 0;
  if (first + kItems <= n) {
    const uint4 four = *reinterpret_cast<const uint4*>(in + first);
    items[0] = four.x, items[1] = four.y, items[2] = four.z, items[3] = four.w;
  } else {
    for (int i = 0; i < kItems; ++i) items[i] = first + i < n ? in[first + i] : 0;
  }
  for (int i = 0; i < kItems; ++i) sum = items[i] += sum;

  const u32 inclusive = warp_inclusive_sum(sum);
  if (lane == 31) warp_sums[warp] = inclusive;
  __syncthreads();
  u32 before = inclusive - sum, aggregate = 0;
  for (int w = 0; w < kTileThreads / 32; ++w) {
    if (w < warp) before += warp_sums[w];
    aggregate += warp_sums[w];
  }

  if (warp == 0) {
    if (lane == 0) {
      if (tile == 0) {
        states.prefix[0] = aggregate;
        __threadfence();
        states.status[0] = kPrefix;
      } else {
        states.aggregate[tile] = aggregate;
        __threadfence();
        states.status[tile] = kAggregate;
      }
    }
    const u32 exclusive = tile == 0 ? 0 : look_back(states, tile);
    if (lane == 0) {
      if (tile > 0) {
        states.prefix[tile] = exclusive + aggregate;
        __threadfence();
        states.status[tile] = kPrefix;
      }
      tile_exclusive = exclusive;
    }
  }
  __syncthreads();
  before += tile_exclusive;
  for (int i = 0; i < kItems; ++i) {
    if (first + i < n) out[first + i] = before + items[i];
  }
}

// `workspace` has 1 + 3 * tiles elements.
extern "C" cudaError_t run_scan_lookback(const u32* in, u32* out, u32* workspace, int64_t n) {
  const int tiles = static_cast<int>((n + kTileItems - 1) / kTileItems);
  if (tiles == 0) return cudaSuccess;
  const cudaError_t error = cudaMemsetAsync(workspace, 0, (1 + tiles) * sizeof(u32), 0);
  if (error != cudaSuccess) return error;
  const TileStates states = {workspace + 1, workspace + 1 + tiles, workspace + 1 + 2 * tiles};
  scan_kernel<<<tiles, kTileThreads>>>(in, out, static_cast<int>(n), workspace, states);
  return cudaGetLastError();
}
