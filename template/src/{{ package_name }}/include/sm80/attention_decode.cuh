// The forward for a few rows, as in decoding: memory-bound, since every key and value is used once. A block has up
// to 8 rows that share keys: the queries of all heads of a group. Its warps take disjoint keys, 16 per iteration, with
// those of the next iteration in flight to registers; they synchronise once, at the end.
//
//   fetch           keys and values from global memory to registers, 16 bytes a lane
//   score           S^T = k q^T (mma.sync), then the transformation of score.h
//   mask            in the iterations that the mask cuts
//   online_softmax  S to P by the row max so far; when that grows, the row sum and the accumulator are rescaled
//   accumulate      out^T += v^T P^T
//   merge           the warps' outputs, rescaled to their common row max
//
// The GEMMs are transposed because mma.sync's N is 8, like the rows. Operands are used in the layout in which 16-byte
// loads leave them: dimensions enter the sums in a permuted order, the same for keys and queries, and those of the
// output come out permuted.
//
// The ops differ in where rows lie. Each describes that by a `Sequence` as attention_forward.cuh has it, whose rows are
// packed (attention_packed_rows.cuh), and which has in place of key_rows
//
//   step_rows<T>(view, head)    the keys, or the values, of iterations: StridedSteps below, or steps over pages
//   begin(row)                  the first key that a row attends to
//
// What such steps have to look up before they know an address, `Place`, is read two iterations ahead. A lane gets what
// its own rows need of that, a `Page` each, at the start of the iteration in which it reads them.

#pragma once

#include <cmath>
#include <type_traits>

#include "attention_decode_grid.h"
#include "attention_rows.cuh"
#include "cache_hints.cuh"
#include "dependent_launch.cuh"
#include "exponential.cuh"
#include "mma.cuh"
#include "pack.cuh"
#include "partial_softmax.h"
#include "registers.cuh"
#include "score.h"
#include "sink.cuh"
#include "swizzled_tile.cuh"
#include "vector.cuh"

namespace attention::sm80 {
namespace decode {

// 8 contiguous elements, two in a register.
using Chunk = Vector<uint32_t, kChunk / 2>;

// The rows of a head, a stride apart.
template <typename T>
struct StridedSteps {
  struct Place {};
  struct Page {};
  const T* first;
  int stride;

  __device__ StridedSteps(const View& view, int batch, int head)
      : first(static_cast<const T*>(view.data) + batch * view.batch + head * view.head), stride(view.row) {}

  // Of the 16 rows from this one on, less those from `end` on; and of row i of them. By a warp.
  __device__ Place place_of(int, int) const { return {}; }
  __device__ Page page_of(const Place&, int) const { return {}; }
  // Row i of them, on that page.
  __device__ const T* row(const Page&, int first_row, int i) const { return first + int64_t(first_row + i) * stride; }
};

// The state of a warp. In mma.sync's fragments, lane i has row (or column) i / 4 and pair i % 4 of the other direction.
template <typename T, int D, typename Problem>
struct Warp {
  static constexpr int kPanels = D / 32, kHalves = D / 64;
  // Whether registers have room for the next iteration's keys and values. If not, an iteration fetches its own, and the
  // other warps of the multiprocessor hide the latency. In code from 10.0 on, ptxas keeps more addresses.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 1000
  static constexpr bool kFetchesAhead = D <= 128;
#else
  static constexpr bool kFetchesAhead = D <= 192;
#endif

  const Problem& p;
  int outer = threadIdx.x % kWarpSize / 4, inner = threadIdx.x % 4;
  const EvictionPolicy eviction;  // Of keys and values.
  Chunk queries[kPanels] = {};    // Of row `outer`: chunk 4 panel + inner.
  Chunk keys[2][kPanels];         // Of keys outer and outer + 8: the same chunks.
  Chunk values[4][kHalves];       // Of keys 2 inner, 2 inner + 1, and those + 8: chunk 8 half + outer.
  float scores[4];                // Of keys outer and outer + 8: rows 2 inner and 2 inner + 1.
  float max[2] = {-INFINITY, -INFINITY}, sum[2] = {};  // Row max and row sum of rows 2 inner and 2 inner + 1.
  float out[kHalves * 4][4] = {};                      // As scores, with dimensions in place of keys.

