// The tile scheduler of attention's persistent kernels, and what their launches share. Where sequences differ in
// length, it is that of attention_ragged.cuh.

#pragma once

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdint>

#include "ceil_div.h"
#include "mask.h"
#include "warpgroup.cuh"

namespace attention::sm90 {

// How a persistent block goes on: it starts with the tile of its own index. With a counter it then draws the next tile
// that no block has drawn, so that all blocks end at about the same time even where tiles differ in length; without
// one, it strides through the tiles by the size of the grid.
struct DrawnTiles {
  int* counter = nullptr;  // Tiles drawn beyond every block's first. In global memory, initially 0.

  // The index that a block takes after `index`. For one thread of the block.
  __device__ int next(int index) const { return gridDim.x + (counter ? atomicAdd(counter, 1) : index); }
};

// The tile scheduler: which tile of which head comes when. All heads have equally many tiles.
//
// Heads are scheduled in sections whose keys and values (or whatever else their tiles share) fit in the L2 cache
// together: first the first tile of every head of the section, then the second of every head, and so on. The last tiles
// of a head, the late ones, should be short. They come after all other tiles of all heads, and fill the multiprocessors
// that would otherwise wait for the last long tile.
struct TileScheduler : DrawnTiles {
  int batch_heads, heads, tiles;
  int early, late;                  // Tiles of a head that come early, and late;
  int early_section, late_section;  // and how many heads a section has for each.
  bool descending = false;          // Whether a head's tiles come from the highest index to the lowest.

  // `group` heads share `bytes` of what they read, and a section reads `section_bytes` at most. Late tiles read less.
  TileScheduler(int64_t head_tiles, int late, int batch, int heads, int group, int64_t bytes, int64_t section_bytes)
      : batch_heads(batch * heads),
        heads(heads),
        tiles(static_cast<int>(head_tiles * batch_heads)),
        early(static_cast<int>(head_tiles) - late),
        late(late) {
    const int64_t max_groups = section_bytes / std::max<int64_t>(bytes, 1);
    early_section = section_heads(max_groups, group);
    late_section = late > 0 ? section_heads(max_groups * head_tiles / late, group) : batch_heads;
  }

  // Heads of a section, if sections have about equal sizes, and max_groups groups at most.
  int section_heads(int64_t max_groups, int group) const {
    const int64_t groups = batch_heads / group, sections = ceil_div(groups, std::clamp<int64_t>(max_groups, 1, groups));
    return static_cast<int>(ceil_div(groups, sections)) * group;
  }

  // With so many tiles of a head, none of them late.
  __device__ TileScheduler with_tiles(int head_tiles) const {
    TileScheduler scheduler = *this;
    scheduler.early = head_tiles;
    scheduler.tiles = head_tiles * batch_heads;
    return scheduler;
  }

  struct Coordinates {
    int batch, head, tile;
  };

  // Of the tile that comes as number `index`.
  __device__ Coordinates coordinates(int index) const {
    const bool is_late = index >= early * batch_heads;
    if (is_late) index -= early * batch_heads;
    const int head_tiles = is_late ? late : early, section = is_late ? late_section : early_section;
    const int first_head = index / (head_tiles * section) * section, in_section = index - first_head * head_tiles;
    const int section_size = min(batch_heads - first_head, section), head = first_head + in_section % section_size;
    const int tile = in_section / section_size + (is_late ? early : 0);
    return {head / heads, head % heads, descending ? early + late - 1 - tile : tile};
  }
};

// The index that the block takes after `index`, for one thread of the block or for a warp.
template <int kThreads>
__device__ int next_index(const DrawnTiles& scheduler, int index) {
  static_assert(kThreads == 1 || kThreads == 32);
  if (kThreads == 1) return scheduler.next(index);
  int next = 0;
  if (threadIdx.x % 32 == 0) next = scheduler.next(index);
  return same_in_warp(next);
}

// How many of a head's tiles come late: a sixth where a mask makes tiles differ in length; else the last one, if it is
// partial and the head has many.
inline int late_tiles(const Mask& mask, int64_t tiles, bool partial) {
  constexpr int kMany = 8;
  return static_cast<int>(mask.is_even() ? partial && tiles >= kMany : tiles / 6);
}

#define RETURN_IF_FAILED(call) \
  if (const cudaError_t error = (call); error != cudaSuccess) return error;

// The number of multiprocessors of the current device.
inline cudaError_t multiprocessors(int& count) {
  int device = 0;
  RETURN_IF_FAILED(cudaGetDevice(&device));
  return cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device);
}

}  // namespace attention::sm90
