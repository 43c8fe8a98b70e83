// The tile of a matrix product x Wᵀ by TMA and wgmma, and an estimate of the time that a product of 8-bit numbers takes
// with such tiles. Plain C++: the host chooses a tile by it.

#pragma once

#include <algorithm>
#include <cstdint>

namespace product {

constexpr int64_t ceil_div(int64_t a, int64_t b) {
  return (a + b - 1) / b;
}

// The tile of a class, by its defaults or tuned values.
template <typename Tuned>
struct Tile {
  static constexpr int kRows = Tuned::rows, kColumns = Tuned::columns;
  static constexpr int kStages = Tuned::stages, kConsumers = Tuned::consumers;
  static constexpr bool kPingPong = Tuned::ping_pong;
  static constexpr int kClusterRows = Tuned::cluster_rows, kClusterColumns = Tuned::cluster_columns;
  static constexpr int kMulticast = kClusterRows * kClusterColumns, kSplits = Tuned::cluster_splits;
  static constexpr int kCluster = kMulticast * kSplits, kBand = Tuned::band;
  // Of a thread, by setmaxnreg: a consumer holds the accumulator, a producer needs few, but more where it has a split.
  // Two consumers and a producer have three times the 168 registers with which their kernel begins.
  static constexpr int kProducerRegisters = kConsumers > 2 ? 32 : kSplits > 1 ? 40 : 24;
  static constexpr int kConsumerRegisters = kConsumers > 2 ? 160 : kSplits > 1 ? 232 : 240;
};

// The estimated time of a product of m rows and n columns in cycles, less what is the same for all tiles. `stages` are
// the steps of 128 bytes that k is, `bytes` is all that is read and written, and l2_bytes what the L2 cache delivers a
// cycle. The constants were fitted to measurements on an H200.
template <typename Tile>
int64_t estimated_cycles(int64_t m, int64_t n, int64_t stages, int64_t bytes, int multiprocessors, int64_t l2_bytes) {
  // Clusters of four fit on seven eighths of the multiprocessors only: not every GPC has a multiple of four.
  const int64_t resident = (Tile::kCluster > 2 ? multiprocessors * 7 / 8 : multiprocessors) / Tile::kCluster;
  const int64_t clusters =
      ceil_div(m, Tile::kRows * Tile::kClusterRows) * ceil_div(n, Tile::kColumns * Tile::kClusterColumns);
  const int64_t waves = ceil_div(clusters, std::max<int64_t>(resident, 1));
  // A stage, 128 bytes of k. A multiprocessor multiplies 4096 bytes a cycle, and receives 71. The L2 cache delivers
  // multicast data once; its rate matters once half of the ring is drained.
  constexpr int64_t kMath = Tile::kRows * Tile::kColumns / 32;
  constexpr int64_t kReceive = (Tile::kRows + Tile::kColumns) * 128 / 71;
  constexpr int64_t kL2Bytes = (Tile::kRows / Tile::kClusterColumns + Tile::kColumns / Tile::kClusterRows) * 128;
  const int64_t l2 = kL2Bytes * std::min(clusters, resident) * Tile::kCluster / l2_bytes;
  const int64_t steps = waves * ceil_div(stages, Tile::kSplits);
  const int64_t mainloop = std::max(steps * std::max(kMath, kReceive), (steps - Tile::kStages / 2) * l2);
  const int64_t memory = bytes / 2580;
  // The epilogue, by the accumulators of a thread. Ping-pong hides all but the last; after that one, the result has yet
  // to reach memory.
  constexpr int64_t kEpilogue =
      1200 + 8 * (Tile::kRows * Tile::kColumns / 128 / (Tile::kPingPong ? 1 : Tile::kConsumers));
  // Split-K adds up accumulators; blocks that multicast wait for each other, the longer the larger a stage is.
  constexpr int64_t kReduction = Tile::kSplits > 1 ? 3150 : 0;
  constexpr int64_t kStageRows = Tile::kRows + Tile::kColumns;
  constexpr int64_t kClusterWait = Tile::kMulticast > 1 ? kStageRows * kStageRows / 50 : 0;
  return std::max(mainloop, memory) + (Tile::kPingPong ? 2 : waves + 1) * kEpilogue + kReduction + kClusterWait;
}

}  // namespace product
