// A consumer of the forward: its rows' scores, softmax and accumulator in registers.

#pragma once

#include <cmath>
#include <cstdint>

#include "attention_forward_work.cuh"
#include "exponential.cuh"
#include "pack.cuh"
#include "sink.cuh"

namespace attention::sm90 {
namespace fwd {

// Named barriers of the consumers' output tiles, one for each.
constexpr int kOutBarrier = 1;

// Makes the scores of a tile of keys -inf where the mask does not allow them. They are the accumulator of 64 rows, of
// which a thread has two, those of query_of(0) and query_of(1).
template <int kSize, typename QueryOf>
__device__ __forceinline__ void mask_scores(
    float (&scores)[kSize], const Mask& mask, int first_key, const QueryOf& query_of) {
  const int column = first_key + threadIdx.x % 4 * 2;
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const int query = query_of(i);
    const int begin = mask.begin(query) - column, end = mask.end(query) - column;
#pragma unroll
    for (int n = 0; n < kSize / 4; ++n) {
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        const int key = n * 8 + j;
        if (key < begin || key >= end) scores[n * 4 + i * 2 + j] = -INFINITY;
      }
    }
  }
}

// A consumer's 64 rows of a tile. A thread has rows thread / 32 * 16 + lane / 4 and that + 8. kOptions: there may be a
// softcap, or sinks where keys are not split. Kernels for neither have no code for them, which takes registers.
template <typename T, typename Tile, bool kOptions, typename Sequences>
struct Rows {
  using Forward = typename Sequences::Forward;
  using Work = WorkTile<typename Sequences::Sequence>;
  using Traits = KernelTraits<Tile>;
  static constexpr int kKeys = Traits::kKeys, D = Traits::D, V = Traits::V;
  // Whether a tile's first iteration finds out which keys all rows attend to, and not each for itself. Heads of 128 of
  // sequences of equal length gain nothing by that in iterations of 128 keys: long ones were 2% slower.
  static constexpr bool kKnowsCommonKeys = Sequences::kRagged || D != 128 || kKeys > 128;
  // Whether the accumulate of the iteration before ends before the exponentials begin, and not after: exponentials run
  // beside the conversion of weights then, and other consumers keep the tensor cores busy. nvcc itself arranges so the
  // three consumers of heads of 64 of sequences of equal length, and by 1.5% better.
  static constexpr bool kWaitsFirst =
      !Traits::kPacked && !kOptions && (Sequences::kRagged || Traits::kConsumers < 3 || V > 64);
  // Whether a consumer has no registers for two work items, and reads its next one again once it has written a tile.
  // Wide heads have them, but an iteration then has 13 instructions more.
  static constexpr bool kRereadsWork =
      Sequences::kRagged || Traits::kQueryStages == 1 || (Traits::kConsumers == 3 && V > 64);
  float out[V / 2], scores[kKeys / 2];
  uint32_t weights[kKeys / 16][4];
  // The row max that P is relative to, which may lag behind the true one (see kRescaleAt), and this thread's part of
  // the row sum.
  float max[2], sum[2];
  float rescale_by[2];           // What the accumulator is to be multiplied by.
  int common_begin, common_end;  // The keys that all rows attend to, where kKnowsCommonKeys.

  // The consumer's index.
  const int consumer = same_in_warp(threadIdx.x / kWarpgroup - 1);
  const Packing& packing;

  __device__ explicit Rows(const Packing& packing) : packing(packing) {}

  __device__ int first_row_of(const Work& work) const { return work.first_row + consumer * kWgmmaRows; }
  // The first of the thread's two rows, relative to the warpgroup's first.
  __device__ static int row() { return threadIdx.x % kWarpgroup / 32 * 16 + threadIdx.x % 32 / 4; }
  // The query of a row of a head or, packed, of a group of heads.
  __device__ int query_of(int row) const {
    if constexpr (Traits::kPacked) return packing.heads.divide(row);
    return row;
  }