  __device__ explicit Warp(const Problem& p) : p(p), eviction(p.eviction) {}

  // fetch: nothing if not `valid`.
  __device__ void fetch_query(const T* row, bool valid = true) {
#pragma unroll
    for (int panel = 0; panel < kPanels; ++panel) {
      const int chunk = 4 * panel + inner;
      queries[panel] = eviction.load(row, chunk, valid && chunk < p.dim / kChunk, queries[panel]);
    }
  }
  // For the next tile.
  __device__ void restart() {
#pragma unroll
    for (int i = 0; i < 2; ++i) max[i] = -INFINITY, sum[i] = 0;
#pragma unroll
    for (auto& block : out) block[0] = block[1] = block[2] = block[3] = 0;
  }

  // Which of an iteration's keys, and of its values, this lane has.
  __device__ int key_of(int i) const { return outer + 8 * i; }
  __device__ int value_of(int i) const { return 2 * inner + i % 2 + i / 2 * 8; }

  // Their pages.
  template <typename Steps>
  struct StepPages {
    typename Steps::Page keys[2], values[4];
  };
  template <typename Steps>
  __device__ StepPages<Steps> pages_of(const Steps& steps, const typename Steps::Place& place) const {
    StepPages<Steps> pages;
#pragma unroll
    for (int i = 0; i < 2; ++i) pages.keys[i] = steps.page_of(place, key_of(i));
#pragma unroll
    for (int i = 0; i < 4; ++i) pages.values[i] = steps.page_of(place, value_of(i));
    return pages;
  }

  // The 16 rows from `first` on. Those from `end` on are zeros.
  template <typename Steps>
  __device__ void fetch_keys(const Steps& steps, const StepPages<Steps>& pages, int first, int end) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const bool valid = first + key_of(i) < end;
      const T* const row = steps.row(pages.keys[i], first, key_of(i));
#pragma unroll
      for (int panel = 0; panel < kPanels; ++panel) {
        const int chunk = 4 * panel + inner;
        keys[i][panel] = eviction.load(row, chunk, valid && chunk < p.dim / kChunk);
      }
    }
  }
  template <typename Steps>
  __device__ void fetch_values(const Steps& steps, const StepPages<Steps>& pages, int first, int end) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const bool valid = first + value_of(i) < end;
      const T* const row = steps.row(pages.values[i], first, value_of(i));
#pragma unroll
      for (int half = 0; half < kHalves; ++half) {
        const int chunk = 8 * half + outer;
        values[i][half] = eviction.load(row, chunk, valid && chunk < value_dims<D>(p) / kChunk);
      }
    }
  }

  // score
  __device__ void score() {
    for (float& score : scores) score = 0;
#pragma unroll
    for (int panel = 0; panel < kPanels; ++panel) {
      const Chunk &query = queries[panel], &upper = keys[0][panel], &lower = keys[1][panel];
#pragma unroll
      for (int i = 0; i < kChunk / 2; i += 2) {
        const Fragment left{upper[i], lower[i], upper[i + 1], lower[i + 1]};
        mma_16x8x16<T>(scores, left, query[i], query[i + 1]);
      }
    }
    if (p.score.transforms()) {
      for (float& score : scores) score = p.score.transform(score);
    }
  }

  // mask
  template <typename Mask>
  __device__ void mask(const Mask& mask, int first_row, int first_key) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if (!mask.allows(first_row + 2 * inner + i % 2, first_key + outer + i / 2 * 8)) scores[i] = -INFINITY;
    }
  }

  // online_softmax: P = 2^(scale (S - row max)).
  __device__ void online_softmax() {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      float row_max = fmaxf(scores[i], scores[i + 2]);
#pragma unroll
      for (int distance = 4; distance < kWarpSize; distance *= 2) {
        row_max = fmaxf(row_max, __shfl_xor_sync(0xffffffff, row_max, distance));
      }
      row_max = fmaxf(row_max, max[i]);
      // While every score is -inf, any finite number keeps the differences below from becoming NaN.
      const float base = row_max == -INFINITY ? 0 : row_max, scale = p.score.scale_log2;
      const float rescale = exp2_fast((max[i] - base) * scale);
      max[i] = row_max;
      // Subtract before scaling: the difference is exact for the row max, however large that is.
      scores[i] = exp2_fast((scores[i] - base) * scale);
      scores[i + 2] = exp2_fast((scores[i + 2] - base) * scale);
      sum[i] = sum[i] * rescale + scores[i] + scores[i + 2];
#pragma unroll
      for (auto& block : out) {
        block[i] *= rescale;
        block[i + 2] *= rescale;
      }
    }
  }

  // accumulate
  __device__ void accumulate() {
    const uint32_t upper = transposed(pack<T>(scores[0], scores[1])), lower = transposed(pack<T>(scores[2], scores[3]));
#pragma unroll
    for (int half = 0; half < kHalves; ++half) {
#pragma unroll
      for (int i = 0; i < kChunk / 2; ++i) {
        const uint32_t a = values[0][half][i], b = values[1][half][i], c = values[2][half][i], d = values[3][half][i];
        const Fragment left{lower_halves(a, b), upper_halves(a, b), lower_halves(c, d), upper_halves(c, d)};
        mma_16x8x16<T>(out[half * 4 + i], left, upper, lower);
      }
    }
  }
  __device__ static uint32_t lower_halves(uint32_t a, uint32_t b) { return __byte_perm(a, b, 0x5410); }
  __device__ static uint32_t upper_halves(uint32_t a, uint32_t b) { return __byte_perm(a, b, 0x7632); }
};

