// Loads and stores of several elements at once: 16 bytes a thread is the widest a GPU moves in one instruction.

#pragma once

#include <cstdint>

constexpr int kVectorBytes = 16;

// How many elements of type T fill one 16-byte access.
template <typename T>
constexpr int kVectorLength = kVectorBytes / sizeof(T);

template <typename T, int N>
struct alignas(sizeof(T) * N) Vector {
  T values[N];

  __device__ T& operator[](int i) { return values[i]; }
  __device__ const T& operator[](int i) const { return values[i]; }
};

// The i-th group of N elements. The pointer must be aligned to the group's size.
template <int N, typename T>
__device__ Vector<T, N> load(const T* pointer, int64_t i) {
  return reinterpret_cast<const Vector<T, N>*>(pointer)[i];
}

template <int N, typename T>
__device__ void store(T* pointer, int64_t i, const Vector<T, N>& vector) {
  reinterpret_cast<Vector<T, N>*>(pointer)[i] = vector;
}

// True if every pointer can be read 16 bytes at a time. A view that starts inside its storage may not be.
template <typename... Pointers>
bool vector_aligned(const Pointers*... pointers) {
  return ((reinterpret_cast<uintptr_t>(pointers) % kVectorBytes == 0) && ...);
}
