// How kernels read neighbours of elements.
//
// A block has a tile of the results: some accesses of each of some lines. Its threads read most lines more than once,
// the second time from the L1 cache. An access of N elements is a vector of the results. In a tensor it lies across two
// aligned vectors, mostly: a thread loads both (start_read), and shifts them when all its loads are in flight
// (finish_read).

#pragma once

#include "neighbours.h"
#include "pointwise.cuh"
#include "small_elements.cuh"

// An access of a tile. Those at the ends of a line may reach out of it; `has_line`: it is not past the last one.
struct TilePlace : SmallPlace {
  bool has_line;
};

// The elements of results as tiles. kAligned: vectors of all tensors are aligned as those of the results are, but for
// constant distances. kNumbers: some tensor has one number for all elements of a row.
template <bool kAligned, bool kNumbers>
class TiledElements {
 public:
  static constexpr int kElements = 0;

  // Accesses of N elements, for blocks of so many threads.
  TiledElements(const Rows& rows, int N, int threads)
      : lines_(static_cast<int>(rows.count)), columns_(static_cast<int>(rows.n)), dimensions_(rows.dimensions) {
    // A line's first element may be any of a vector's.
    const int accesses = columns_ % N == 0 ? columns_ / N : (columns_ + 2 * N - 2) / N;
    while (width_bits_ < kWidthBits && (1 << width_bits_) < accesses) ++width_bits_;
    height_ = threads >> width_bits_;
    by_across_ = Divisor((accesses + (1 << width_bits_) - 1) >> width_bits_);
    for (int d = 0; d < dimensions_; ++d) by_sizes_[d] = Divisor(static_cast<int>(rows.sizes[d]));
  }

  unsigned blocks() const { return by_across_.value() * ((lines_ + height_ - 1) / height_); }

  __device__ int columns() const { return columns_; }
  __device__ int lines() const { return by_sizes_[0].value(); }

  // A thread's access of N elements.
  template <int N>
  __device__ TilePlace place() const {
    const int block = blockIdx.x, down = by_across_.divide(block), across = block - down * by_across_.value();
    const int access = (across << width_bits_) + (threadIdx.x & ((1 << width_bits_) - 1));
    int row = down * height_ + (threadIdx.x >> width_bits_);
    TilePlace place;
    place.has_line = row < lines_;
    if (!place.has_line) row = 0;
    const int first = row * columns_;
    place.column = access * N - (kAligned ? 0 : first % N);
    place.element = first + place.column;
    place.set_row(row, dimensions_, by_sizes_);
    return place;
  }

 private:
  static constexpr int kWidthBits = kAligned ? 5 : 3;  // Where few accesses reach out of lines, as few warps have some.

  int lines_, columns_, dimensions_, width_bits_ = 0, height_;
  Divisor by_across_, by_sizes_[kRowDimensions];
};

// A thread's access.
template <int N, bool kAligned, bool kNumbers>
__device__ TilePlace place_of(const TiledElements<kAligned, kNumbers>& elements) {
  return elements.template place<N>();
}

template <int N, typename Elements>
__device__ auto place_of(const Elements& elements) {
  using Index = typename Elements::Index;
  return elements.place((static_cast<Index>(blockIdx.x) * blockDim.x + threadIdx.x) * N);
}

// The blocks of so many threads that each take an access.
template <bool kAligned, bool kNumbers>
unsigned blocks_of(const TiledElements<kAligned, kNumbers>& elements, const Rows&, int64_t) {
  return elements.blocks();
}

template <typename Elements>
unsigned blocks_of(const Elements&, const Rows& rows, int64_t threads) {
  return element_blocks(rows, threads);
}

// Whether accesses of N elements are aligned alike in all tensors and in the results, but for the distances.
template <int N, typename... Operands>
bool all_aligned(const Rows& rows, const Operands&... operands) {
  return rows.n % N == 0 && ((operands.vectors && operands.columns % N == 0) && ...);
}

