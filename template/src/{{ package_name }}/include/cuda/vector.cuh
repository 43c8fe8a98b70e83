// Loads and stores of several elements at once: up to 16 bytes, the widest access of one instruction.

#pragma once

#include <cstdint>
#include <cstring>

constexpr int kVectorBytes = 16;

// How many elements of type T fill one 16-byte access.
template <typename T>
constexpr int kVectorLength = kVectorBytes / sizeof(T);

template <typename T, int N>
struct alignas(sizeof(T) * N) Vector {
  T values[N];

  __device__ T& operator[](int i) { return values[i]; }
  __device__ const T& operator[](int i) const { return values[i]; }

  __device__ Vector& operator+=(const Vector& other) {
#pragma unroll
    for (int i = 0; i < N; ++i) {
      values[i] += other[i];
    }
    return *this;
  }

  __device__ Vector& operator*=(T factor) {
#pragma unroll
    for (int i = 0; i < N; ++i) {
      values[i] *= factor;
    }
    return *this;
  }

  __device__ Vector& operator*=(const Vector& other) {
#pragma unroll
    for (int i = 0; i < N; ++i) {
      values[i] *= other[i];
    }
    return *this;
  }
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

// The i-th group of N elements, or N times `otherwise` where the pointer is null (an optional argument).
template <int N, typename T>
__device__ Vector<T, N> load_or(const T* pointer, int64_t i, float otherwise) {
  if (pointer) {
    return load<N>(pointer, i);
  }
  Vector<T, N> result;
#pragma unroll
  for (int k = 0; k < N; ++k) {
    result[k] = static_cast<T>(otherwise);
  }
  return result;
}

// N times a value.
template <int N, typename T>
__device__ Vector<T, N> repeated(T value) {
  Vector<T, N> result;
  if constexpr (sizeof(T) == 2 && N % 2 == 0) {
    uint16_t bits;
    memcpy(&bits, &value, sizeof(bits));
#pragma unroll
    for (int i = 0; i < N / 2; ++i) reinterpret_cast<uint32_t*>(&result)[i] = bits * 0x10001u;
  } else {
#pragma unroll
    for (int k = 0; k < N; ++k) result[k] = value;
  }
  return result;
}

// The elements in the other order.
template <typename T, int N>
__device__ __forceinline__ Vector<T, N> reversed(const Vector<T, N>& values) {
  Vector<T, N> result;
#pragma unroll
  for (int k = 0; k < N; ++k) result[k] = values[N - 1 - k];
  return result;
}

// Elements `by` to `by + N - 1` of two vectors in a row; 0 <= by < N.
template <typename T, int N>
__device__ __forceinline__ Vector<T, N> shifted(const Vector<T, N>& first, const Vector<T, N>& second, int by) {
  if constexpr (N == 1) return first;
  if constexpr (sizeof(first) < 4) {
    Vector<T, N> few;
#pragma unroll
    for (int k = 0; k < N; ++k) {
      few[k] = T();
#pragma unroll
      for (int other = 0; other < 2 * N; ++other) {
        if (k + by == other) few[k] = other < N ? first[other] : second[other - N];
      }
    }
    return few;
  }
  constexpr int kWords = sizeof(first) < 4 ? 1 : sizeof(first) / 4;
  uint32_t words[2 * kWords];
#pragma unroll
  for (int i = 0; i < kWords; ++i) {
    words[i] = reinterpret_cast<const uint32_t*>(&first)[i];
    words[kWords + i] = reinterpret_cast<const uint32_t*>(&second)[i];
  }
  const int bytes = by * sizeof(T);
#pragma unroll
  for (int step = kWords / 2; step > 0; step /= 2) {
    const bool moved = bytes & (4 * step);
#pragma unroll
    for (int i = 0; i + step < 2 * kWords; ++i) {
      words[i] = moved ? words[i + step] : words[i];
    }
  }
  Vector<T, N> result;
#pragma unroll
  for (int i = 0; i < kWords; ++i) {
    const uint32_t word = sizeof(T) < 4 ? __funnelshift_r(words[i], words[i + 1], 8 * (bytes % 4)) : words[i];
    reinterpret_cast<uint32_t*>(&result)[i] = word;
  }
  return result;
}

// Makes the compiler convert the elements again at their next use, instead of keeping earlier conversions in registers:
// 16-bit elements would take twice as many.
template <typename T, int N>
__device__ void forget_conversions(Vector<T, N>& vector) {
  if constexpr (sizeof(T) < 4 && sizeof(vector) % 4 == 0) {
#pragma unroll
    for (int i = 0; i < static_cast<int>(sizeof(vector) / 4); ++i) {
      asm volatile("" : "+r"(reinterpret_cast<uint32_t*>(&vector)[i]));
    }
  }
}

// Makes the compiler compute an address here and keep it, instead of computing it again at every use.
template <typename T>
__device__ void compute_here(T*& pointer) {
  asm volatile("" : "+l"(pointer));
}

// Whether every pointer can be read 16 bytes at a time. A view that starts inside its storage may not be aligned.
template <typename... Pointers>
bool vector_aligned(const Pointers*... pointers) {
  return ((reinterpret_cast<uintptr_t>(pointers) % kVectorBytes == 0) && ...);
}