// A warp's result for one row, in shared memory: the output is not yet divided by the row sum.
template <int D>
struct PartialRow {
  float max, sum, out[D];
};

template <typename T, int D, typename Problem>
__device__ void store_rows(Warp<T, D, Problem>& warp, PartialRow<D>* rows) {
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    PartialRow<D>& row = rows[2 * warp.inner + i];
#pragma unroll
    for (int distance = 4; distance < kWarpSize; distance *= 2) {
      warp.sum[i] += __shfl_xor_sync(0xffffffff, warp.sum[i], distance);
    }
    if (warp.outer == 0) row.max = warp.max[i], row.sum = warp.sum[i];
#pragma unroll
    for (int k = 0; k < D / 16; ++k) {
      float* const pair = &row.out[k / 4 * 64 + warp.outer * kChunk + k % 4 * 2];
      pair[0] = warp.out[k][i];
      pair[1] = warp.out[k][i + 2];
    }
  }
}

// Over all keys of the block: a row max, a row sum, and an output that is not yet divided by it.
struct MergedRow {
  float max, sum, out;
};

// `rows` points to the first warp's row. Without loops or branches: all code of a kernel that runs for microseconds is
// executed once, and has to come from memory as well.
template <int D>
__device__ MergedRow merge_warps(const PartialRow<D>* rows, int dimension, float scale_log2) {
  constexpr int kMaxWarps = max_decode_warps(D);
  const int warps = blockDim.x / kWarpSize;
  float maxes[kMaxWarps], sums[kMaxWarps], outs[kMaxWarps];
#pragma unroll
  for (int warp = 0; warp < kMaxWarps; ++warp) {
    const PartialRow<D>& partial = rows[warp * kDecodeRows];
    const bool is_there = warp < warps;
    maxes[warp] = is_there ? partial.max : -INFINITY;
    sums[warp] = is_there ? partial.sum : 0;
    outs[warp] = is_there ? partial.out[dimension] : 0;
  }
  float max = -INFINITY;
#pragma unroll
  for (const float warp_max : maxes) max = fmaxf(max, warp_max);
  const float base = max == -INFINITY ? 0 : max;
  float sum = 0, out = 0;
#pragma unroll
  for (int warp = 0; warp < kMaxWarps; ++warp) {
    const float factor = exp2_fast((maxes[warp] - base) * scale_log2);
    sum += factor * sums[warp];
    out += factor * outs[warp];
  }
  return {max, sum, out};
}