// Whether accesses of N elements take less time than single ones.
template <int N, typename... Operands>
bool all_in_lines(const Rows& rows, const Operands&... operands) {
  return rows.n >= 2 * N && ((operands.step == 0 || operands.step == 1) && ...);
}

// Where a line of a tensor begins, from its first element on.
template <typename T>
__device__ int line_of(const BoundedOperand<T>& operand, const TilePlace& place, int line) {
  int offset = line * static_cast<int>(operand.strides[0]);
#pragma unroll
  for (int d = 1; d < kRowDimensions; ++d) offset += place.row.places[d] * static_cast<int>(operand.strides[d]);
  return offset;
}

// N elements of a tensor at any address, as vectors counted from the aligned one that its first element lies in.
template <int N, typename T>
struct UnalignedAccess {
  const T* origin;
  uint32_t vector;
  int by;          // the elements that the access lies past the beginning of that vector
  bool is_inside;  // whether all vectors that the access lies across have elements of the tensor alone

  __device__ UnalignedAccess(const BoundedOperand<T>& tensor, int offset) {
    const int before = static_cast<uint32_t>(reinterpret_cast<uintptr_t>(tensor.data)) / sizeof(T) % N;
    const uint32_t begin = before > 0, end = (before + static_cast<uint32_t>(tensor.extent)) / N;
    const uint32_t element = before + offset;  // One before the tensor is a large number.
    origin = tensor.data - before;
    vector = element / N;
    by = element % N;
    is_inside = vector >= begin && vector + (by > 0) < end;
  }

  __device__ Vector<T, N> load(int next, bool is_needed) const {
    return load_evict_last<N>(origin, int64_t(vector) + next, is_needed && is_inside);
  }
};

// An access on its way to registers: the aligned vectors that it lies across, or the number that all its elements are.
template <int N, typename T>
struct LoadedAccess {
  Vector<T, N> first = {}, second = {};
  T number = T();
};

// How far an element at such a distance lies past the beginning of a vector, if none is between.
template <int N>
constexpr int distance_in_vectors(int columns) {
  return (columns % N + N) % N;
}

// Starts the loads of an access: predicates, not branches, so that those of several operands are in flight at once.
template <int N, bool kAligned, bool kNumbers, typename T, int kLines, int kColumns, Reading kReading>
__device__ LoadedAccess<N, T> start_read(
    const Neighbour<T, kLines, kColumns, kReading>& tensor,
    const TiledElements<kAligned, kNumbers>& elements,
    const TilePlace& place) {
  const int row = tensor.line(place.row.places[0]), line = line_of(tensor, place, row);
  const bool is_needed = tensor.data && place.has_line && place.column < elements.columns() && tensor.has_line(row);
  const bool is_number = kNumbers && tensor.step == 0;
  LoadedAccess<N, T> loaded;
  if constexpr (kAligned) {
    constexpr int kBy = distance_in_vectors<N>(kColumns);
    const T* const from = tensor.data + line;
    const int first = tensor.template first_column<N>(place.column, kBy);
    loaded.first = load_evict_last<N>(from + first, 0, is_needed && !is_number && tensor.has_column(first));
    if constexpr (kBy > 0) {
      const int second = tensor.template first_column<N>(place.column, kBy - N);
      loaded.second = load_evict_last<N>(from + second, 0, is_needed && !is_number && tensor.has_column(second));
    }
  } else {
    const UnalignedAccess<N, T> access(tensor, line + tensor.template first_column<N>(place.column));
    loaded.first = access.load(0, is_needed && !is_number);
    loaded.second = access.load(1, is_needed && !is_number && access.by > 0);
  }
  if (is_number && is_needed) loaded.number = tensor.data[line];
  return loaded;
}

