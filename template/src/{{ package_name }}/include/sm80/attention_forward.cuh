// The forward of attention, with mma.sync and cp.async (after Dao, FlashAttention-2, 2023). A block computes a tile of
// queries: it iterates over tiles of the keys that these attend to, from the last to the first.
//
//   load            keys and values to a ring in shared memory, kStages - 1 iterations ahead (cp.async); with one
//                   stage, the next keys after S, and the values before it
//   score           S = q k^T (mma.sync), then the transformation of score.h
//   mask            in the tiles that the mask cuts
//   online_softmax  S to P by the row max; when that has grown enough, the row sum and the accumulator are rescaled
//   accumulate      accumulator += P v
//   epilogue        the accumulator over the row sum, and the LSE; here the sink joins (sink.cuh)
//
// D is the width of queries and keys, V that of values and outputs; heads of fewer dimensions are padded with zeros.
// Each warp has rows of its own. P stays in the registers that S is in: they are the left operand of the second GEMM.
//
// The ops differ in where a head's rows lie. Each describes that by a `Sequence`, whose members give
//
//   mask()                      which keys a row attends to
//   query_rows<T>(view, head)   the rows of a head of queries or of the output: rows[i] is the address of row i
//   key_rows<T>(view, head)     the same for keys and values
//   stats_row(head, row)        where the LSE of a row is, of stats_rows() in all
//   head_of(head, row)          which head of queries a row is of
//   kMarksRows                  whether, with split keys, the first split is to mark rows that attend to no key
//
// and by a `Problem` that has the members of flash_attention's.

#pragma once

#include <cmath>

#include "attention_rows.cuh"
#include "attention_tiles.h"
#include "exponential.cuh"
#include "pack.cuh"
#include "partial_softmax.h"
#include "registers.cuh"
#include "score.h"
#include "sink.cuh"

namespace attention::sm80 {

// Keys of an iteration. In code for 10.0 and later, the scores of more beside 32 rows of wide accumulators would spill.
template <typename Tuned, int D>
constexpr int kForwardKeys =
    kComputesAgain && Tuned::forward_rows == 32 && D > 64 && Tuned::forward_keys > 32 ? 32 : Tuned::forward_keys;

template <typename T, int D, int V, typename Tuned>
struct ForwardBlock {
  static constexpr int kThreads = Tuned::forward_warps * kWarpSize;
  static constexpr int kWarpRows = Tuned::forward_rows, kRows = kForwardRows<Tuned>, kKeys = kForwardKeys<Tuned, D>;
  static constexpr int kStages = Tuned::forward_stages, kSteps = D / 16, kHalves = kWarpRows / 16;
  static constexpr bool kQueriesInRegisters = Tuned::forward_queries_in_registers;
  static constexpr int kKept = kQueriesInRegisters ? kSteps : 1;
  static constexpr int kKeysBytes = kTileBytes<kKeys, D>, kStageBytes = kKeysBytes + kTileBytes<kKeys, V>;
  static constexpr int kSharedBytes = kTileBytes<kRows, D> + kStages * kStageBytes;
  static_assert(kWarpRows % 16 == 0 && kKeys % 16 == 0 && kStages >= 1);
  static_assert(V <= D && kSharedBytes <= kForwardSharedBytes<Tuned, D, V>);  // The host's.

  // A warp's rows, 16 in each half: a lane has rows lane / 4 and lane / 4 + 8 of it.
  struct RowState {
    Accumulator<V> out[kHalves] = {};
    float max[kHalves][2], sum[kHalves][2] = {};  // Row max and row sum.
  };
  using Scores = Accumulator<kKeys>[kHalves];

  __device__ static const uint8_t* keys_of(const uint8_t* shared, int step) {
    int stage = step % kStages;
    // The addresses in the only stage are the same in every iteration: registers have no room for so many.
    if constexpr (kStages == 1) compute_again_from(stage);
    return shared + kTileBytes<kRows, D> + stage * kStageBytes;
  }

