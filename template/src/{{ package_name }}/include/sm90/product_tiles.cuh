// Matrix products x Wᵀ by persistent, warp-specialised blocks (sm_90a): which tile a block computes, and the producer
// that loads its operands.
//
// A block's producer warpgroup fills a ring in shared memory by TMA, 128 bytes of k a stage, tile after tile without a
// break. Its consumer warpgroups multiply from the ring (product_accumulator.cuh). Two or three consumers share the
// work in one of two ways:
//
//   ping-pong    each has tiles of its own: one's epilogue runs during the other's mainloop.
//   cooperative  each has a part of every tile: larger tiles need less bandwidth, but nothing hides their epilogue.
//
// Blocks of a cluster have tiles below each other, which need the same rows of W, beside each other, which need the
// same rows of x, or both: each loads a share of these and multicasts it. And they may split k (split-K): each block
// multiplies a share of k for the same tile, then reduces some of its panels over the splits and finishes those.

#pragma once

#include <algorithm>

#include "cluster.cuh"
#include "divisor.cuh"
#include "mbarrier.cuh"
#include "product_tile.h"
#include "swizzle.cuh"
#include "tma.cuh"
#include "tma.h"
#include "warpgroup.cuh"

namespace product {

// The elements of k in a stage, of an operand's type T: rows of 128 bytes.
template <typename T>
constexpr int kStep = kSwizzleRow / sizeof(T);

// A tile's columns go in panels of so many, those of a result of 16 bits in 128 bytes; the last may be narrower. Splits
// exchange an accumulator by panels.
constexpr int kPanel = 64;

// What follows from a tile's sizes.
template <typename Tile>
struct Layout {
  static constexpr int kThreads = (1 + Tile::kConsumers) * kWarpgroup;
  // Consumers that share a tile; each one's rows of it, and its wgmmas of 64 rows each.
  static constexpr int kShares = Tile::kPingPong ? 1 : Tile::kConsumers;
  static constexpr int kRows = Tile::kRows / kShares, kProducts = kRows / 64;
  static constexpr int kXBytes = Tile::kRows * kSwizzleRow, kWeightBytes = Tile::kColumns * kSwizzleRow;
  static constexpr int kStageBytes = kXBytes + kWeightBytes, kRingBytes = Tile::kStages * kStageBytes;
  // Rows of x and of W that a block loads, for itself or for its cluster.
  static constexpr int kXShare = Tile::kRows / Tile::kClusterColumns;
  static constexpr int kWeightShare = Tile::kColumns / Tile::kClusterRows;
  static constexpr int kPanels = ceil_div(Tile::kColumns, kPanel);
  // The accumulators of all consumers, for the split-K reduction.
  static constexpr int kAccumulatorBytes = Tile::kRows * Tile::kColumns * sizeof(float);
  static_assert(Tile::kColumns % 8 == 0 && Tile::kRows % (64 * kShares) == 0);
  static_assert(!Tile::kPingPong || (Tile::kConsumers == 2 && Tile::kSplits == 1), "ping-pong is between two");
  static_assert(kXShare % 8 == 0 && kWeightShare % 8 == 0, "the swizzle repeats after 8 rows");
};

// A block's position in its cluster, whose splits have ranks one after the other.
template <typename Tile>
struct ClusterPosition {
  int row, column, split;

  // The ranks of the blocks of this split beside this one, which need the same rows of x, and of those below or above
  // it, which need the same rows of W; both with this one's.
  __device__ uint16_t beside() const {
    uint32_t ranks = 0;
#pragma unroll
    for (int other = 0; other < Tile::kClusterColumns; ++other) ranks |= 1 << (other * Tile::kClusterRows + row);
    return static_cast<uint16_t>(ranks << first_rank());
  }
  __device__ uint16_t below() const {
    return static_cast<uint16_t>(((1 << Tile::kClusterRows) - 1) << (first_rank() + column * Tile::kClusterRows));
  }

  // The first rank of this split.
  __device__ int first_rank() const { return Tile::kSplits > 1 ? split * Tile::kMulticast : 0; }

