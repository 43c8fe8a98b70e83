// What follows from the tunables of attention's kernels, for the kernels and for their callers.

#pragma once

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

}  // namespace attention::sm80
