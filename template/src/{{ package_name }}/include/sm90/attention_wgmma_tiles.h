// The tiles of attention's kernels for Hopper, from an op's tunables.

#pragma once

#include <algorithm>
#include <cstdint>

#include "ceil_div.h"
#include "mask.h"

namespace attention::sm90 {

// Registers of a thread, by setmaxnreg, where a multiprocessor has kBlocks blocks. At launch all threads have kEven;
// then the producer keeps kMinProducer or a few more, and the consumers share the rest. A single consumer of a single
// block has all that a thread can have from the start.
template <int kConsumers, int kMinProducer, int kBlocks = 1>
struct Registers {
  static constexpr bool kMoves = kConsumers * kBlocks > 1;
  static constexpr int kEven = 65536 / (128 * (1 + kConsumers) * kBlocks) / 8 * 8, kAll = (1 + kConsumers) * kEven;
  static constexpr int kConsumer = (kAll - kMinProducer) / kConsumers / 8 * 8;
  static constexpr int kProducer = kAll - kConsumers * kConsumer;
};

template <int D, typename Tuned>
struct ForwardTile {
  static constexpr int kDims = D, kConsumers = Tuned::consumers, kKeys = Tuned::keys, kStages = Tuned::stages;
  static constexpr bool kPingPong = Tuned::ping_pong;
  static constexpr float kRescaleAt = Tuned::rescale_at;
  static constexpr int64_t kCacheBytes = int64_t(Tuned::cache_mib) << 20;
  using Registers = attention::sm90::Registers<kConsumers, 32>;
  static constexpr int kValueDims = D, kQueryStages = 2;
  static constexpr int kThreads = 128 * (1 + kConsumers);
  static constexpr int kBlocks = 1;  // Resident blocks of a multiprocessor.
  // Whether rows are packed (PackedTile), and whether the output leaves from registers, not by way of shared memory.
  static constexpr bool kPacked = false, kStoresRegisters = false;
};

// Its rows are the queries of several heads that share keys, query by query, and its keys may be a split.
template <int D, typename Tuned>
struct PackedTile : ForwardTile<D, Tuned> {
  static constexpr bool kPacked = true, kStoresRegisters = true;
};

// For sequences that are one short tile, of heads of 64: while one block waits, others work.
template <int D, typename Tuned>
struct ShortTile : PackedTile<D, Tuned> {
  static constexpr int kBlocks = 3;
  using Registers = attention::sm90::Registers<Tuned::consumers, 32, kBlocks>;
};

// For heads of more than 128 dimensions, and values of V, and for long sequences of heads of 128. Beside two stages of
// keys and values, shared memory has room for one tile of queries, and none for the output.
template <int D, int V, typename Tuned>
struct WideHeadTile : ForwardTile<D, Tuned> {
  static constexpr int kValueDims = V, kQueryStages = 1;
  static constexpr bool kStoresRegisters = true;
};

// Which gradients a block of the backward computes: all of its tile of keys or, of wide heads, those of keys and
// queries, or those of values.
enum class Gradients { kAll, kOfKeys, kOfValues };

// `kWarpgroups` counts the consumers.
template <int D, typename Tuned, int kWarpgroups = 2>
struct BackwardTile {
  static constexpr int kDims = D, kValueDims = D;
  static constexpr Gradients kGradients = Gradients::kAll;
  static constexpr int kConsumers = kWarpgroups, kKeys = kConsumers * 64;  // 64 keys each.
  // Queries of a loop iteration, and of its steps. Registers hold k q^T and v grad^T of 128 queries where heads have 64
  // dimensions, else of 64; and a consumer's share of grad_q for 64 rows of heads of up to 96, else for half of each.
  static constexpr int kRows = kDims > 96 ? 64 : kConsumers * 64, kStepRows = kDims > 64 ? 64 : kRows;
  static constexpr int kQueryStages = Tuned::query_stages, kGradStages = Tuned::grad_stages;
  static constexpr bool kValuesFirst = Tuned::values_first;
  static constexpr int kGroupSplits = Tuned::group_splits;  // See attention_group_splits.h.
  static constexpr int64_t kCacheBytes = int64_t(Tuned::cache_mib) << 20;
  static constexpr int kThreads = 128 * (1 + kConsumers);
  static constexpr int kBlocks = kConsumers == 1 ? 2 : 1;  // Resident blocks of a multiprocessor.
  using Registers = attention::sm90::Registers<kConsumers, kDims == 96 ? 40 : 24, kBlocks>;
  static constexpr bool kOrdered = false, kSingle = false;
  static constexpr bool kFindsSingle = false, kDraws = false;  // See MixedTile.
  // Tiles of dS^T in shared memory: of this iteration and the last.
  static constexpr int kDsTiles = kRows > kStepRows ? 1 : 2;
  // Whether grad_q is added from registers, not by way of shared memory.
  static constexpr bool kAddsRegisters = false;

