// How kernels as those of small_elements.cuh read neighbours of elements.

#pragma once

#include "pointwise.cuh"
#include "shifted.h"
#include "small_elements.cuh"

// The elements of an access that begins at a place: zeros where the tensor has none, and past the last element. Those
// of another line are a vector as the line's own are; those of other columns are read one by one, mostly from the
// cache.
template <int N, typename Elements, typename Place, typename T, int kLines, int kColumns, bool kWraps>
__device__ Vector<T, N> read(
    const Shifted<T, kLines, kColumns, kWraps>& tensor, const Elements& elements, const Place& place) {
  const int64_t line = tensor.line(place.row.places[0]), left = elements.count() - place.element;
  const bool is_needed = tensor.data && tensor.has_line(line);
  const Operand<T>& operand = tensor;
  const T* const from = address(operand, elements, place) + (line - place.row.places[0]) * tensor.strides[0];
  if constexpr (Elements::kVectors && kColumns == 0) {
    if (place.column + N <= tensor.columns) return read_vector<N>(from, is_needed && left >= N, tensor.step == 0);
  }
  Vector<T, N> values{};
#pragma unroll
  for (int k = 0; k < N; ++k) {
    const int64_t column = tensor.column(place.column + k);
    if (is_needed && k < left && tensor.has_column(column)) values[k] = from[(column - place.column) * tensor.step];
  }
  return values;
}

// A single element.
template <typename T, int kLines, int kColumns, bool kWraps, typename Elements, typename Place>
__device__ T
element_at(const Shifted<T, kLines, kColumns, kWraps>& tensor, const Elements& elements, const Place& place) {
  return read<1>(tensor, elements, place)[0];
}
