// Parts of rows that take turns element by element: a thread reads and writes vectors of neighbours, which have
// elements of all parts.

#pragma once

#include "cache_hints.cuh"
#include "operand.h"
#include "pointwise.cuh"
#include "vector.cuh"

// An access of N elements of each of kParts parts that take turns: neighbours in memory.
template <typename T, int N, int kParts>
class Turns {
 public:
  static constexpr int kLength = elements_at_once<T>(N * kParts), kCount = N * kParts / kLength;

  __device__ T& at(int part, int k) { return vectors_[(k * kParts + part) / kLength][(k * kParts + part) % kLength]; }
  __device__ const T& at(int part, int k) const { return const_cast<Turns&>(*this).at(part, k); }

  // The i-th vector of neighbours.
  __device__ Vector<T, kLength>& vector(int i) { return vectors_[i]; }
  __device__ const Vector<T, kLength>& vector(int i) const { return vectors_[i]; }

 private:
  Vector<T, kLength> vectors_[kCount];
};

// The elements of all parts; zeros past the last element.
template <int N, typename Elements, typename Place, typename T, typename... Others>
__device__ Turns<T, N, 1 + sizeof...(Others)> read_turns(
    const Elements& elements, const Place& place, const Operand<T>& first, const Others&... others) {
  Turns<T, N, 1 + sizeof...(Others)> turns;
  if constexpr (Elements::kVectors) {
    const T* const from = address(first, elements, place);
    const bool is_valid = first.data && place.element + N <= elements.count();
#pragma unroll
    for (int i = 0; i < turns.kCount; ++i) {
      turns.vector(i) = load_evict_last<turns.kLength>(from, i, is_valid);
    }
  } else {
    int part = 0;
    const auto set = [&](const Vector<T, N>& values) {
#pragma unroll
      for (int k = 0; k < N; ++k) turns.at(part, k) = values[k];
      ++part;
    };
    set(read<N>(first, elements, place));
    (set(read<N>(others, elements, place)), ...);
  }
  return turns;
}

// The same for results.
template <int N, typename Elements, typename Place, typename T, typename... Others>
__device__ void write_turns(
    const Turns<T, N, 1 + sizeof...(Others)>& turns,
    const Elements& elements,
    const Place& place,
    const ResultPart<T>& first,
    const Others&... others) {
  if constexpr (Elements::kVectors) {
    T* const to = address(first, elements, place);
    if (place.element + N > elements.count()) return;
#pragma unroll
    for (int i = 0; i < turns.kCount; ++i) store_evict_last(to, i, turns.vector(i));
  } else {
    int part = 0;
    const auto write_part = [&](const ResultPart<T>& result) {
      Vector<T, N> values;
#pragma unroll
      for (int k = 0; k < N; ++k) values[k] = turns.at(part, k);
      write<N>(result, elements, place, values);
      ++part;
    };
    write_part(first);
    (write_part(others), ...);
  }
}

// The same of parts that take turns, of which rows have no numbers.
template <typename T, int N, int kParts>
class TurnsReader {
 public:
  __device__ TurnsReader(const Operand<T>& first, int64_t row, int64_t column, int64_t step, bool is_valid)
      : next_(first.data + row * first.strides[0] + column * kParts),
        step_(step * first.strides[0]),
        is_needed_(first.data) {
    load(is_valid);
  }

  __device__ Turns<T, N, kParts> next(bool is_valid) {
    Turns<T, N, kParts> turns = turns_;
#pragma unroll
    for (int i = 0; i < turns.kCount; ++i) forget_conversions(turns.vector(i));
    load(is_valid);
    return turns;
  }

 private:
  __device__ void load(bool is_valid) {
#pragma unroll
    for (int i = 0; i < turns_.kCount; ++i) {
      turns_.vector(i) = load_evict_last<Turns<T, N, kParts>::kLength>(next_, i, is_needed_ && is_valid);
    }
    next_ += step_;
  }

  const T* next_;
  int64_t step_;
  bool is_needed_;
  Turns<T, N, kParts> turns_;
};
