// The warp of the backward for Hopper that adds consumers' shares of grad_q to the accumulator in global memory, or
// says when consumers may.

#pragma once

#include <cstdint>

#include "attention_backward_work.cuh"
#include "attention_turns.cuh"
#include "tma.cuh"

namespace attention::sm90 {
namespace bwd {

// For one warp of the producer warpgroup: stores a consumer's share of grad_q of a single tile.
template <typename Traits, typename Tensors, typename Sequence, typename RowTile>
__device__ void store_share(
    const Tensors& tensors, const Sequence& sequence, const RowTile& rows, int share, const char* source) {
  const int row = rows.tile * Traits::kRows + (Traits::kSharesRows ? share * kWgmmaRows : 0);
  const int first_column = Traits::kSharesRows ? 0 : share * Traits::kShareColumns;
#pragma unroll
  for (int column = 0; column < Traits::kShareColumns; column += kPanel, source += kPanelBytes<kWgmmaRows>) {
    const auto place = tensors.grad_q.coordinates(sequence.queries(), rows.head, row, first_column + column);
    tma_store(tensors.grad_q.map, source, place);
  }
}

// How many blocks of an ordered backward add to the tile of queries from first_row on before the one with this key.
// Those before the first whose keys the tile attends to never come.
template <typename Tile>
__device__ int adders_before(const Mask& mask, int first_row, int key) {
  return key / KernelTraits<Tile>::kKeys - mask.begin(first_row) / KernelTraits<Tile>::kKeys;
}

// The block's turn at a tile of queries.
template <typename Tile, typename Sequences>
__device__ Turn turn_of(
    const typename Sequences::Backward& p,
    const KeyTile<typename Sequences::Sequence>& key_tile,
    const Iterations::RowTile& rows) {
  using Traits = KernelTraits<Tile>;
  const auto& mask = Sequences::mask(p, key_tile.sequence);
  const int before = adders_before<Tile>(mask, rows.tile * Traits::kRows, key_tile.tile * Traits::kKeys);
  return Turn::of(p.progress, Sequences::tile_index(p, key_tile.sequence, rows.head, rows.tile, Traits::kRows), before);
}

// For that warp: adds the parts of grad_q to the accumulator in global memory. The first block of an ordered backward
// stores them, so that nothing need be zeroed. kStores: they are those of a single tile.
template <typename Tile, typename Sequences, bool kStores>
__device__ void reduce_grad_q(
    const typename Sequences::Backward& p,
    const typename Sequences::Tensors& tensors,
    const char* shared,
    const Iterations& iterations,
    const KeyTile<typename Sequences::Sequence>& key_tile) {
  using Traits = KernelTraits<Tile>;
  constexpr int kThreads = kWarpgroup + kWarp;
  const bool leads = threadIdx.x % kWarp == 0;
  constexpr bool kTakesTurns = Tile::kOrdered && !kStores;
  auto rows = iterations.first();
  for (int step = 0; step < iterations.count; ++step, iterations.advance(rows)) {
    const int64_t tile = Sequences::tile_index(p, key_tile.sequence, rows.head, rows.tile, Traits::kRows);
    float* accum = p.grad_q_accum + tile * Traits::kRows * Traits::D;
    Turn turn{};
    if constexpr (kTakesTurns) {
      turn = turn_of<Tile, Sequences>(p, key_tile, rows);
      if (leads) turn.wait();
      __syncwarp();
    }
    for (int part = 0; part < Traits::kConsumers; ++part) {
      named_barrier_sync(kShareFull + part, kThreads);
      if (leads) {
        float* target = accum + part * Traits::kShare;
        const char* source = shared + Traits::kSharesOffset + part * Traits::kShareBytes;
        if constexpr (kStores) {
          store_share<Traits>(tensors, key_tile.sequence, rows, part, source);
        } else if (kTakesTurns && turn.is_first()) {
          tma_store_bytes(target, source, Traits::kShareBytes);
        } else {
          tma_add(target, source, Traits::kShareBytes);
        }
        tma_store_commit();
      }
    }
    if (Traits::kConsumers > 1) {
      if (leads) tma_store_wait_read<1>();
      __syncwarp();
      named_barrier_arrive(kShareEmpty, kThreads);
    }
    if (leads) tma_store_wait_read<0>();
    __syncwarp();
    named_barrier_arrive(kShareEmpty + Traits::kConsumers - 1, kThreads);
    if (kTakesTurns && leads) turn.pass();
  }
}

// For that warp, before the first tile of keys: consumers may write their shares.
template <typename Tile>
__device__ void let_consumers_share() {
  for (int part = 0; part < Tile::kConsumers; ++part) named_barrier_arrive(kShareEmpty + part, kWarpgroup + kWarp);
}

// The same where consumers add their shares, from registers: in the block's turn.
template <typename Tile, typename Sequences>
__device__ void let_consumers_add(
    const typename Sequences::Backward& p,
    const Iterations& iterations,
    const KeyTile<typename Sequences::Sequence>& key_tile) {
  using Traits = KernelTraits<Tile>;
  constexpr int kThreads = kWarpgroup + kWarp;
  const bool leads = threadIdx.x % kWarp == 0;
  auto rows = iterations.first();
  for (int step = 0; step < iterations.count; ++step, iterations.advance(rows)) {
    const Turn turn = turn_of<Tile, Sequences>(p, key_tile, rows);
    if (leads) turn.wait();
    __syncwarp();
    for (int part = 0; part < Traits::kConsumers; ++part) named_barrier_arrive(kShareEmpty + part, kThreads);
    for (int part = 0; part < Traits::kConsumers; ++part) named_barrier_sync(kShareFull + part, kThreads);
    if (leads) turn.pass();
  }
}

// For that warp: a tile of keys. A single one of wide heads has grad_q in registers, and its consumers store it.
template <typename Tile, typename Sequences>
__device__ void add_grad_q(
    const typename Sequences::Backward& p,
    const typename Sequences::Tensors& tensors,
    const char* shared,
    const Iterations& iterations,
    const KeyTile<typename Sequences::Sequence>& key_tile) {
  using Traits = KernelTraits<Tile>;
  if constexpr (Tile::kSingle || Tile::kFindsSingle) {
    if (is_single<Tile>(Sequences::mask(p, key_tile.sequence).keys)) {
      if constexpr (Traits::kStagesShares && Tile::kGradients == Gradients::kAll) {
        reduce_grad_q<Tile, Sequences, true>(p, tensors, shared, iterations, key_tile);
      }
      return;
    }
  }
  if constexpr (Traits::kStagesShares && !Tile::kSingle) {
    reduce_grad_q<Tile, Sequences, false>(p, tensors, shared, iterations, key_tile);
  } else if constexpr (Traits::kHasAdder && !Tile::kSingle) {
    let_consumers_add<Tile, Sequences>(p, iterations, key_tile);
  }
}

}  // namespace bwd
}  // namespace attention::sm90