  // The queries of a tile's rows. Rows past the last query count for nothing.
  __device__ __forceinline__ int first_query_of(const Mask& mask, const Work& work) const {
    return min(query_of(first_row_of(work)), mask.queries - 1);
  }
  __device__ __forceinline__ int end_query_of(const Mask& mask, const Work& work) const {
    return min(query_of(first_row_of(work) + kWgmmaRows - 1), mask.queries - 1) + 1;
  }

  // A new tile begins with the softmax, while the accumulator may still be the last tile's.
  __device__ __forceinline__ void begin_softmax(const Forward& p, const Work& work) {
    const auto& mask = Sequences::mask(p, work.sequence);
    common_begin = mask.common_begin(end_query_of(mask, work));
    common_end = mask.common_end(first_query_of(mask, work));
    max[0] = max[1] = -INFINITY;
    sum[0] = sum[1] = 0;
  }
  __device__ __forceinline__ void clear_accumulator() {
#pragma unroll
    for (float& value : out) value = 0;
  }

  // score: issues the GEMM.
  __device__ __forceinline__ void score(const char* queries, const char* keys) {
    constexpr int kRow = Panels<D>::kRow;
    const uint64_t a = wgmma_operand<kRow>(queries + consumer * kWgmmaRows * kRow), b = wgmma_operand<kRow>(keys);
    wgmma_pin(scores);
    wgmma_fence();
#pragma unroll
    for (int step = 0; step < D; step += kWgmmaDepth) {
      wgmma<T>(scores, a + skip_columns<Traits::kRows, D>(step), b + skip_columns<kKeys, D>(step), step > 0);
    }
    wgmma_commit();
  }

  // accumulate: issues the GEMM.
  __device__ __forceinline__ void accumulate(const char* values) {
    const uint64_t b = wgmma_operand<Panels<V>::kRow>(values, Panels<V>::template kBytes<kKeys>);
    wgmma_pin(out);
    wgmma_pin(weights);
    wgmma_fence();
#pragma unroll
    for (int step = 0; step < kKeys; step += kWgmmaDepth) {
      wgmma<T, Transposed::kB>(out, weights[step / kWgmmaDepth], b + skip_rows<V>(step));
    }
    wgmma_commit();
  }

  // mask
  __device__ __forceinline__ void mask(const Mask& mask, int first_row, int first_key) {
    mask_scores(scores, mask, first_key, [&](int i) { return query_of(first_row + row() + i * 8); });
  }

  // Whether all rows attend to all keys of an iteration.
  __device__ __forceinline__ bool allows_all(const Mask& mask, const Work& work, int first_key) const {
    if constexpr (kKnowsCommonKeys) return first_key >= common_begin && first_key + kKeys <= common_end;
    return mask.allows_all(first_query_of(mask, work), end_query_of(mask, work), first_key, first_key + kKeys);
  }

  // online_softmax: P = 2^(factor S - shift), with shift = factor * max. That is one multiply-add a score; its rounding
  // of shift is an error that all weights of a row have in common, so that it cancels.
  // before_exponentials() comes between the row max and them.
  template <typename Function>
  __device__ __forceinline__ void online_softmax(float scale, const Function& before_exponentials) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      float row_max = max[i];
#pragma unroll
      for (int n = 0; n < kKeys / 8; ++n) {
        row_max = fmaxf(row_max, fmaxf(scores[n * 4 + i * 2], scores[n * 4 + i * 2 + 1]));
      }
      row_max = fmaxf(row_max, __shfl_xor_sync(0xffffffff, row_max, 1));
      row_max = fmaxf(row_max, __shfl_xor_sync(0xffffffff, row_max, 2));
      // False while every score is -inf: the difference is NaN.
      const bool rescales = (row_max - max[i]) * scale > Tile::kRescaleAt;
      rescale_by[i] = rescales ? exp2_fast((max[i] - row_max) * scale) : 1;
      if (rescales) max[i] = row_max;
    }
    before_exponentials();
    if (kWaitsFirst) wgmma_pin(scores);  // Keeps the compiler from moving exponentials to before that.
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const float factor = factor_of(i, scale), shift = shift_of(i, factor);
      float tile_sum = 0;