  static __device__ ClusterPosition of_this_block() {
    const int rank = Tile::kCluster > 1 ? cluster::rank() : 0, in_split = rank % Tile::kMulticast;
    return {in_split % Tile::kClusterRows, in_split / Tile::kClusterRows, rank / Tile::kMulticast};
  }

  // Of all stages of k, the first of this block's split, and one past the last.
  __device__ int begin_step(int all) const { return split * all / Tile::kSplits; }
  __device__ int end_step(int all) const { return (split + 1) * all / Tile::kSplits; }
};

// The first row and column of a tile. They fit an int, as TMA's coordinates do.
struct Corner {
  int row, column;
};

// The tile scheduler, in units of a cluster's tiles: bands of kBand rows of these, each taken column by column. An int
// counts them: no memory holds the results of more.
template <typename Tile>
struct TileScheduler {
  static constexpr int kRows = Tile::kRows * Tile::kClusterRows, kColumns = Tile::kColumns * Tile::kClusterColumns;
  int64_t m, n;                   // Of the result, in elements.
  int rows, columns, tiles;       // Of the result, in clusters' tiles.
  Divisor band_tiles, last_rows;  // Tiles of a band, and rows of the last band.

  TileScheduler(int64_t m, int64_t n)
      : m(m),
        n(n),
        rows(static_cast<int>(ceil_div(m, kRows))),
        columns(static_cast<int>(ceil_div(n, kColumns))),
        tiles(rows * columns),
        band_tiles(std::min(rows, Tile::kBand) * columns),
        last_rows((rows - 1) % Tile::kBand + 1) {}

  // Within a band, all tiles that need the same rows of W read them at about the same time. With one band, never again.
  bool has_one_band() const { return rows <= Tile::kBand; }

  // Of a block's tile. Meaningless, but harmless, for tiles past the last.
  __device__ Corner corner_of(int tile, const ClusterPosition<Tile>& block) const {
    const int band = band_tiles.divide(tile), in_band = tile - band * band_tiles.value();
    const bool is_last = (band + 1) * Tile::kBand >= rows;
    const int column = is_last ? last_rows.divide(in_band) : in_band / Tile::kBand;
    const int row = band * Tile::kBand + in_band - column * (is_last ? last_rows.value() : Tile::kBand);
    return {row * kRows + block.row * Tile::kRows, column * kColumns + block.column * Tile::kColumns};
  }
};

// TMA descriptors of x or W: in boxes of the rows that a block loads, and in a box of the rows that remain at the end.
// (Boxes that extend past the matrix would load zeros, but take longer.)
struct Operand {
  // Whether all tiles that need the same rows read them at about the same time, and never again: such data should leave
  // the L2 cache first.
  bool is_read_once = false;
  CUtensorMap whole, rest;
};

template <typename T>
cudaError_t describe(
    Operand& operand,
    const T* data,
    int64_t rows,
    int64_t columns,
    int box_rows,
    CUtensorMapL2promotion promotion = CU_TENSOR_MAP_L2_PROMOTION_L2_256B) {
  const cudaError_t error = tma::describe(operand.whole, data, rows, columns, box_rows, promotion);
  const int rest = static_cast<int>(rows % box_rows);
  return error == cudaSuccess && rest > 0 ? tma::describe(operand.rest, data, rows, columns, rest, promotion) : error;
}

// How many of `rows` rows from `first` on are within the matrix's `all`, which fit an int.
__device__ inline int rows_left(int rows, int first, int64_t all) {
  return min(max(static_cast<int>(all) - first, 0), rows);
}

template <typename Tile>
struct Barriers {
  MBarrier full[Tile::kStages], empty[Tile::kStages];
  MBarrier received;  // With split-K: what the other blocks of the cluster sent.