  // load
  template <typename Problem, typename Sequence>
  __device__ static void load(
      const Problem& p, const Sequence& sequence, uint8_t* shared, int kv_head, int tile, int step) {
    if constexpr (D > 128) {
      load_keys(p, sequence, shared, kv_head, tile, step);
      load_values(p, sequence, shared, kv_head, tile, step);
    } else {
      uint8_t* keys = const_cast<uint8_t*>(keys_of(shared, step));
      // Unrolled, the two copies need more registers than a thread has, except in the code for sm_90.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ / 100 != 9
      constexpr int kUnrolled = 1;
#else
      constexpr int kUnrolled = D == 96 || (D == 128 && kKeys > 48) ? 1 : 2;
#endif
#pragma unroll kUnrolled
      for (int i = 0; i < 2; ++i) {
        const auto rows = sequence.template key_rows<const T>(i == 0 ? p.k : p.v, kv_head);
        load_head<kKeys, D, kThreads>(keys, rows, tile * kKeys, sequence.mask().keys, p.dim / kChunk);
        keys += kKeysBytes;
      }
    }
  }
  // What a single stage's copies need is computed for each of them, as in keys_of.
  template <typename Problem, typename Sequence>
  __device__ static void load_keys(
      const Problem& p, const Sequence& sequence, uint8_t* shared, int kv_head, int tile, int step) {
    uint8_t* keys = const_cast<uint8_t*>(keys_of(shared, step));
    unsigned thread = threadIdx.x;
    if constexpr (kStages == 1) compute_again_from(kv_head, thread);
    const auto k = sequence.template key_rows<const T>(p.k, kv_head);
    load_head<kKeys, D, kThreads>(keys, k, tile * kKeys, sequence.mask().keys, p.dim / kChunk, thread);
  }
  template <typename Problem, typename Sequence>
  __device__ static void load_values(
      const Problem& p, const Sequence& sequence, uint8_t* shared, int kv_head, int tile, int step) {
    uint8_t* values = const_cast<uint8_t*>(keys_of(shared, step)) + kKeysBytes;
    unsigned thread = threadIdx.x;
    if constexpr (kStages == 1) compute_again_from(kv_head, thread);
    const auto v = sequence.template key_rows<const T>(p.v, kv_head);
    load_head<kKeys, V, kThreads>(values, v, tile * kKeys, sequence.mask().keys, value_dims<D>(p) / kChunk, thread);
  }

  __device__ static void load_queries(
      Fragment (&q)[kHalves], const uint8_t* shared, const LdmatrixLane& lane, int step) {
#pragma unroll
    for (int half = 0; half < kHalves; ++half) {
      const int row = threadIdx.x / kWarpSize * kWarpRows + half * 16;
      load_rows<kRows>(q[half], shared, lane, row, step * 16);
    }
  }

  // score
  __device__ static void score(
      Scores& scores, Fragment (&kept)[kKept][kHalves], const uint8_t* shared, const uint8_t* keys) {
    const LdmatrixLane rows = LdmatrixLane::by_columns(), columns = LdmatrixLane::by_rows();
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      Fragment(&q)[kHalves] = kept[step % kKept], k;
      if constexpr (!kQueriesInRegisters) load_queries(q, shared, rows, step);
#pragma unroll
      for (int n = 0; n < kKeys / 16; ++n) {
        load_rows<kKeys>(k, keys, columns, n * 16, step * 16);
#pragma unroll
        for (int half = 0; half < kHalves; ++half) {
          multiply<T>(scores[half][2 * n], scores[half][2 * n + 1], q[half], k);
        }
      }
    }
  }

  __device__ static void transform(Scores& scores, const Score& score) {
#pragma unroll
    for (auto& half : scores) {
#pragma unroll
      for (auto& block : half) {
#pragma unroll
        for (float& value : block) value = score.transform(value);
      }
    }
  }

  // mask
  template <typename Mask>
  __device__ static void mask(Scores& scores, const Mask& mask, int first_row, int first_key) {
    const int lane = threadIdx.x % kWarpSize;
    const int column = first_key + lane % 4 * 2;
#pragma unroll
    for (int i = 0; i < 2 * kHalves; ++i) {
      const int row = first_row + i * 8 + lane / 4;
      const int begin = mask.begin(row) - column, end = mask.end(row) - column;
#pragma unroll
      for (int n = 0; n < kKeys / 8; ++n) {
#pragma unroll
        for (int j = 0; j < 2; ++j) {
          const int key = n * 8 + j;
          if (key < begin || key >= end) scores[i / 2][n][i % 2 * 2 + j] = -INFINITY;
        }
      }
    }
  }