// The elements of an access: zeros where the tensor has none.
template <int N, bool kAligned, bool kNumbers, typename T, int kLines, int kColumns, Reading kReading>
__device__ Vector<T, N> finish_read(
    const LoadedAccess<N, T>& loaded,
    const Neighbour<T, kLines, kColumns, kReading>& tensor,
    const TiledElements<kAligned, kNumbers>& elements,
    const TilePlace& place) {
  const bool is_number = kNumbers && tensor.step == 0;
  if constexpr (kAligned) {
    constexpr int kBy = distance_in_vectors<N>(kColumns);
    Vector<T, N> first = loaded.first, second = loaded.second;
    if (is_number) {
      const int first_column = tensor.template first_column<N>(place.column, kBy);
      const int second_column = tensor.template first_column<N>(place.column, kBy - N);
      first = repeated<N>(tensor.has_column(first_column) ? loaded.number : T());
      second = repeated<N>(tensor.has_column(second_column) ? loaded.number : T());
    }
    const Vector<T, N> values = kBy ? shifted(first, second, kBy) : first;
    return tensor.kFlipsColumns ? reversed(values) : values;
  }
  const int row = tensor.line(place.row.places[0]), line = line_of(tensor, place, row);
  const int column = tensor.template first_column<N>(place.column);
  const UnalignedAccess<N, T> access(tensor, line + column);
  Vector<T, N> values = shifted(loaded.first, loaded.second, access.by);
  if constexpr (tensor.kFlipsColumns) values = reversed(values);
  if (is_number) values = repeated<N>(loaded.number);
  const bool is_loaded = is_number || access.is_inside;
  if (is_loaded && column >= 0 && column + N <= tensor.columns) return values;
  // At an end of the line.
  const bool is_needed = tensor.data && place.has_line && tensor.has_line(row);
  if (is_needed && !is_number && (tensor.kWraps || !is_loaded)) {
#pragma unroll
    for (int k = 0; k < N; ++k) {
      const int other = tensor.column(place.column + k);
      if (tensor.has_column(other)) values[k] = tensor.data[line + other];
    }
  }
#pragma unroll
  for (int k = 0; k < N; ++k) {
    if (!is_needed || !tensor.has_column(tensor.column(place.column + k))) values[k] = T();
  }
  forget_conversions(values);  // So that this stays a branch, which few threads take.
  return values;
}

// Where accesses are single elements there is nothing to shift: zeros where the tensor has none, and past the last one.
template <int N, typename Elements, typename Place, typename T, int kLines, int kColumns, Reading kReading>
__device__ Vector<T, N> start_read(
    const Neighbour<T, kLines, kColumns, kReading>& tensor, const Elements& elements, const Place& place) {
  static_assert(N == 1);
  const int64_t line = tensor.line(place.row.places[0]), column = tensor.column(place.column);
  const T* const from = address(static_cast<const Operand<T>&>(tensor), elements, place) +
                        (line - place.row.places[0]) * tensor.strides[0] + (column - place.column) * tensor.step;
  const bool is_needed = tensor.data && place.element < elements.count();
  return is_needed && tensor.has_line(line) && tensor.has_column(column) ? Vector<T, N>{*from} : Vector<T, N>{};
}

template <int N, typename Elements, typename Place, typename Tensor, typename T>
__device__ Vector<T, N> finish_read(const Vector<T, N>& loaded, const Tensor&, const Elements&, const Place&) {
  return loaded;
}

// Results of an access, as far as it has any.
template <int N, typename T, bool kAligned, bool kNumbers>
__device__ void write_at(
    T* results, const TiledElements<kAligned, kNumbers>& elements, const TilePlace& place, const Vector<T, N>& values) {
  if (!place.has_line) return;
  if (place.column >= 0 && place.column + N <= elements.columns()) {
    store_evict_last(results + place.element, 0, values);
  } else if constexpr (!kAligned) {
#pragma unroll
    for (int k = 0; k < N; ++k) {
      if (place.column + k >= 0 && place.column + k < elements.columns()) results[place.element + k] = values[k];
    }
  }
}

template <int N, typename Elements, typename Place, typename T>
__device__ void write_at(T* results, const Elements& elements, const Place& place, const Vector<T, N>& values) {
  write<N>(results, elements, place.element, values);
}