  // By one thread, before a barrier of the cluster's threads.
  __device__ void init() {
    for (int stage = 0; stage < Tile::kStages; ++stage) {
      full[stage].init(1);
      empty[stage].init(Tile::kMulticast * Layout<Tile>::kShares);
    }
    if (Tile::kSplits > 1) received.init(1);
    fence_mbarrier_init();
  }
};

// Named barriers: one of each consumer, up to three, and two of all. With ping-pong, the latter let each consumer begin
// its mainloop.
constexpr int kConsumerBarrier = 1, kMainloopBarrier = 4;

// Loads a box to the blocks of the given ranks if kMulticast, or to this one. `once` marks data that is not read again.
template <bool kMulticast>
__device__ void load_box(
    char* shared, const CUtensorMap& map, int row, int column, MBarrier& full, uint16_t ranks, bool once) {
  if constexpr (!kMulticast) {
    if (once) {
      tma_load_once(shared, map, row, column, full);
    } else {
      tma_load(shared, map, row, column, full);
    }
  } else {
    if (once) {
      tma_load_once_multicast(shared, map, row, column, full, ranks);
    } else {
      tma_load_multicast(shared, map, row, column, full, ranks);
    }
  }
}

// A block's share of the rows of an operand's tile, as far as they are within the matrix, for the blocks of the given
// ranks.
template <int kMulticast, int kShare>
struct Share {
  const CUtensorMap* map;  // nullptr: no rows.
  int row, offset;         // The first row, and the byte offset in a stage.
  uint16_t ranks;

  __device__ Share(const Operand& operand, int tile_row, int index, uint16_t ranks, int64_t all)
      : row(tile_row + index * kShare), offset(index * kShare * kSwizzleRow), ranks(ranks) {
    const int rows = rows_left(kShare, row, all);
    map = rows == kShare ? &operand.whole : rows > 0 ? &operand.rest : nullptr;
  }

  __device__ void load(char* shared, int column, MBarrier& full, bool once) const {
    if (map) load_box<(kMulticast > 1)>(shared + offset, *map, row, column, full, ranks, once);
  }
};

// What a block loads for a tile.
template <typename Tile>
struct TileLoads {
  using Layout = product::Layout<Tile>;
  Share<Tile::kClusterColumns, Layout::kXShare> x;
  Share<Tile::kClusterRows, Layout::kWeightShare> weight;
  int bytes;  // That arrive for a stage. Rows outside of the matrices keep old data, which only enters results outside.

  __device__ TileLoads(
      const Operand& x_map,
      const Operand& weight_map,
      const TileScheduler<Tile>& scheduler,
      const ClusterPosition<Tile>& block,
      Corner corner)
      : x(x_map, corner.row, block.column, block.beside(), scheduler.m),
        weight(weight_map, corner.column, block.row, block.below(), scheduler.n),
        bytes(
            (rows_left(Tile::kRows, corner.row, scheduler.m) + rows_left(Tile::kColumns, corner.column, scheduler.n)) *
            kSwizzleRow) {}
};

// Loads the operands, elements of type T, of this block's tiles from `tile` on: so many steps of k from the first.
// `loads` are those of the first tile.
template <typename T, typename Tile>
__device__ void produce(
    const Operand& x_map,
    const Operand& weight_map,
    char* ring,
    Barriers<Tile>& barriers,
    const TileScheduler<Tile>& scheduler,
    const ClusterPosition<Tile>& block,
    int tile,
    TileLoads<Tile> loads,
    int first_step,
    int steps) {
  using Layout = product::Layout<Tile>;
  RingPosition<Tile::kStages> position;
  while (tile < scheduler.tiles) {
    for (int step = first_step; step < first_step + steps; ++step, position.advance()) {
      char* stage = ring + position.stage() * Layout::kStageBytes;
      MBarrier& full = barriers.full[position.stage()];
      barriers.empty[position.stage()].wait(position.parity() ^ 1);
      full.arrive_expecting(loads.bytes);
      loads.x.load(stage, step * kStep<T>, full, x_map.is_read_once);
      loads.weight.load(stage + Layout::kXBytes, step * kStep<T>, full, weight_map.is_read_once);
    }
    tile += gridDim.x / Tile::kCluster;
    loads = TileLoads<Tile>(x_map, weight_map, scheduler, block, scheduler.corner_of(tile, block));
  }
  if constexpr (Tile::kMulticast > 1) {
    // Waits until every stage is empty: a block must not end while others still arrive at its barriers.
    for (int stage = 0; stage < Tile::kStages; ++stage, position.advance()) {
      barriers.empty[position.stage()].wait(position.parity() ^ 1);
    }
  }
}

}  // namespace product