  // 2^(scale (S - max)), for a row's scores. While every score is -inf, any finite number does for the max.
  struct Power {
    float factor, shift;

    __device__ Power(float max, float scale) {
      // Where more than two blocks share the registers, or scores of many keys fill them, a thread has none for a
      // factor of its own: it subtracts first, which is exact for the row max, however large that is.
      factor = kSubtractsFirst ? scale : factor_of(max, scale);
      shift = max == -INFINITY ? 0 : kSubtractsFirst ? max : __fmul_rn(max, factor);
    }
    // One multiply-add. The rounding of shift is an error that all weights of a row have in common: it cancels.
    __device__ float operator()(float score) const {
      return exp2_fast(kSubtractsFirst ? (score - shift) * factor : __fmaf_rn(score, factor, -shift));
    }

    // The scale. From kLimit on, where the rounding error of shift could make weights overflow, the next power of two
    // below it: the shift is exact then. The row max still has a weight of 1 or more; every other score, which at that
    // magnitude is many units away, a small one.
    __device__ static float factor_of(float max, float scale) {
      constexpr float kLimit = 1 << 26;
      return fabsf(max * scale) < kLimit ? scale : __uint_as_float(__float_as_uint(scale) & 0x7f800000);
    }
  };
  static constexpr bool kSubtractsFirst = Tuned::forward_blocks > 2 || (D == 64 && kKeys > 96);

  // online_softmax: S to P by the row max so far.
  __device__ static void online_softmax(Scores& scores, RowState& rows, float scale) {
    float rescale_by[kHalves][2];
#pragma unroll
    for (int i = 0; i < 2 * kHalves; ++i) {
      const int half = i / 2, j = i % 2 * 2;
      float& max = rows.max[half][i % 2];
      float row_max = max;
#pragma unroll
      for (int n = 0; n < kKeys / 8; ++n) {
        row_max = fmaxf(row_max, fmaxf(scores[half][n][j], scores[half][n][j + 1]));
      }
      row_max = fmaxf(row_max, __shfl_xor_sync(0xffffffff, row_max, 1));
      row_max = fmaxf(row_max, __shfl_xor_sync(0xffffffff, row_max, 2));
      // False while every score is -inf: the difference is NaN.
      const bool rescales = (row_max - max) * scale > kRescaleAt;
      rescale_by[half][i % 2] = rescales ? exp2_fast((max - row_max) * scale) : 1;
      if (rescales) max = row_max;
    }
    rescale(rows, rescale_by);
#pragma unroll
    for (int i = 0; i < 2 * kHalves; ++i) {
      const int half = i / 2, j = i % 2 * 2;
      const Power power(rows.max[half][i % 2], scale);
      float tile_sum = 0;
#pragma unroll
      for (int n = 0; n < kKeys / 8; ++n) {
        float &left = scores[half][n][j], &right = scores[half][n][j + 1];
        left = power(left);
        right = power(right);
        tile_sum += left + right;
      }
      rows.sum[half][i % 2] += tile_sum;
    }
  }

  // Accumulator and row sum are rescaled once the row max has grown by so many powers of two (Zadouri et al.,
  // FlashAttention-4, 2026): weights stay below 2^kRescaleAt until then, and the final division makes up for it.
  static constexpr int kRescaleAt = 8;
  __device__ static void rescale(RowState& rows, const float (&by)[kHalves][2]) {
    bool any = false;
#pragma unroll
    for (const auto& half : by) any = any || half[0] != 1 || half[1] != 1;
    if (!__any_sync(0xffffffff, any)) return;
#pragma unroll
    for (int half = 0; half < kHalves; ++half) {
      for (int i = 0; i < 2; ++i) rows.sum[half][i] *= by[half][i];
#pragma unroll
      for (auto& block : rows.out[half]) {
#pragma unroll
        for (int i = 0; i < 4; ++i) block[i] *= by[half][i / 2];
      }
    }
  }

