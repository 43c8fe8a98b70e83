// The tiles of sequences of different lengths in one list, sequence after sequence: no place of it is empty but those
// after its end.

#pragma once

#include <cstdint>

// Which tile has which place, of at most kMostTiles. By a block of kThreads threads.
template <int kThreads>
class PackedTiles {
 public:
  struct Tile {
    int sequence, tile;
  };

  // tiles_of(sequence): how many tiles this one of `sequences` has in the list. Each thread adds up those of some
  // sequences; `ends` is shared memory.
  template <typename TilesOf>
  __device__ PackedTiles(int (&ends)[kThreads], int sequences, const TilesOf& tiles_of)
      : ends_(ends), share_((sequences + kThreads - 1) / kThreads) {
    const int thread = threadIdx.x, first = min(thread * share_, sequences), last = min(first + share_, sequences);
    int sum = 0;
    for (int sequence = first; sequence < last; ++sequence) sum = min(sum + tiles_of(sequence), kMostTiles);
    ends[thread] = sum;
    for (int distance = 1; distance < kThreads; distance *= 2) {
      __syncthreads();
      const int others = thread >= distance ? ends[thread - distance] : 0;
      __syncthreads();
      ends[thread] = min(ends[thread] + others, kMostTiles);
    }
    __syncthreads();
  }

  __device__ int size() const { return ends_[kThreads - 1]; }

  // The tile at a place before size(), for one thread.
  template <typename TilesOf>
  __device__ Tile at(int place, const TilesOf& tiles_of) const {
    int thread = 0;  // The first thread whose sequences end after it.
    for (int step = kThreads / 2; step > 0; step /= 2) {
      if (ends_[thread + step - 1] <= place) thread += step;
    }
    int sequence = thread * share_, tile = place - (thread > 0 ? ends_[thread - 1] : 0);
    for (int tiles = tiles_of(sequence); tile >= tiles; tiles = tiles_of(++sequence)) tile -= tiles;
    return {sequence, tile};
  }

 private:
  // Lengths that do not ascend could add up to more than an int holds.
  static constexpr int kMostTiles = 1 << 29;

  const int (&ends_)[kThreads];
  int share_;
};
