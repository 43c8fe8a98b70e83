// What follows from the tunables of attention's kernels, for the kernels and for their callers. D is the width of
// queries and keys, V that of values and outputs.

#pragma once

#include <cuda_runtime_api.h>

#include "compute_capability.h"

namespace attention::sm80 {

// Queries of a forward tile.
template <typename Tuned>
constexpr int kForwardRows = Tuned::forward_warps * Tuned::forward_rows;

// The bytes of a tile of so many rows: whole panels of 64 columns.
constexpr int tile_bytes(int rows, int columns) {
  return rows * ((columns + 63) / 64 * 64) * 2;
}

// Shared memory of a block of the forward: queries, and the ring of keys and values.
template <typename Tuned, int D, int V>
constexpr int kForwardSharedBytes =
    tile_bytes(kForwardRows<Tuned>, D) +
    Tuned::forward_stages * (tile_bytes(Tuned::forward_keys, D) + tile_bytes(Tuned::forward_keys, V));

// Keys of a tile of backward_keys: of a pair of warps as many as of either.
template <typename Tuned>
constexpr int kBackwardKeys = Tuned::keys_warps / 2 * Tuned::keys_of_warp;

// The columns of backward_keys' dS^T in shared memory: whole panels of 64.
template <typename Tuned>
constexpr int kDsColumns = (Tuned::keys_rows + 63) / 64 * 64;

// Shared memory of a block of backward_keys, in bytes: keys, values, the ring of queries and gradients with an LSE and
// a delta for each row, and two tiles of dS^T.
template <typename Tuned, int D, int V>
constexpr int kKeysSharedBytes = tile_bytes(kBackwardKeys<Tuned>, D) + tile_bytes(kBackwardKeys<Tuned>, V) +
                                 Tuned::keys_stages * (tile_bytes(Tuned::keys_rows, D) +
                                                       tile_bytes(Tuned::keys_rows, V) + Tuned::keys_rows * 2 * 4) +
                                 2 * tile_bytes(kBackwardKeys<Tuned>, kDsColumns<Tuned>);

// The sizes for 7.5, where a block has 64 KB of shared memory, less what varlen's and paged's kernels need beside their
// tiles. Copies are not asynchronous there, so that a second stage of a ring would bring nothing.
template <int D, typename Values>
struct Turing : Values {
  static constexpr int forward_warps = 4;
  static constexpr int forward_keys = D == 64 ? 64 : D == 256 ? 16 : 32;
  static constexpr int forward_stages = 1;
  static constexpr int forward_blocks = Values::forward_blocks < 2 ? Values::forward_blocks : 2;
  static constexpr int keys_warps = D == 64 || D == 128 ? 8 : 4;
  static constexpr int keys_of_warp = 16;
  static constexpr int keys_rows = D == 64 ? 64 : D == 96 ? 32 : 16;
  static constexpr int keys_stages = 1;
  static constexpr int keys_warps_by_row = D == 64 ? 4 : D == 96 ? 2 : 1;
  static constexpr int keys_blocks = 1;  // So many have room in shared memory.
  static constexpr int queries_warps = D == 256 ? 2 : 4;
  static constexpr int queries_keys = D == 64 ? 64 : D == 128 ? 48 : D == 96 ? 32 : 16;
  static constexpr int queries_stages = 1;
};

template <typename Values>
constexpr bool kIsTuring = false;
template <int D, typename Values>
constexpr bool kIsTuring<Turing<D, Values>> = true;

// Whether backward_keys has registers for these sizes in code for 10.0 and later, where ptxas keeps more addresses: a
// gradient of 32 keys beside S would spill.
template <int D, typename Tuned>
constexpr bool kKeysFitNewer = D <= 64 || Tuned::keys_of_warp == 16 || Tuned::keys_rows <= 32;

// Whether kernels of these sizes are for the GPU that is compiled for. Where they are not, they are empty.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
template <typename Tuned>
constexpr bool kRunsHere = kIsTuring<Tuned>;
#else
template <typename Tuned>
constexpr bool kRunsHere = !kIsTuring<Tuned>;
#endif

// Calls visit(values) with the sizes for the current GPU: Tuned, or those for 7.5.
template <int D, typename Tuned, typename Visit>
auto visit_sizes(Tuned values, const Visit& visit) {
  if (compute_capability() < 80) return visit(Turing<D, Tuned>());
  return visit(values);
}

// Shared memory of a block on any GPU of compute capability 8.0 or newer.
constexpr int kLeastSharedBytes = 99 * 1024;

// Calls visit(values) with the sizes of the forward for a GPU whose blocks have so much shared memory: Tuned, or the
// smaller ones of Compact<D, Tuned> where those do not fit, or those for 7.5.
template <int D, int V, template <int, typename> typename Compact, typename Tuned, typename Visit>
auto visit_forward(Tuned values, int available, const Visit& visit) {
  if (available < kLeastSharedBytes) return visit(Turing<D, Tuned>());
  if constexpr (kForwardSharedBytes<Tuned, D, V> > kLeastSharedBytes) {
    static_assert(kForwardSharedBytes<Compact<D, Tuned>, D, V> <= kLeastSharedBytes);
    if (available < kForwardSharedBytes<Tuned, D, V>) return visit(Compact<D, Tuned>());
  }
  return visit(values);
}

// The same for backward_keys.
template <int D, int V, template <int, typename> typename Compact, typename Tuned, typename Visit>
auto visit_keys(Tuned values, int available, const Visit& visit) {
  if (available < kLeastSharedBytes) return visit(Turing<D, Tuned>());
  if constexpr (kKeysSharedBytes<Tuned, D, V> > kLeastSharedBytes) {
    static_assert(kKeysSharedBytes<Compact<D, Tuned>, D, V> <= kLeastSharedBytes);
    const bool fits = kKeysFitNewer<D, Tuned> || compute_capability() < 100;
    if (!fits || available < kKeysSharedBytes<Tuned, D, V>) return visit(Compact<D, Tuned>());
  }
  return visit(values);
}

// The shared memory that a block of the current GPU may have.
inline int available_shared_bytes() {
  int device = 0, bytes = 0;
  cudaGetDevice(&device);
  cudaDeviceGetAttribute(&bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
  return bytes;
}

}  // namespace attention::sm80
