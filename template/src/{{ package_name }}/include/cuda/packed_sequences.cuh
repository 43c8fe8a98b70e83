// Sequences of different lengths that follow each other in one tensor, and their division into tiles: the host knows
// how many rows and sequences there are, the lengths are on the GPU alone.

#pragma once

#include <cstdint>

// starts[i] is the first row of sequence i, and starts[count] the end of the last one. What follows that is one more
// sequence, of rows that belong to none. Starts that do not ascend, or lead beyond the rows, are cut off.
struct PackedSequences {
  const int* starts;
  int count, rows;

  // Slots for tiles of so many rows, at least as many as there are tiles. Sequence i has those from starts[i] / tile +
  // i on, which are always enough; some stay empty.
  __host__ __device__ int slots(int tile, int parts = 1) const {
    return static_cast<int>(int64_t(rows) * parts / tile) + count + 1;
  }

#ifdef __CUDACC__
  __device__ int begin(int sequence) const { return min(max(starts[sequence], 0), rows); }
  __device__ int end(int sequence) const {
    return sequence == count ? rows : min(max(starts[sequence + 1], begin(sequence)), rows);
  }
  // With `parts` rows in place of each.
  __device__ int first_slot(int sequence, int tile, int parts = 1) const {
    return static_cast<int>(int64_t(begin(sequence)) * parts / tile) + sequence;
  }

  // The last sequence whose first slot is this one or an earlier one.
  __device__ int sequence_of(int slot, int tile, int parts = 1) const {
    return last_sequence([&](int sequence) { return first_slot(sequence, tile, parts) <= slot; });
  }
  // The sequence of a row.
  __device__ int sequence_of_row(int row) const {
    return last_sequence([&](int sequence) { return begin(sequence) <= row; });
  }

 private:
  // The last sequence for which precedes(sequence) holds, as it does for all before: a warp looks at 32 at a time.
  template <typename Precedes>
  __device__ int last_sequence(const Precedes& precedes) const {
    int first = 0, candidates = count + 1;
    while (candidates > 1) {
      const int step = (candidates + 31) / 32, offset = int(threadIdx.x % 32) * step;
      const bool passes = offset < candidates && precedes(first + offset);
      const int passed = max(__popc(__ballot_sync(0xffffffff, passes)), 1) - 1;
      first += passed * step;
      candidates = min(step, candidates - passed * step);
    }
    return first;
  }
#endif
};
