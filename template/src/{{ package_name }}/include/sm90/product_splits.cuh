// Split-K: the blocks of a cluster have the same tile, and each has multiplied a share of k. They add up their
// accumulators in strips of columns, which go round robin to the blocks: each sends the strips that others finish
// straight from its registers to their shared memory, and adds what it receives to its own, always in the same order.

#pragma once

#include "cluster.cuh"
#include "product_accumulator.cuh"

namespace product {

// A block's part of the exchange. A tile is the only one of its block, so that the buffers are used once.
template <typename Tile, int kStrip>
struct Splits {
  static_assert(Tile::kColumns % kStrip == 0 && kStrip % 8 == 0);
  static constexpr int kStrips = Tile::kColumns / kStrip, kOthers = Tile::kSplits - 1;
  static constexpr int kMost = ceil_div(kStrips, Tile::kSplits);  // Strips that a block finishes.
  // Four values of each thread for eight columns of 64 rows.
  static constexpr int kThreads = Tile::kConsumers * kWarpgroup, kPieces = Layout<Tile>::kProducts * kStrip / 8;
  static constexpr int kStripFloats = kPieces * kThreads * 4;
  // What a block receives needs memory of its own: the ring is still in use when the first values arrive.
  static constexpr int kBytes = kOthers * kMost * kStripFloats * sizeof(float);

  float* received;
  MBarrier* barrier;
  int split;

  static __device__ bool finishes(int strip, int split) { return strip % Tile::kSplits == split; }

  // By one thread, after the barrier's init.
  static __device__ void expect(MBarrier& barrier, int split) {
    const int strips = (kStrips - split + kOthers) / Tile::kSplits;
    barrier.arrive_expecting(kOthers * strips * kStripFloats * static_cast<int>(sizeof(float)));
  }

  // Where this thread has a piece of a strip from the block of the rank `from` among the others.
  __device__ float* piece(int from, int strip, int piece) const {
    const int row = (from * kMost + strip / Tile::kSplits) * kPieces + piece;
    return received + (row * kThreads + threadIdx.x - kWarpgroup) * 4;
  }

  // The accumulator becomes the sum in the strips that this block finishes. By all consumers, after all threads of
  // the block have arrived at the cluster's barrier; those of blocks that multicast have waited for it as well.
  __device__ void add_up(Accumulator<Tile>& acc) const {
    if constexpr (Tile::kMulticast == 1) cluster::wait();
#pragma unroll
    for (int strip = 0; strip < kStrips; ++strip) {
      constexpr int kSplits = Tile::kSplits;
      const int target = strip % kSplits, from = (split - target + kSplits) % kSplits - 1;
      if (target != split) send(acc, strip, target, from);
    }
    if (split < kStrips) barrier->wait(0);
#pragma unroll
    for (int strip = 0; strip < kStrips; ++strip) {
      if (finishes(strip, split)) receive(acc, strip);
    }
  }

  __device__ void send(const Accumulator<Tile>& acc, int strip, int target, int from) const {
    const int rank = target * Tile::kMulticast + cluster::rank() % Tile::kMulticast;
#pragma unroll
    for (int i = 0; i < kPieces; ++i) {
      const float* values = values_of(acc, strip, i);
      store_in(rank, piece(from, strip, i), {values[0], values[1], values[2], values[3]}, *barrier);
    }
  }

  __device__ void receive(Accumulator<Tile>& acc, int strip) const {
#pragma unroll
    for (int i = 0; i < kPieces; ++i) {
      float* values = const_cast<float*>(values_of(acc, strip, i));
#pragma unroll
      for (int from = 0; from < kOthers; ++from) {
        const auto addends = *reinterpret_cast<const Vector<float, 4>*>(piece(from, strip, i));
#pragma unroll
        for (int j = 0; j < 4; ++j) values[j] += addends[j];
      }
    }
  }

  // A thread's four values of eight columns of a strip.
  static __device__ const float* values_of(const Accumulator<Tile>& acc, int strip, int piece) {
    constexpr int kEights = kStrip / 8;
    return acc.acc[piece / kEights] + (strip * kEights + piece % kEights) * 4;
  }
};

}  // namespace product