  // accumulate
  __device__ static void accumulate(RowState& rows, const Scores& weights, const uint8_t* values) {
    const LdmatrixLane lane = LdmatrixLane::by_columns();
#pragma unroll
    for (int step = 0; step < kKeys / 16; ++step) {
      Fragment a[kHalves], v;
#pragma unroll
      for (int half = 0; half < kHalves; ++half) {
        const auto &left = weights[half][2 * step], &right = weights[half][2 * step + 1];
        a[half][0] = pack<T>(left[0], left[1]);
        a[half][1] = pack<T>(left[2], left[3]);
        a[half][2] = pack<T>(right[0], right[1]);
        a[half][3] = pack<T>(right[2], right[3]);
      }
#pragma unroll
      for (int n = 0; n < V / 16; ++n) {
        load_transposed<kKeys>(v, values, lane, step * 16, n * 16);
#pragma unroll
        for (int half = 0; half < kHalves; ++half) {
          multiply<T>(rows.out[half][2 * n], rows.out[half][2 * n + 1], a[half], v);
        }
      }
    }
  }

  // epilogue: a query that attends to no key gets zeros, and an LSE of -inf, or the sink.
  template <bool kSinks, typename Problem, typename Sequence>
  __device__ static void epilogue(
      const Problem& p, const Sequence& sequence, RowState& rows, uint8_t* shared, int split, int head, int first_row) {
    // Registers have no room for what sinks need beside the addresses of a single stage of wider heads, nor in code for
    // 10.0 and later for what any epilogue needs where more than two blocks share them.
    constexpr bool kIsFull = (kSinks && kStages == 1 && D > 64) || (kComputesAgain && Tuned::forward_blocks > 2);
    if constexpr (kIsFull) compute_again_from(head, first_row);
    const int lane = threadIdx.x % kWarpSize, warp_row = threadIdx.x / kWarpSize * kWarpRows;
    const auto& mask = sequence.mask();
#pragma unroll
    for (int i = 0; i < 2 * kHalves; ++i) {
      const int half = i / 2, row = warp_row + i * 8 + lane / 4, query = first_row + row;
      float sum = rows.sum[half][i % 2];
      sum += __shfl_xor_sync(0xffffffff, sum, 1);
      sum += __shfl_xor_sync(0xffffffff, sum, 2);
      // Scores that are all -inf give 0 / 0, as softmax does; but in a split they leave the row to the other splits.
      const bool empty = p.splits > 1 ? sum == 0 : mask.begin(query) == mask.end(query);
      float factor = empty ? 0 : 1 / sum;
      const float max = rows.max[half][i % 2];
      const auto lse_of_keys = [&] { return empty ? -INFINITY : max * p.score.scale + logf(sum); };
      float lse = 0;  // With the sink.
      if constexpr (kSinks) {
        lse = lse_of_keys();
        if (query < mask.queries) join_sink(p.sinks[sequence.head_of(head, query)], factor, lse);
      }
      const int64_t out_row = split * sequence.stats_rows() + sequence.stats_row(head, query);
      if (query < mask.queries && lane % 4 == 0) {
        if (p.splits > 1) {
          const bool marks = Sequence::kMarksRows && split == 0 && mask.begin(query) == mask.end(query);
          p.partial_softmax[out_row] = {max, marks ? kNoKeys : sum};
        } else {
          p.lse[out_row] = kSinks ? lse : lse_of_keys();
        }
      }
#pragma unroll
      for (int n = 0; n < V / 8; ++n) {
        const float *pair = &rows.out[half][n][i % 2 * 2], first = pair[0] * factor, second = pair[1] * factor;
        if (p.splits > 1) {
          if (query < mask.queries) {
            reinterpret_cast<float2*>(p.partial_out + out_row * V)[n * 4 + lane % 4] = {first, second};
          }
        } else {
          *reinterpret_cast<uint32_t*>(shared + tile_offset<kRows>(row, n) + lane % 4 * 4) = pack<T>(first, second);
        }
      }
    }
    if (p.splits > 1) return;
    // By way of shared memory each lane writes 16 bytes. No other warp touches these rows.
    __syncwarp();
    const auto out = sequence.template query_rows<T>(p.out, head);
#pragma unroll
    for (int half = 0; half < kHalves; ++half) {
      store_head<kRows, V>(shared, warp_row + half * 16, out, first_row, mask.queries, value_dims<D>(p) / kChunk);
    }
  }
};

