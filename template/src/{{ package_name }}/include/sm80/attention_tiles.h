// What follows from the tunables of attention's kernels, for the kernels and for their callers.

#pragma once

#include <cuda_runtime_api.h>

#include "compute_capability.h"

namespace attention::sm80 {

// Queries of a forward tile.
template <typename Tuned>
constexpr int kForwardRows = Tuned::forward_warps * Tuned::forward_rows;

// The columns of backward_keys' dS^T in shared memory: whole panels of 64.
template <typename Tuned>
constexpr int kDsColumns = (Tuned::keys_rows + 63) / 64 * 64;

// Shared memory of a block of backward_keys, in bytes: keys, values, the ring of queries and gradients with an LSE and
// a delta for each row, and dS^T. With the defaults no other kernel here takes more.
template <typename Tuned, int D>
constexpr int kKeysSharedBytes =
    2 * Tuned::keys_warps * 16 * D * 2 + Tuned::keys_stages * Tuned::keys_rows * (2 * D * 2 + 2 * 4) +
    Tuned::keys_warps * 16 * kDsColumns<Tuned> * 2;

// The sizes for 7.5, where a block has 64 KB of shared memory, less what varlen's and paged's kernels need beside their
// tiles. Copies are not asynchronous there, so that a second stage of a ring would bring nothing.
template <int D, typename Values>
struct Turing : Values {
  static constexpr int forward_warps = 4;
  static constexpr int forward_keys = D == 64 ? 64 : 32;
  static constexpr int forward_stages = 1;
  static constexpr int forward_blocks = Values::forward_blocks < 2 ? Values::forward_blocks : 2;
  static constexpr int keys_warps = 4;
  static constexpr int keys_rows = D == 64 ? 64 : 32;
  static constexpr int keys_stages = 1;
  static constexpr int keys_warps_by_row = D == 64 ? 2 : 1;  // With D 128 and 2, registers would spill.
  static constexpr int queries_warps = 4;
  static constexpr int queries_keys = D == 64 ? 64 : 48;
  static constexpr int queries_stages = 1;
};

template <typename Values>
constexpr bool kIsTuring = false;
template <int D, typename Values>
constexpr bool kIsTuring<Turing<D, Values>> = true;

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

// Calls visit(values) with the sizes of backward_keys for a GPU whose blocks have so much shared memory: Tuned, or the
// smaller ones of Compact<Tuned> where those do not fit, or those for 7.5.
template <int D, template <typename> typename Compact, typename Tuned, typename Visit>
auto visit_keys(Tuned values, int available, const Visit& visit) {
  constexpr int kLeastAvailable = 99 * 1024;  // On any GPU of compute capability 8.0 or newer.
  if (available < kLeastAvailable) return visit(Turing<D, Tuned>());
  if constexpr (kKeysSharedBytes<Tuned, D> > kLeastAvailable) {
    static_assert(kKeysSharedBytes<Compact<Tuned>, D> <= kLeastAvailable);
    if (available < kKeysSharedBytes<Tuned, D>) return visit(Compact<Tuned>());
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
