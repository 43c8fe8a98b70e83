// How long lines stay in the L2 cache. Plain C++, for the host's sources.

#pragma once

#include <cstdint>

enum class Eviction { kNormal, kFirst, kLast };

// Of what a kernel reads once, so many bytes. Lines that leave first do not displace what kernels before have written,
// which would have to go to memory, nor what those after will read. But a stream has few lines of the cache so, through
// which a long one flows more slowly: its lines leave last, and evict each other once the others have left.
inline Eviction eviction_of_stream(int64_t bytes, int64_t cache_bytes) {
  constexpr int64_t kLong = 3;  // Times the cache: where both were worth as much on an H100.
  return bytes < kLong * cache_bytes ? Eviction::kFirst : Eviction::kLast;
}