template <typename T, int D, int V, typename Tuned, bool kSinks, typename Problem, typename Sequence>
__device__ void compute_forward_tile(
    const Problem& p, const Sequence& sequence, uint8_t* shared, int head, int kv_head, int first_row, int split) {
  using Block = ForwardBlock<T, D, V, Tuned>;

  // Iterations: tiles of keys, from the last to the first.
  const int first_tile = sequence.mask().begin(first_row) / Block::kKeys;
  const int end_row = min(first_row + Block::kRows, sequence.mask().queries);
  const int tiles = (sequence.mask().end(end_row - 1) + Block::kKeys - 1) / Block::kKeys - first_tile;
  const int per_split = (max(tiles, 0) + p.splits - 1) / p.splits;
  const int last_tile = first_tile + tiles - 1 - split * per_split;
  const int steps = min(per_split, tiles - split * per_split);

  load_head<Block::kRows, D, Block::kThreads>(
      shared, sequence.template query_rows<const T>(p.q, head), first_row, sequence.mask().queries, p.dim / kChunk);
  if constexpr (Block::kStages == 1) {
    if (steps > 0) Block::load_keys(p, sequence, shared, kv_head, last_tile, 0);
    cp_async_commit();
  }
#pragma unroll
  for (int step = 0; step < Block::kStages - 1; ++step) {
    if (step < steps) Block::load(p, sequence, shared, kv_head, last_tile - step, step);
    cp_async_commit();
  }

  const int warp_row = first_row + threadIdx.x / kWarpSize * Block::kWarpRows;
  typename Block::RowState rows;
  Fragment q[Block::kKept][Block::kHalves];
#pragma unroll
  for (auto& half : rows.max) half[0] = half[1] = -INFINITY;

#pragma unroll 1
  for (int step = 0; step < steps; ++step) {
    cp_async_wait<(Block::kStages > 1 ? Block::kStages - 2 : 0)>();
    __syncthreads();  // This iteration's tiles have arrived, and no warp reads the last one's any more.
    const int ahead = step + Block::kStages - 1;
    if constexpr (Block::kStages == 1) {
      Block::load_values(p, sequence, shared, kv_head, last_tile - step, step);
    } else {
      if (ahead < steps) Block::load(p, sequence, shared, kv_head, last_tile - ahead, ahead);
    }
    cp_async_commit();
    const auto& mask = sequence.mask();
    if (Block::kStages > 1 && warp_row >= mask.queries) continue;
    if constexpr (Block::kQueriesInRegisters) {
      if (step == 0) {
#pragma unroll
        for (int i = 0; i < Block::kSteps; ++i) Block::load_queries(q[i], shared, LdmatrixLane::by_columns(), i);
      }
    }
    const uint8_t* keys = Block::keys_of(shared, step);
    const int first_key = (last_tile - step) * Block::kKeys;
    typename Block::Scores scores = {};
    Block::score(scores, q, shared, keys);
    if constexpr (Block::kStages == 1) {
      wait_for_copies();  // This iteration's values have arrived, and no warp reads its keys any more.
      if (step + 1 < steps) Block::load_keys(p, sequence, shared, kv_head, last_tile - step - 1, 0);
      cp_async_commit();
    }
    if (p.score.transforms()) Block::transform(scores, p.score);
    if (!mask.allows_all(warp_row, warp_row + Block::kWarpRows, first_key, first_key + Block::kKeys)) {
      Block::mask(scores, mask, warp_row, first_key);
    }
    Block::online_softmax(scores, rows, p.score.scale_log2);
    Block::accumulate(rows, scores, keys + Block::kKeysBytes);
  }
  wait_for_copies();
  Block::template epilogue<kSinks>(p, sequence, rows, shared, split, head, first_row);
}

// Computes the rows of a tile of one head, from first_row on, with a split of the keys. `kSinks`: there are sinks, and
// keys are not split. The compiler orders a kernel with code for sinks in another way, so that other calls have their
// own.
template <typename T, int D, int V, typename Tuned, bool kSinks, typename Problem, typename Sequence>
__device__ void forward_tile(
    const Problem& p, const Sequence& sequence, uint8_t* shared, int head, int kv_head, int first_row, int split) {
  if constexpr (kRunsHere<Tuned>) {
    compute_forward_tile<T, D, V, Tuned, kSinks>(p, sequence, shared, head, kv_head, first_row, split);
  } else {
    __trap();
  }
}

}  // namespace attention::sm80