  // What the heads of a section of the tile scheduler read, where a head of keys is read with so many bytes. `wide`:
  // those of eight heads of keys or more, as far as they fit in the L2 cache.
  static int64_t section_bytes(int64_t bytes, bool wide, int most_mib = 32) {
    constexpr int64_t kHeads = 8;
    return wide ? std::max(kCacheBytes, std::min(kHeads * bytes, int64_t(most_mib) << 20)) : kCacheBytes;
  }
};

// Of the deterministic backward: blocks add to grad_q in a fixed order.
template <int D, typename Tuned>
struct OrderedTile : BackwardTile<D, Tuned> {
  static constexpr bool kOrdered = true;
};

// The only tile of keys of its head: a block computes all of grad_q, for which there is no accumulator.
template <int D, typename Tuned, int kWarpgroups>
struct SingleTile : BackwardTile<D, Tuned, kWarpgroups> {
  static constexpr bool kSingle = true;
};

// Of sequences of different lengths: one that has a single tile of keys is treated as by a SingleTile, and a block
// draws one tile of keys after the other.
template <typename Tile>
struct MixedTile : Tile {
  static constexpr bool kFindsSingle = true, kDraws = true;
};

// A block for heads of more than 128 dimensions, and values of V. A thread's registers hold one gradient of 64 keys, so
// that two blocks have each tile of keys. `kInOrder`: of the deterministic backward.
template <int D, int V, typename Tuned, bool kInOrder, Gradients kBlock>
struct WideBlockTile : BackwardTile<D, Tuned> {
  static constexpr int kValueDims = V, kRows = 64, kStepRows = 64;
  static constexpr bool kOrdered = kInOrder;
  static constexpr Gradients kGradients = kBlock;
  static constexpr bool kHasKeys = kBlock == Gradients::kOfKeys;
  static constexpr int kQueryStages = kHasKeys ? Tuned::query_stages : 2;
  static constexpr int kGradStages = kHasKeys ? Tuned::grad_stages : 2;
  static constexpr int kDsTiles = kHasKeys ? 1 : 0;
  static constexpr bool kAddsRegisters = !Tuned::stages_grad_q;
  // The warp that adds takes more registers than loads alone.
  using Registers = attention::sm90::Registers<2, kAddsRegisters ? 24 : 40>;
};

// Both blocks of such a tile of keys.
template <int D, int V, typename Tuned, bool kInOrder>
struct WideBackwardTile : WideBlockTile<D, V, Tuned, kInOrder, Gradients::kOfKeys> {
  using OfKeys = WideBlockTile<D, V, Tuned, kInOrder, Gradients::kOfKeys>;
  using OfValues = WideBlockTile<D, V, Tuned, kInOrder, Gradients::kOfValues>;
};

// Both of sequences of different lengths: see MixedTile. A block draws tiles for either.
template <typename Both>
struct MixedWideTile : MixedTile<typename Both::OfKeys> {
  using OfKeys = MixedTile<typename Both::OfKeys>;
  using OfValues = MixedTile<typename Both::OfValues>;
};

// The rows of a head, rounded up to whole tiles: queries, and keys.
template <typename Tile>
constexpr int64_t padded_rows(int64_t queries) {
  return ceil_div(queries, Tile::kRows) * Tile::kRows;
}
template <typename Tile>
constexpr int64_t padded_keys(int64_t keys) {
  return ceil_div(keys, Tile::kKeys) * Tile::kKeys;
}

// Loop iterations of all consumers for one head's forward.
template <typename Tuned>
int64_t consumer_iterations(const Mask& mask) {
  constexpr int kRows = Tuned::consumers * 64;
  int64_t iterations = 0;
  for (int first_row = 0; first_row < mask.queries; first_row += kRows) {
    const int first_tile = mask.begin(first_row) / Tuned::keys;
    iterations += ceil_div(mask.end(std::min(first_row + kRows, mask.queries) - 1), Tuned::keys) - first_tile;
  }
  return iterations * Tuned::consumers;
}

// Whether a forward for heads of 64 or 96 uses the wide tile: not where its padding to whole tiles costs more than it
// saves, as in short sequences. The choice is by the defaults, so that tuning one tile does not move the limit of the
// other.
template <typename Wide, typename Narrow>
bool prefers_wide_tile(const Mask& mask) {
  constexpr double kWideCost = 0.81;     // Measured time of an iteration with the wide tile over one with the other.
  constexpr int kPaddingIsSmall = 4096;  // From this many queries on.
  return mask.queries >= kPaddingIsSmall ||
         consumer_iterations<Wide>(mask) * kWideCost < consumer_iterations<Narrow>(mask);
}

// Whether a forward for heads of 128 uses the tile for long sequences, of more keys than the other: not where padding
// to whole tiles of keys, and each tile's wait for its queries, cost more than it saves.
template <typename Long, typename Other>
bool prefers_long_tile(const Mask& mask) {
  constexpr double kLongCost = 1.31;  // Measured time of an iteration with the long tile over one with the other,
  constexpr double kTileCost = 1.5;   // and of a tile besides.
  const int64_t tiles = ceil_div(mask.queries, Other::consumers * 64) * Other::consumers;
  return consumer_iterations<Long>(mask) * kLongCost + tiles * kTileCost < consumer_iterations<Other>(mask);
}

}  // namespace attention::sm90