#pragma unroll
      for (int n = 0; n < kKeys / 8; ++n) {
#pragma unroll
        for (int j = 0; j < 2; ++j) {
          float& score = scores[n * 4 + i * 2 + j];
          score = exp2_fast(__fmaf_rn(score, factor, -shift));
          tile_sum += score;
        }
      }
      sum[i] = __fmaf_rn(sum[i], rescale_by[i], tile_sum);
    }
  }

  // The scale. From kLimit on, where the rounding error of shift could make weights overflow, the next power of two
  // below it: the shift is exact then. The row max still has the weight 1; every other score, which at that magnitude
  // is many units away, a small one.
  __device__ __forceinline__ float factor_of(int i, float scale) const {
    constexpr float kLimit = 1 << 26;
    return fabsf(max[i] * scale) < kLimit ? scale : __uint_as_float(__float_as_uint(scale) & 0x7f800000);
  }

  // While every score is -inf, any finite number will do.
  __device__ __forceinline__ float shift_of(int i, float factor) const {
    return max[i] == -INFINITY ? 0 : __fmul_rn(max[i], factor);
  }

  // Rescales the accumulator: the second half of online_softmax, for when no GEMM is writing to it.
  __device__ __forceinline__ void rescale() {
    if (!__any_sync(0xffffffff, rescale_by[0] != 1 || rescale_by[1] != 1)) return;
#pragma unroll
    for (int n = 0; n < V / 8; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) out[n * 4 + i] *= rescale_by[i / 2];
    }
  }

  // An iteration's S to P, in place: score.h's transformation, mask and softmax.
  __device__ __forceinline__ void softmax(const Forward& p, const Work& work, int first_key) {
    softmax(p, work, first_key, [] {});
  }
  template <typename Function>
  __device__ __forceinline__ void softmax(
      const Forward& p, const Work& work, int first_key, const Function& before_exponentials) {
    // The condition is always true here. The branch keeps the compiler from moving the transformation to where wgmma is
    // in flight.
    if (kOptions && p.score.transforms()) {
#pragma unroll
      for (float& score : scores) score = p.score.transform(score);
    }
    const auto& sequence_mask = Sequences::mask(p, work.sequence);
    if (!allows_all(sequence_mask, work, first_key)) mask(sequence_mask, first_row_of(work), first_key);
    online_softmax(p.score.scale_log2, before_exponentials);
    // Keeps the compiler from moving the exponentials past the next wait.
    wgmma_pin(scores);
  }

  // The head and the query of a row.
  struct Place {
    int head, query;
  };
  __device__ __forceinline__ Place place_of(const Work& work, int row) const {
    const int query = query_of(row);
    if constexpr (!Traits::kPacked) return {work.head, query};
    const int heads = packing.heads.value();
    return {work.head * heads + row - query * heads, query};
  }
  // Whether a row has a query of the tile.
  __device__ __forceinline__ bool has_query(const Forward& p, const Work& work, int row) const {
    const bool in_tile = !Traits::kPacked || row < work.first_row + packing.tile_rows();
    return in_tile && query_of(row) < Sequences::mask(p, work.sequence).queries;
  }
  // The number of a row in the order of lse and, in a split, of partial_softmax.
  __device__ __forceinline__ int64_t number_of(const Forward& p, const Work& work, int row) const {
    const Place place = place_of(work, row);
    return Sequences::row_number(p, work.sequence, place.head, place.query);
  }

  // The epilogue's first half, for which the softmax must be complete: writes the LSE or the softmax of a split, and
  // returns what the accumulator is to be multiplied by. A query that attends to no key gets zeros, and an LSE of -inf,
  // or the sink.
  struct Factors {
    float row[2];
  };
  __device__ __forceinline__ Factors softmax_epilogue(const Forward& p, const Work& work) const {
    const bool splits = Traits::kPacked && p.splits > 1;
    const auto& mask = Sequences::mask(p, work.sequence);
    Factors factors;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int tile_row = first_row_of(work) + row() + i * 8, query = query_of(tile_row);
      float row_sum = sum[i];
      row_sum += __shfl_xor_sync(0xffffffff, row_sum, 1);
      row_sum += __shfl_xor_sync(0xffffffff, row_sum, 2);
      // Scores that are all -inf give 0 / 0, as softmax does; but in a split they leave the row to the other splits.
      const bool empty = splits ? row_sum == 0 : mask.begin(query) == mask.end(query);
      factors.row[i] = empty ? 0 : __frcp_rn(row_sum);
      const bool joins = kOptions && p.sinks && !splits;
      if (has_query(p, work, tile_row) && (joins || threadIdx.x % 4 == 0)) {
        const int64_t number = number_of(p, work, tile_row);
        // Where shift was rounded, the weight of max is not quite 1. The correction makes the LSE of a row with one key
        // exactly that key's score.
        const float factor = factor_of(i, p.score.scale_log2);
        const float error = max[i] == -INFINITY ? 0 : __fmaf_rn(max[i], factor, -shift_of(i, factor));
        if (splits) {
          p.partial_softmax[number] = {max[i], row_sum * exp2_fast(-error)};
        } else {
          float lse = __fmul_rn(max[i], p.score.scale) + (logf(row_sum) - error * (1 / kLog2E));
          if (empty) lse = -INFINITY;
          if (joins) join_sink(p.sinks[place_of(work, tile_row).head], factors.row[i], lse);
          if (threadIdx.x % 4 == 0) p.lse[number] = lse;
        }
      }
    }
    return factors;
  }

  // The epilogue's second half, for which the accumulator must be complete: writes the output.
  template <typename Tensor>
  __device__ __forceinline__ void accumulator_epilogue(
      const Factors& factors, const Tensor& tensor, char* shared, const Work& work) {
    const int thread = threadIdx.x % kWarpgroup, barrier = kOutBarrier + consumer;
    asm volatile("" : "+l"(shared));  // Recomputes addresses for each tile: kept across tiles, they take registers.
#pragma unroll
    for (int n = 0; n < V / 8; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) out[n * 4 + i] *= factors.row[i / 2];
    }
    uint32_t rounded[V / 16][4];
    round_to<T>(rounded, out);
    if (thread == 0) tma_store_wait_read<0>();  // The last tile's output has left shared memory.
    named_barrier_sync(barrier, kWarpgroup);
    store_rows<T, kWgmmaRows, V>(shared, 0, rounded);
    fence_async_shared();
    named_barrier_sync(barrier, kWarpgroup);
    if (thread == 0) {
#pragma unroll
      for (int panel = 0; panel < Panels<V>::kCount; ++panel) {
        const int column = panel * Panels<V>::kColumns;
        const auto target = tensor.coordinates(work.sequence.queries(), work.head, first_row_of(work), column);
        tma_store(tensor.map, shared + panel * Panels<V>::template kBytes<kWgmmaRows>, target);
      }
      tma_store_commit();
    }
  }

  // The same from registers: for packed rows, as a box of TMA has one head. Four lanes write 16 or 32 adjacent bytes.
  __device__ __forceinline__ void register_epilogue(const Forward& p, const Factors& factors, const Work& work) const {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int tile_row = first_row_of(work) + row() + i * 8;
      if (!has_query(p, work, tile_row)) continue;
      const auto store_pairs = [&](int dims, auto* target, const auto& rounded) {
        target += threadIdx.x % 4;
#pragma unroll
        for (int n = 0; n < V / 8; ++n) {
          const float *pair = &out[n * 4 + i * 2], factor = factors.row[i];
          if (n * 8 < dims) target[n * 4] = rounded(pair[0] * factor, pair[1] * factor);
        }
      };
      if (Traits::kPacked && p.splits > 1) {
        auto* const target = reinterpret_cast<float2*>(p.partial_out + number_of(p, work, tile_row) * V);
        store_pairs(V, target, [](float first, float second) { return float2{first, second}; });
      } else {
        const Place place = place_of(work, tile_row);
        T* const target = Sequences::template output_row<T>(p, work.sequence, place.head, place.query);
        store_pairs(p.out.dims, reinterpret_cast<uint32_t*>(target), pack<T>);
      }
    }
  }
};

}  // namespace fwd
}  // namespace attention::sm90