// merge: writes one dimension of a row; with the first dimension, also the LSE or the softmax of a split. `rows` points
// to the first warp's row.
template <typename T, int D, bool kSinks, typename Problem, typename Sequence>
__device__ void merge(
    const Problem& p,
    const Sequence& sequence,
    const PartialRow<D>* rows,
    int split,
    int kv_head,
    int row,
    int dimension) {
  const MergedRow merged = merge_warps(rows, dimension, p.score.scale_log2);
  const float max = merged.max, sum = merged.sum;
  const auto& mask = sequence.mask();
  const bool attends = mask.begin(row) != mask.end(row);
  // Scores that are all -inf give 0 / 0, as softmax does; but in a split they leave the row to the other splits.
  const bool empty = p.splits > 1 ? sum == 0 : !attends;
  float result = empty ? 0 : merged.out / sum;
  const int64_t number = split * sequence.stats_rows() + sequence.stats_row(kv_head, row);
  if (p.splits > 1) {
    const bool marks = Sequence::kMarksRows && split == 0 && !attends;
    if (dimension == 0) p.partial_softmax[number] = {max, marks ? kNoKeys : sum};
    p.partial_out[number * D + dimension] = result;
    return;
  }
  const auto lse_of_keys = [&] { return empty ? -INFINITY : max * p.score.scale + logf(sum); };
  float lse = 0;  // With the sink.
  if constexpr (kSinks) {
    lse = lse_of_keys();
    join_sink(p.sinks[sequence.head_of(kv_head, row)], result, lse);
  }
  if (dimension == 0) p.lse[number] = kSinks ? lse : lse_of_keys();
  if (dimension < value_dims<D>(p)) {
    sequence.template query_rows<T>(p.out, kv_head)[row][dimension] = static_cast<T>(result);
  }
}

// Shared memory of a block of so many warps.
template <int D>
constexpr int shared_bytes(int warps) {
  return warps * kDecodeRows * sizeof(PartialRow<D>);
}

// Up to 8 rows of a head of keys, from first_row on.
template <typename Sequence>
struct Tile {
  Sequence sequence;
  int kv_head, first_row;

  __device__ int end_row() const { return min(first_row + kDecodeRows, sequence.mask().queries); }
  __device__ int last_row() const { return max(end_row() - 1, 0); }  // 0 if there is none.
  // A sequence whose rows are marked may have none.
  __device__ bool has_rows() const { return !Sequence::kMarksRows || end_row() > first_row; }
};

// The keys of a tile that a warp reads, from `first` on, and their values.
template <typename Steps>
struct KeyStream {
  using Place = typename Steps::Place;
  Steps keys, values;
  int first, end;
};

// Where the keys of a stream's first two iterations are.
template <typename Stream>
struct FirstPlaces {
  typename Stream::Place first, second;
};

// Iterations go round robin to the warps of all splits. The first key of a warp, and how far it is to its next ones.
__device__ inline int first_key(int split) {
  return (split * (blockDim.x / kWarpSize) + threadIdx.x / kWarpSize) * kDecodeKeys;
}
__device__ inline int key_stride(int splits) {
  return splits * (blockDim.x / kWarpSize) * kDecodeKeys;
}

template <typename T, typename Problem, typename Tile>
__device__ auto key_stream(const Problem& p, const Tile& tile, int split) {
  const auto keys = tile.sequence.template step_rows<T>(p.k, tile.kv_head);
  const auto values = tile.sequence.template step_rows<T>(p.v, tile.kv_head);
  // Iterations start at multiples of their keys, as pages do.
  const int begin = tile.sequence.begin(tile.first_row) & -kDecodeKeys;
  return KeyStream<std::decay_t<decltype(keys)>>{
      keys, values, begin + first_key(split), tile.sequence.mask().end(tile.last_row())};
}

