// Loads and stores whose lines are the last to leave the L2 cache (evict_last, sm_80 and later).
//
// For kernels that read and write every element once, and more of them than the cache holds. They move as many bytes
// as with plain accesses, yet an H200 gets done 2 to 4% sooner. torch.compile asks for the same in its reductions. Such
// lines make room for each other, so none stays for good; and what was written last is still there for whoever reads it
// next.

#pragma once

#include "vector.cuh"

// The i-th group of N elements, or zeros unless it is there. The pointer must be aligned to the group's size.
template <int N, typename T>
__device__ Vector<T, N> load_evict_last(const T* pointer, int64_t i, bool there = true) {
  Vector<T, N> vector = {};
#if __CUDA_ARCH__ >= 800
  if constexpr (sizeof(vector) == kVectorBytes) {
    // A predicate, not a branch: at a branch's end a thread waits for what it has loaded.
    auto* const words = reinterpret_cast<uint32_t*>(&vector);
    asm volatile(
        "{\n"
        ".reg .pred there;\n"
        ".reg .b64 policy;\n"
        "setp.ne.s32 there, %5, 0;\n"
        "createpolicy.fractional.L2::evict_last.b64 policy, 1.0;\n"
        "@there ld.global.L2::cache_hint.v4.b32 { %0, %1, %2, %3}, [%4], policy;\n"
        "}"
        : "+r"(words[0]), "+r"(words[1]), "+r"(words[2]), "+r"(words[3])
        : "l"(reinterpret_cast<const Vector<T, N>*>(pointer) + i), "r"(int(there)));
    return vector;
  }
#endif
  if (there) {
    vector = load<N>(pointer, i);
  }
  return vector;
}

// One of 16 bytes stays one, where plain ones may be split: with a store of single elements in another branch, the
// compiler makes one of both.
template <int N, typename T>
__device__ void store_evict_last(T* pointer, int64_t i, const Vector<T, N>& vector) {
#if __CUDA_ARCH__ >= 800
  if constexpr (sizeof(vector) == kVectorBytes) {
    const auto* const words = reinterpret_cast<const uint32_t*>(&vector);
    asm volatile(
        "{\n"
        ".reg .b64 policy;\n"
        "createpolicy.fractional.L2::evict_last.b64 policy, 1.0;\n"
        "st.global.L2::cache_hint.v4.b32 [%0], { %1, %2, %3, %4}, policy;\n"
        "}" ::"l"(reinterpret_cast<Vector<T, N>*>(pointer) + i),
        "r"(words[0]),
        "r"(words[1]),
        "r"(words[2]),
        "r"(words[3])
        : "memory");
    return;
  }
#endif
  store(pointer, i, vector);
}
