// What follows from the tunables of attention's kernels, for the kernels and for their callers.

#pragma once

#include <cuda_runtime_api.h>

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

// Calls visit(values) with the sizes of backward_keys for a GPU whose blocks have so much shared memory: Tuned, or the
// smaller ones of Compact<Tuned> where those do not fit.
template <int D, template <typename> typename Compact, typename Tuned, typename Visit>
auto visit_keys(Tuned values, int available, const Visit& visit) {
  constexpr int kLeastAvailable = 99 * 1024;  // On any GPU of compute capability 8.0 or newer.
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
