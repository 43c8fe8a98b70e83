// Loads whose lines stay in the L2 cache as the host says; those of hinted.cuh have a hint that is known when compiled.

#pragma once

#include "eviction.h"
#include "vector.cuh"

class EvictionPolicy {
 public:
  __device__ explicit EvictionPolicy(Eviction eviction) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    if (eviction == Eviction::kFirst) {
      asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy_));
    } else if (eviction == Eviction::kLast) {
      asm("createpolicy.fractional.L2::evict_last.b64 %0, 1.0;" : "=l"(policy_));
    } else {
      asm("createpolicy.fractional.L2::evict_normal.b64 %0, 1.0;" : "=l"(policy_));
    }
#endif
  }

  // The i-th 16 bytes from an aligned pointer on; zeros, without a memory access, if not `valid`.
  __device__ Vector<uint32_t, 4> load(const void* pointer, int64_t i, bool valid) const {
    Vector<uint32_t, 4> words{};
    const auto* const from = static_cast<const Vector<uint32_t, 4>*>(pointer) + i;
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    // A predicate, not a branch: where a branch ends, the thread would wait for the load.
    asm volatile(
        "{\n"
        ".reg .pred valid;\n"
        "setp.ne.s32 valid, %6, 0;\n"
        "@valid ld.global.L2::cache_hint.v4.b32 { %0, %1, %2, %3}, [%4], %5;\n"
        "}"
        : "+r"(words[0]), "+r"(words[1]), "+r"(words[2]), "+r"(words[3])
        : "l"(from), "l"(policy_), "r"(int(valid)));
#else
    if (valid) words = *from;
#endif
    return words;
  }

 private:
  uint64_t policy_ = 0;
};
