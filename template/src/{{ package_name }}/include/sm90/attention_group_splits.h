// Into how many splits a backward divides the queries of a tile of keys: those of the heads that share the keys.
//
// A block has a tile of keys and all query heads of its group. A few sequences have fewer such blocks than the GPU has
// multiprocessors, as have many queries on few keys, or the blocks of a causal mask differ so much in length that most
// multiprocessors wait for the longest. Then each block has a split: some heads of the group or, where there are more
// splits than heads, some of a head's tiles of queries. It leaves its sums of grad_k and grad_v in float32, and
// convert_tile adds the splits up in their order.

#pragma once

#include <algorithm>
#include <cstdint>

#include "attention_wgmma_tiles.h"
#include "ceil_div.h"
#include "mask.h"

namespace attention::sm90 {

// The estimated time of a backward in loop iterations, with so many splits. `heads` heads of keys, in all sequences,
// have tiles of this mask. The constants are rounded from measurements on an H100, but for that of kAdded.
template <typename Tile>
int64_t estimated_iterations(const Mask& mask, int64_t heads, int group, int splits, int multiprocessors) {
  constexpr int kKeys = Tile::kKeys;
  // An iteration of heads of 96 has as many queries as one of heads of 64, and sums and products half as much again.
  constexpr int kDims = Tile::kDims == 96 ? 64 : Tile::kDims;
  constexpr int64_t kBlock = 1;          // To begin and end a block.
  constexpr int64_t kSums = kDims / 32;  // To write a split's sums and read them again.
  // To add up the sums of a tile of keys, by one block, at some 200 GB/s: kAdded splits an iteration.
  constexpr int64_t kAdded = 1024 / kDims;
  const int64_t own = kBlock + (splits > 1 ? kSums + (splits - 1) / kAdded : 0);
  const int query_splits = std::max(splits / group, 1), split_heads = std::max(group / splits, 1);
  int64_t longest = 0, total = 0;
  for (int first_key = 0; first_key < mask.keys; first_key += kKeys) {
    const int last_key = std::min(first_key + kKeys, mask.keys) - 1;
    const int begin = Tile::kSingle ? 0 : mask.first_query(first_key);
    const int end = Tile::kSingle ? mask.queries : mask.end_query(last_key);
    const int64_t rows = std::max<int64_t>(ceil_div(end, Tile::kRows) - begin / Tile::kRows, 0);
    const int64_t iterations = ceil_div(rows, query_splits) * split_heads + own;
    longest = std::max(longest, iterations);
    total += iterations;
  }
  const int64_t tiles = ceil_div(mask.keys, kKeys);
  // Blocks of equal length take turns.
  if (mask.is_even() || Tile::kSingle) {
    return ceil_div(tiles * heads * splits, multiprocessors * Tile::kBlocks) * longest;
  }
  // Of others, short ones fill what long ones leave; but where the long ones of some heads begin late, since heads come
  // in more than two sections, and all the work is little more than one of them, half of one is left over.
  const int64_t bytes = int64_t(mask.queries) * Tile::kDims * 4 * group;
  const bool are_side_by_side = heads * bytes <= 2 * Tile::section_bytes(bytes, true);
  const int64_t mean = ceil_div(total * heads * splits, multiprocessors);
  const bool is_little = mean * 4 < longest * 7;
  return std::max(longest, mean + (is_little && !are_side_by_side ? longest / 2 : 0));
}

// The splits, a divisor of the group or, if queries are divided, a multiple of it: as estimated or, if the tuner says
// more than 0, no more than that. A block leaves 64 KiB of sums or, with heads of 128, 128 KiB, the two blocks of
// heads of 256 together 256 KiB: so the waves of such blocks are limited.
template <typename Tile>
int choose_group_splits(const Mask& mask, int64_t heads, int group, int multiprocessors, bool divides_queries) {
  constexpr int kMostWaves = 9, kMostQuerySplits = 32;
  const int64_t blocks = ceil_div(mask.keys, Tile::kKeys) * heads, most = kMostWaves * multiprocessors;
  const int most_splits = divides_queries ? group * kMostQuerySplits : group;
  if (most_splits == 1 || 2 * blocks > most) return 1;
  int best = 1;
  int64_t least = estimated_iterations<Tile>(mask, heads, group, 1, multiprocessors) * 9 / 10;
  for (int splits = 2; splits <= most_splits && splits * blocks <= most; ++splits) {
    if (group % splits != 0 && splits % group != 0) continue;
    if constexpr (Tile::kGroupSplits > 0) {
      if (splits <= std::min(Tile::kGroupSplits, group)) best = splits;
    } else {
      const int64_t iterations = estimated_iterations<Tile>(mask, heads, group, splits, multiprocessors);
      if (iterations < least) best = splits, least = iterations;
    }
  }
  return best;
}

}  // namespace attention::sm90
