// Decoding: the grid of attention_decode.cuh.

#pragma once

#include <algorithm>
#include <cstdint>

#include "ceil_div.h"

namespace attention::sm80 {

// Rows of a block: queries of all heads that share a head of keys. Up to this many, each key is read once.
constexpr int kDecodeRows = 8;
constexpr int kDecodeKeys = 16;  // Of a warp's iteration.
// Warps of a block, at most, by the width of its heads: the output of a warp's rows has to fit shared memory.
constexpr int max_decode_warps(int width) {
  return width <= 128 ? 8 : 4;
}
// And of a multiprocessor, whose registers limit them.
constexpr int resident_decode_warps(int width) {
  return width <= 64 ? 16 : 8;
}
constexpr int kMinDecodeWarps = 2;  // Of a block.
// Whether blocks can take several tiles, one after the other. Of narrower heads so many warps are resident that nothing
// is gained by it, and wider ones leave no registers for it.
constexpr bool decode_blocks_stay(int width) {
  return width == 128;
}

// Warps of a block, splits of the keys, and blocks of a split: one for each tile, or fewer, which take tiles in turn.
struct DecodeGrid {
  int warps, splits, blocks = 0;
};

// The iterations of a block's first warp, which no other has more of.
inline int64_t decode_iterations(int64_t steps, const DecodeGrid& grid) {
  return ceil_div(steps, int64_t(grid.splits) * grid.warps);
}

// How many of the smallest blocks are resident.
inline int64_t resident_decode_blocks(int width, int multiprocessors) {
  return multiprocessors * (resident_decode_warps(width) / kMinDecodeWarps);
}

// Whether the blocks of a grid that has more of them than are resident stay, and take the tiles in turn: a block that
// begins waits for its first keys, and one that ends reads none. In a long stream blocks have drifted apart, so that
// some begin while others read; and as multiprocessors differ in speed, blocks that begin where others end fill the GPU
// better than equal shares.
inline bool decode_blocks_stay(int64_t turns, int64_t iterations, int width) {
  constexpr int64_t kLong = 80;  // Iterations of a warp.
  return decode_blocks_stay(width) && turns > 1 && turns * iterations <= kLong;
}

// What a grid depends on of a GPU. `memory_bytes`: what memory delivers in a cycle, see memory_rate.h.
struct DecodeGpu {
  int multiprocessors;
  double memory_bytes;
};

// The estimated time of a grid in cycles, by constants from an H100. `tiles` of 8 rows iterate over so many steps of 16
// keys.
inline int64_t decode_cycles(int64_t tiles, int64_t steps, int width, const DecodeGpu& gpu, const DecodeGrid& grid) {
  constexpr double kLatency = 1650;   // Of an iteration, whose keys come from memory, if nothing else is read.
  constexpr int64_t kBlock = 1000;    // To begin and end a block.
  constexpr int64_t kTurn = 200;      // To end a tile while the next one's keys are on their way.
  constexpr int64_t kCombine = 3500;  // To launch the kernel that combines splits.
  constexpr int64_t kCombinedSplit = 30;
  const int64_t blocks = tiles * grid.splits;
  const int64_t resident = gpu.multiprocessors * (resident_decode_warps(width) / grid.warps);
  const int64_t iterations = decode_iterations(steps, grid), turns = ceil_div(blocks, resident);
  // Of a block in an iteration, in the mean: in the last, warps may have no keys left.
  const double keys = double(steps) / grid.splits / iterations * kDecodeKeys;
  const double transfer = std::min(blocks, resident) * keys * width * 4 / gpu.memory_bytes;
  // Latency and transfer overlap, less so the nearer they are: about the cube root of the sum of their cubes.
  const double longer = std::max(kLatency, transfer), shorter = std::min(kLatency, transfer);
  const double iteration = longer + shorter * shorter * shorter / (3 * longer * longer);
  const int64_t between = decode_blocks_stay(turns, iterations, width) ? kTurn : kBlock;
  const auto cycles = static_cast<int64_t>(turns * iterations * iteration) + kBlock + (turns - 1) * between;
  return grid.splits == 1 ? cycles : cycles + kCombine + grid.splits * kCombinedSplit;
}

// The grid that is estimated to be the fastest: blocks of up to 8 warps, and splits that fill the GPU in one wave, but
// no more than have the fewest iterations. A smaller block has to be worth kMargin, since the warps of a large one read
// neighbouring memory at one time.
inline DecodeGrid decode_grid(int64_t tiles, int keys, int width, const DecodeGpu& gpu, int max_splits) {
  const int64_t steps = std::max<int64_t>(ceil_div(keys, kDecodeKeys), 1);
  constexpr double kMargin = 0.96;
  DecodeGrid best{};
  int64_t least = 0;
  for (int warps = max_decode_warps(width); warps >= kMinDecodeWarps; warps /= 2) {
    const int64_t resident = gpu.multiprocessors * (resident_decode_warps(width) / warps);
    const int64_t most = std::clamp<int64_t>(resident / tiles, 1, std::min<int64_t>(max_splits, steps));
    const int64_t iterations = decode_iterations(steps, {warps, int(most)});
    for (const int64_t splits : {int64_t(1), ceil_div(steps, iterations * warps)}) {
      const DecodeGrid grid{warps, int(splits)};
      const int64_t cycles = decode_cycles(tiles, steps, width, gpu, grid);
      const double margin = warps < best.warps ? kMargin : 1;
      if (best.warps == 0 || cycles < least * margin) best = grid, least = cycles;
    }
  }
  const int64_t resident = gpu.multiprocessors * (resident_decode_warps(width) / best.warps);
  const bool stay = decode_blocks_stay(ceil_div(tiles, resident), decode_iterations(steps, best), width);
  best.blocks = static_cast<int>(stay ? resident : tiles);
  return best;
}

}  // namespace attention::sm80
