// The order in which blocks take the tiles of sequences of different lengths, by a walk and by a list.

#include "attention_ragged.cuh"
#include "packed_sequences.cuh"
#include "packed_tiles.cuh"

using namespace attention::sm90;

// Writes what the tile with each index is: number of the sequence, head, tile.
template <int kRows>
__global__ void write_tiles(
    const __grid_constant__ PackedSequences queries,
    const __grid_constant__ PackedSequences keys,
    const __grid_constant__ fwd::RaggedScheduler scheduler,
    int* out) {
  const auto keys_of = [&](int number) { return number < keys.count ? keys.end(number) - keys.begin(number) : 0; };
  fwd::RaggedWalk<kRows> walk(queries);
  for (int index = blockIdx.x;; index = next_index<32>(scheduler, index)) {
    const fwd::RaggedTile tile = walk.find(queries, scheduler, keys_of, index);
    if (tile.number < 0) return;
    if (threadIdx.x > 0) continue;
    out[3 * index] = tile.number;
    out[3 * index + 1] = tile.head;
    out[3 * index + 2] = tile.tile;
  }
}

extern "C" cudaError_t ragged_tiles(
    const int* starts,
    const int* key_starts,
    int64_t sequences,
    int64_t rows,
    int64_t heads,
    int64_t group,
    int64_t section_keys,
    int64_t blocks,
    int* counter,
    int* out) {
  constexpr int kRows = 64, kKeyBytes = 512;
  const PackedSequences queries = {starts, int(sequences), int(rows)}, keys = {key_starts, int(sequences), 1 << 20};
  fwd::RaggedScheduler scheduler(heads, group, queries.slots(kRows) * heads, kKeyBytes, section_keys * kKeyBytes);
  scheduler.counter = counter;
  write_tiles<kRows><<<blocks, 32>>>(queries, keys, scheduler, out);
  return cudaGetLastError();
}

// Writes what is at each place of the list: the sequence and the tile. By blocks of a warp.
template <int kRows>
__global__ void write_list(const __grid_constant__ PackedSequences sequences, int* size, int* out) {
  __shared__ int ends[32];
  const auto tiles_of = [&](int number) {
    return (sequences.end(number) - sequences.begin(number) + kRows - 1) / kRows;
  };
  const PackedTiles<32> list(ends, sequences.count + 1, tiles_of);
  const int place = blockIdx.x * 32 + threadIdx.x;
  if (place == 0) *size = list.size();
  if (place >= min(list.size(), sequences.slots(kRows))) return;
  const auto [sequence, tile] = list.at(place, tiles_of);
  out[2 * place] = sequence;
  out[2 * place + 1] = tile;
}

extern "C" cudaError_t packed_tiles(const int* starts, int64_t sequences, int64_t rows, int* size, int* out) {
  constexpr int kRows = 64;
  const PackedSequences packed = {starts, int(sequences), int(rows)};
  write_list<kRows><<<(packed.slots(kRows) + 31) / 32, 32>>>(packed, size, out);
  return cudaGetLastError();
}
