// Loads and stores of 16 bytes with a hint for the caches, each one instruction: the compiler may merge a plain store
// with the single-element stores of another branch, and split it. Accesses of other sizes are plain ones.
//
//   load_evict_last, store_evict_last  lines leave the L2 cache last
//   load_hinted, store_hinted          the same, or another hint, as a template argument says
//   EvictionPolicy                     lines stay in the L2 cache as the host says (eviction.h)

#pragma once

#include "eviction.h"
#include "shared_address.cuh"
#include "vector.cuh"

// For kernels that read and write every element once.
enum class Hint {
  // Where they move more bytes than the L2 cache holds: they move as many as with plain accesses, yet take 2 to 4% less
  // time on an H200; torch.compile uses the same hint in its reductions. Lines of this priority evict each other: the
  // cache is not blocked, and what was written last is still cached for the next kernel.
  kEvictLast,
  // Loads take no room in the L1 cache.
  kStreamed,
};

// Whether the GPU that is compiled for has policies of the L2 cache. Where it has none, accesses are plain.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
constexpr bool kHasEvictionPolicies = true;
#else
constexpr bool kHasEvictionPolicies = false;
#endif

template <Hint kHint, typename Accessed>
constexpr bool kTakesHint = sizeof(Accessed) == kVectorBytes && (kHint == Hint::kStreamed || kHasEvictionPolicies);

// The i-th group of N elements, or `vector` if not `valid`. The pointer must be aligned to the group's size.
template <Hint kHint, int N, typename T>
__device__ Vector<T, N> load_hinted(const T* pointer, int64_t i, bool valid = true, Vector<T, N> vector = {}) {
  if constexpr (kTakesHint<kHint, Vector<T, N>>) {
    // A predicate, not a branch: where a branch ends, the thread would wait for the load.
    auto* const words = reinterpret_cast<uint32_t*>(&vector);
    const auto* const from = reinterpret_cast<const Vector<T, N>*>(pointer) + i;
    if constexpr (kHint == Hint::kEvictLast) {
      asm volatile(
          "{\n"
          ".reg .pred valid;\n"
          ".reg .b64 policy;\n"
          "setp.ne.s32 valid, %5, 0;\n"
          "createpolicy.fractional.L2::evict_last.b64 policy, 1.0;\n"
          "@valid ld.global.L2::cache_hint.v4.b32 { %0, %1, %2, %3}, [%4], policy;\n"
          "}"
          : "+r"(words[0]), "+r"(words[1]), "+r"(words[2]), "+r"(words[3])
          : "l"(from), "r"(int(valid)));
    } else {
      asm volatile(
          "{\n"
          ".reg .pred valid;\n"
          "setp.ne.s32 valid, %5, 0;\n"
          "@valid ld.global.L1::no_allocate.v4.b32 { %0, %1, %2, %3}, [%4];\n"
          "}"
          : "+r"(words[0]), "+r"(words[1]), "+r"(words[2]), "+r"(words[3])
          : "l"(from), "r"(int(valid)));
    }
  } else if (valid) {
    vector = load<N>(pointer, i);
  }
  return vector;
}

template <Hint kHint, int N, typename T>
__device__ void store_hinted(T* pointer, int64_t i, const Vector<T, N>& vector) {
  if constexpr (kTakesHint<kHint, Vector<T, N>>) {
    const auto* const words = reinterpret_cast<const uint32_t*>(&vector);
    auto* const to = reinterpret_cast<Vector<T, N>*>(pointer) + i;
    if constexpr (kHint == Hint::kEvictLast) {
      asm volatile(
          "{\n"
          ".reg .b64 policy;\n"
          "createpolicy.fractional.L2::evict_last.b64 policy, 1.0;\n"
          "st.global.L2::cache_hint.v4.b32 [%0], { %1, %2, %3, %4}, policy;\n"
          "}" ::"l"(to),
          "r"(words[0]),
          "r"(words[1]),
          "r"(words[2]),
          "r"(words[3])
          : "memory");
    } else {
      asm volatile("st.global.v4.b32 [%0], { %1, %2, %3, %4};" ::"l"(to),
                   "r"(words[0]),
                   "r"(words[1]),
                   "r"(words[2]),
                   "r"(words[3])
                   : "memory");
    }
  } else {
    store(pointer, i, vector);
  }
}

template <int N, typename T>
__device__ Vector<T, N> load_evict_last(const T* pointer, int64_t i, bool valid = true, Vector<T, N> vector = {}) {
  return load_hinted<Hint::kEvictLast, N>(pointer, i, valid, vector);
}

template <int N, typename T>
__device__ void store_evict_last(T* pointer, int64_t i, const Vector<T, N>& vector) {
  store_hinted<Hint::kEvictLast>(pointer, i, vector);
}

// How long lines stay in the L2 cache, where the host decides: it knows how many bytes a kernel will read.
class EvictionPolicy {
 public:
  __device__ explicit EvictionPolicy(Eviction eviction) {
    if constexpr (kHasEvictionPolicies) {
      uint64_t first, last;  // Without branches, which would keep the compiler from mixing this with other work.
      asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(first));
      asm("createpolicy.fractional.L2::evict_last.b64 %0, 1.0;" : "=l"(last));
      asm("createpolicy.fractional.L2::evict_normal.b64 %0, 1.0;" : "=l"(policy_));
      policy_ = eviction == Eviction::kFirst ? first : eviction == Eviction::kLast ? last : policy_;
    }
  }

  // The i-th 16 bytes from an aligned pointer on; `words`, without a memory access, if not `valid`.
  __device__ Vector<uint32_t, 4> load(
      const void* pointer, int64_t i, bool valid, Vector<uint32_t, 4> words = {}) const {
    const auto* const from = static_cast<const Vector<uint32_t, 4>*>(pointer) + i;
    if constexpr (kHasEvictionPolicies) {
      asm volatile(
          "{\n"
          ".reg .pred valid;\n"
          "setp.ne.s32 valid, %6, 0;\n"
          "@valid ld.global.L2::cache_hint.v4.b32 { %0, %1, %2, %3}, [%4], %5;\n"
          "}"
          : "+r"(words[0]), "+r"(words[1]), "+r"(words[2]), "+r"(words[3])
          : "l"(from), "l"(policy_), "r"(int(valid)));
    } else if (valid) {
      words = *from;
    }
    return words;
  }

  // The i-th group of N elements likewise; those of other sizes than 16 bytes are plain loads.
  template <int N, typename T>
  __device__ Vector<T, N> load(const T* pointer, int64_t i, bool valid) const {
    Vector<T, N> vector = {};
    if constexpr (sizeof(vector) == kVectorBytes) {
      const auto words = load(static_cast<const void*>(pointer), i, valid);
      vector = reinterpret_cast<const Vector<T, N>&>(words);
    } else if (valid) {
      vector = ::load<N>(pointer, i);
    }
    return vector;
  }

  // Starts the copy of a group of N elements to shared memory (cp.async).
  template <typename T, int N>
  __device__ void copy_async(Vector<T, N>* to, const Vector<T, N>* from) const {
    if constexpr (kHasEvictionPolicies && sizeof(*to) == kVectorBytes) {
      asm volatile("cp.async.cg.shared.global.L2::cache_hint [%0], [%1], 16, %2;" ::"r"(shared_address(to)),
                   "l"(from),
                   "l"(policy_)
                   : "memory");
    } else {
      *to = *from;
    }
  }

 private:
  uint64_t policy_ = 0;
};
