// The accumulators of a matrix product by wgmma: a consumer warpgroup multiplies from the ring that product_tiles.cuh
// fills, and with split-K the blocks of a cluster add their accumulators up.

#pragma once

#include "product_tiles.cuh"
#include "vector.cuh"
#include "wgmma.cuh"

namespace product {

// A consumer's accumulator: kProducts x 64 rows of the tile's columns, or of some of them, in wgmma.cuh's layout.
template <typename Tile, int kColumns = Tile::kColumns>
struct Accumulator {
  using Layout = product::Layout<Tile>;
  static constexpr int kSize = kColumns / 2;
  float acc[Layout::kProducts][kSize];
  int last_stage = 0;  // Which the last wgmmas read.

  // Marks a stage as empty, once this thread's warpgroup has read it: for every block of its split. Blocks that are
  // neither beside nor below this one do not load into it, but they must not run ahead either: where shares lie outside
  // of the matrices, nothing else would keep them from arriving twice before this one arrives once.
  static __device__ void release(MBarrier& empty) {
    const int thread = threadIdx.x % kWarpgroup;
    if (Tile::kMulticast == 1) {
      if (thread == 0) empty.arrive();
    } else if (thread < Tile::kMulticast) {
      const int first_rank = Tile::kSplits > 1 ? cluster::rank() / Tile::kMulticast * Tile::kMulticast : 0;
      empty.arrive_in(first_rank + thread);
    }
  }

  // Issues the wgmmas of a stage's operands. They overwrite the accumulator unless `adds`.
  template <typename T>
  __device__ void issue(uint64_t a, uint64_t b, bool adds) {
    pin();
    wgmma_fence();
#pragma unroll
    for (int part = 0; part < kSwizzleRow / 32; ++part) {  // A wgmma takes 32 bytes of k.
#pragma unroll
      for (int product = 0; product < Layout::kProducts; ++product) {
        const uint64_t rows = wgmma_bytes(product * 64 * kSwizzleRow), columns = wgmma_bytes(part * 32);
        wgmma<T>(acc[product], a + rows + columns, b + columns, adds || part > 0);
      }
    }
    wgmma_commit();
    pin();
  }

  // The product with the rows of x from `row0` on, over so many stages. Leaves the last wgmmas in flight.
  template <typename T>
  __device__ void multiply(
      const char* ring, int row0, Barriers<Tile>& barriers, RingPosition<Tile::kStages>& position, int steps) {
    if (Tile::kSplits > 1 && steps == 0) clear();  // Else the first wgmma overwrites the accumulator.
    for (int step = 0; step < steps; ++step, position.advance()) {
      const int stage = same_in_warp(position.stage());
      const char* x = ring + stage * Layout::kStageBytes;
      const uint64_t a = wgmma_operand(x + row0 * kSwizzleRow), b = wgmma_operand(x + Layout::kXBytes);
      barriers.full[stage].wait(position.parity());
      issue<T>(a, b, step > 0);
      wgmma_wait<1>();
      if (step > 0) release(barriers.empty[last_stage]);
      last_stage = stage;
    }
  }

  // Waits for the last wgmmas, which are still in flight when multiply returns.
  __device__ void wait(Barriers<Tile>& barriers, int steps) {
    wgmma_wait<0>();
    pin();
    if (steps > 0) release(barriers.empty[last_stage]);
  }

  __device__ void pin() {
#pragma unroll
    for (auto& product : acc) wgmma_pin(product);
  }

  __device__ void clear() {
#pragma unroll
    for (int product = 0; product < Layout::kProducts; ++product) {
#pragma unroll
      for (float& value : acc[product]) value = 0;
    }
  }

  // The index of a thread's block of four values in kAccumulatorBytes: threads are adjacent.
  static __device__ int block_index(int panel, int product, int block) {
    return ((panel * Layout::kProducts + product) * (kPanel / 8) + block) * (Tile::kConsumers * kWarpgroup) +
           threadIdx.x - kWarpgroup;
  }

  __device__ void store_panel(int panel, Vector<float, 4>* shared) const {
#pragma unroll
    for (int product = 0; product < Layout::kProducts; ++product) {
#pragma unroll
      for (int block = 0; block < kPanel / 8; ++block) {
        const float* values = acc[product] + panel * (kPanel / 2) + 4 * block;
        shared[block_index(panel, product, block)] = {values[0], values[1], values[2], values[3]};
      }
    }
  }

  __device__ void add_panel(int panel, const Vector<float, 4>* shared) {
#pragma unroll
    for (int product = 0; product < Layout::kProducts; ++product) {
#pragma unroll
      for (int block = 0; block < kPanel / 8; ++block) {
        const Vector<float, 4> addends = shared[block_index(panel, product, block)];
        float* values = acc[product] + panel * (kPanel / 2) + 4 * block;
#pragma unroll
        for (int i = 0; i < 4; ++i) values[i] += addends[i];
      }
    }
  }
};

// Whether a block finishes a panel of its tile: with split-K, panels go round robin to the splits.
template <typename Tile>
__device__ bool finishes_panel(const ClusterPosition<Tile>& block, int panel) {
  return Tile::kSplits == 1 || panel % Tile::kSplits == block.split;
}

// The split-K reduction, for the panels that this block finishes. Other blocks may read this block's shared memory
// until every block has arrived at the cluster's barrier again.
template <typename Tile>
__device__ void reduce_splits(Accumulator<Tile>& acc, char* ring, const ClusterPosition<Tile>& block) {
  constexpr int kPanels = Layout<Tile>::kPanels;
  static_assert(Tile::kColumns % kPanel == 0, "splits exchange whole panels");
  static_assert(Layout<Tile>::kAccumulatorBytes <= Layout<Tile>::kRingBytes);
  auto* shared = reinterpret_cast<Vector<float, 4>*>(ring);
  named_barrier_sync(kMainloopBarrier, Tile::kConsumers * kWarpgroup);  // No consumer reads the ring any more.
#pragma unroll
  for (int panel = 0; panel < kPanels; ++panel) {
    if (!finishes_panel(block, panel)) acc.store_panel(panel, shared);
  }
  cluster::arrive();
  cluster::wait();
#pragma unroll
  for (int panel = 0; panel < kPanels; ++panel) {
    if (!finishes_panel(block, panel)) continue;
#pragma unroll
    for (int other = 1; other < Tile::kSplits; ++other) {
      acc.add_panel(panel, cluster::shared_of((block.split + other) % Tile::kSplits, shared));
    }
  }
  cluster::arrive();
}

}  // namespace product
