// Loads and stores of 16 bytes for kernels that read and write every element once: loads take no room in the L1 cache,
// and both are one instruction always.

#pragma once

#include "vector.cuh"

// The i-th group of N elements, or `vector` if not `valid`. The pointer must be aligned to the group's size.
template <int N, typename T>
__device__ Vector<T, N> load_streamed(const T* pointer, int64_t i, bool valid = true, Vector<T, N> vector = {}) {
#ifdef __CUDA_ARCH__
  if constexpr (sizeof(vector) == kVectorBytes) {
    // A predicate, not a branch: where a branch ends, the thread would wait for the load.
    auto* const words = reinterpret_cast<uint32_t*>(&vector);
    asm volatile(
        "{\n"
        ".reg .pred valid;\n"
        "setp.ne.s32 valid, %5, 0;\n"
        "@valid ld.global.L1::no_allocate.v4.b32 { %0, %1, %2, %3}, [%4];\n"
        "}"
        : "+r"(words[0]), "+r"(words[1]), "+r"(words[2]), "+r"(words[3])
        : "l"(reinterpret_cast<const Vector<T, N>*>(pointer) + i), "r"(int(valid)));
    return vector;
  }
#endif
  if (valid) {
    vector = load<N>(pointer, i);
  }
  return vector;
}

// The compiler may merge a plain store with the single-element stores of another branch, and split it.
template <int N, typename T>
__device__ void store_streamed(T* pointer, int64_t i, const Vector<T, N>& vector) {
#ifdef __CUDA_ARCH__
  if constexpr (sizeof(vector) == kVectorBytes) {
    const auto* const words = reinterpret_cast<const uint32_t*>(&vector);
    asm volatile("st.global.v4.b32 [%0], { %1, %2, %3, %4};" ::"l"(reinterpret_cast<Vector<T, N>*>(pointer) + i),
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