// Computes tiles with a split of their keys: by a block. `Tiles` says which by tile(), goes on by advance(), if there
// is another, and has the first_places() of the first; `kFollowed`: there may be several. The first keys of a tile are
// fetched in the last iteration of the tile before, and are on their way while its outputs are merged. `kSinks`: there
// are sinks, and keys are not split.
template <typename T, int D, bool kSinks, typename Problem, typename Tiles>
__device__ void decode_tiles(const Problem& p, Tiles tiles, uint8_t* shared, int split) {
  auto* const partial_rows = reinterpret_cast<PartialRow<D>*>(shared);
  const int warp_index = threadIdx.x / kWarpSize;
  constexpr bool kFetchesAhead = Warp<T, D, Problem>::kFetchesAhead;
  // Where what follows from a thread's place would spill: there it is computed again, and every iteration is masked.
  constexpr bool kFillsRegisters = kComputesAgain && D == 192;
  Warp<T, D, Problem> warp(p);
  // Rows past the last repeat it, and are not written.
  const auto fetch_query = [&](const auto& tile, bool valid) {
    const auto rows = tile.sequence.template query_rows<const T>(p.q, tile.kv_head);
    warp.fetch_query(rows[min(tile.first_row + warp.outer, tile.last_row())], valid);
  };

  const int stride = key_stride(p.splits);
  fetch_query(tiles.tile(), tiles.tile().has_rows());
  auto stream = key_stream<T>(p, tiles.tile(), split);
  int next = stream.first;
  auto [place, next_place] = tiles.first_places(stream, stride);
  if (kFetchesAhead) {
    const auto pages = warp.pages_of(stream.keys, place);
    warp.fetch_keys(stream.keys, pages, next, stream.end);
    warp.fetch_values(stream.values, pages, next, stream.end);
  }
  for (bool follows = true; follows;) {
    const auto tile = tiles.tile();
    follows = tiles.advance();
    bool last;
#pragma unroll 1
    do {  // At least once: a warp without keys masks them all.
      const int key = next;
      last = key + stride >= stream.end;
      next = key + stride;
      const auto pages = warp.pages_of(stream.keys, kFetchesAhead ? next_place : place);
      place = next_place;
      next_place = stream.keys.place_of(next + stride, stream.end);
      if constexpr (kFillsRegisters) compute_again_from(warp.outer, warp.inner);
      if constexpr (!kFetchesAhead) warp.fetch_keys(stream.keys, pages, key, stream.end);
      if constexpr (Tiles::kFollowed) {
        if (last) stream = key_stream<T>(p, tiles.tile(), split), next = stream.first;
        if (last && !follows) stream.end = 0;
      }
      warp.score();
      if constexpr (kFetchesAhead) warp.fetch_keys(stream.keys, pages, next, stream.end);
      const auto& mask = tile.sequence.mask();
      const bool allows_all =
          !kFillsRegisters && mask.allows_all(tile.first_row, tile.end_row(), key, key + kDecodeKeys);
      if (!allows_all) warp.mask(mask, tile.first_row, key);
      // Here, behind a branch, the compiler does not move them to where the keys are still needed.
      if constexpr (!kFetchesAhead) warp.fetch_values(stream.values, pages, key, stream.end);
      warp.online_softmax();
      warp.accumulate();
      if constexpr (kFetchesAhead) warp.fetch_values(stream.values, pages, next, stream.end);
    } while (!last);
    if constexpr (Tiles::kFollowed) fetch_query(tiles.tile(), follows);
    if (!follows) let_next_kernel_start();

    store_rows(warp, partial_rows + warp_index * kDecodeRows);
    __syncthreads();
#pragma unroll 1
    for (int i = threadIdx.x; i < (tile.end_row() - tile.first_row) * D; i += blockDim.x) {
      const int row = tile.first_row + i / D;
      merge<T, D, kSinks>(p, tile.sequence, partial_rows + i / D, split, tile.kv_head, row, i % D);
    }
    if constexpr (Tiles::kFollowed) {
      if (!follows) break;
      warp.restart();
      __syncthreads();  // The next tile needs the shared memory.
    }
  }
}

}  // namespace decode
}  // namespace attention::sm80
