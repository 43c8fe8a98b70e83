// Kernels that compute each element by itself, from tensors that are broadcast to one shape: which elements a thread
// takes, and how it reads and writes them.
//
// An access is N neighbouring elements of the results, which lie contiguously. A tensor that lies as they do is read by
// vectors of N elements; so is one whose rows do, where no access crosses a row's end.

#pragma once

#include <algorithm>
#include <limits>

#include "accumulate.cuh"
#include "cache_hints.cuh"
#include "divisor.cuh"
#include "gradient_sums.cuh"
#include "operand.h"
#include "vector.cuh"
#include "widen.cuh"

// Elements of tensors that all lie as the results do.
class FlatElements {
 public:
  static constexpr bool kVectors = true;
  static constexpr int kElements = 0;
  template <typename T>
  using Tensor = const T*;

  explicit FlatElements(const Rows& rows) : count_(rows.count * rows.n) {}

  __device__ int64_t count() const { return count_; }
  __device__ int64_t place(int64_t element) const { return element; }

 private:
  int64_t count_;
};

template <typename T>
__device__ const T* address(const T* tensor, const FlatElements&, int64_t element) {
  return tensor + element;
}

// The N elements from `element` on; zeros past the last access.
template <int N, typename T>
__device__ Vector<T, N> read(const T* tensor, const FlatElements& elements, int64_t element) {
  return load_evict_last<N>(tensor + element, 0, tensor && element + N <= elements.count());
}

// An element of the results, and where its row and column are in the tensors.
struct Place {
  int64_t element = 0;
  int64_t column = 0;
  RowIndex row;
};

// All elements of the results, and the way from an element's number to its place. kVectors_: an access is a vector of
// each tensor, or a single number of it.
template <bool kVectors_>
class BroadcastElements {
 public:
  static constexpr bool kVectors = kVectors_;
  static constexpr int kElements = kVectors ? 0 : 1;  // of an access; 0: of 16 bytes
  using Index = int64_t;
  template <typename T>
  using Tensor = Operand<T>;

  explicit BroadcastElements(const Rows& rows)
      : count_(rows.count * rows.n),
        columns_(rows.n),
        dimensions_(rows.dimensions),
        is_narrow_(count_ <= std::numeric_limits<int>::max()) {
    if (is_narrow_) by_columns_ = Divisor(static_cast<int>(rows.n));
    for (int d = 0; d < dimensions_; ++d) {
      sizes_[d] = rows.sizes[d];
      if (is_narrow_) by_sizes_[d] = Divisor(static_cast<int>(rows.sizes[d]));
    }
  }

  __device__ int64_t count() const { return count_; }
  __device__ int64_t columns() const { return columns_; }
  __device__ int64_t lines() const { return sizes_[0]; }
  __device__ int dimensions() const { return dimensions_; }

  __device__ Place place(int64_t element) const {
    Place place;
    place.element = element;
    int64_t row = divide(element, columns_, by_columns_);
    place.column = element - row * columns_;
    place.row.places[0] = row;
    if (dimensions_ > 1) {
#pragma unroll
      for (int d = 0; d + 1 < kRowDimensions; ++d) {
        if (d + 1 < dimensions_) {
          const int64_t next = divide(row, sizes_[d], by_sizes_[d]);
          place.row.places[d] = row - next * sizes_[d];
          place.row.places[d + 1] = row = next;
        }
      }
    }
    return place;
  }

  // Of rows of one dimension.
  __device__ Place place(int64_t row, int64_t column) const {
    Place place;
    place.element = row * columns_ + column;
    place.column = column;
    place.row.places[0] = row;
    return place;
  }

  // Moves a place on to the next element.
  __device__ void advance(Place& place) const {
    ++place.element;
    if (++place.column < columns_) return;
    place.column = 0;
    ++place.row.places[0];
    if (dimensions_ > 1) {
#pragma unroll
      for (int d = 0; d + 1 < kRowDimensions; ++d) {
        if (d + 1 >= dimensions_ || place.row.places[d] < sizes_[d]) break;
        place.row.places[d] = 0;
        ++place.row.places[d + 1];
      }
    }
  }

 private:
  __device__ int64_t divide(int64_t number, int64_t by, const Divisor& divisor) const {
    return is_narrow_ ? divisor.divide(static_cast<int>(number)) : number / by;
  }

  int64_t count_, columns_;
  int64_t sizes_[kRowDimensions] = {};
  int dimensions_;
  bool is_narrow_;
  Divisor by_columns_, by_sizes_[kRowDimensions];
};

// Where a tensor's element at a place lies, from its first one on.
template <bool kVectors, typename T>
__device__ int64_t
offset_of(const Operand<T>& operand, const BroadcastElements<kVectors>& elements, const Place& place) {
  if (operand.flat) return place.element;
  int64_t offset = place.column * operand.step + place.row.places[0] * operand.strides[0];
  if (elements.dimensions() > 1) {
#pragma unroll
    for (int d = 1; d < kRowDimensions; ++d) {
      offset += place.row.places[d] * operand.strides[d];
    }
  }
  return offset;
}

// A tensor's element at a place.
template <bool kVectors, typename T>
__device__ const T* address(
    const Operand<T>& operand, const BroadcastElements<kVectors>& elements, const Place& place) {
  return operand.data + offset_of(operand, elements, place);
}

// The same of a part of a result.
template <bool kVectors, typename T>
__device__ T* address(const ResultPart<T>& part, const BroadcastElements<kVectors>& elements, const Place& place) {
  return part.values + offset_of(part, elements, place);
}

// The elements of an access, which begins at a place, that is a vector, or one number of all; zeros past the last one.
template <int N, typename T>
__device__ Vector<T, N> read_vector(const T* from, bool is_valid, bool is_number) {
  // Predicates, not branches: where a branch ends, the thread would wait for the load.
  Vector<T, N> values = load_evict_last<N>(from, 0, is_valid && !is_number);
  const T number = is_valid && is_number ? *from : T();
#pragma unroll
  for (int k = 0; k < N; ++k) {
    if (is_number) values[k] = number;
  }
  return values;
}

// The elements of an access that begins at a place; zeros past the last element.
template <int N, bool kVectors, typename T>
__device__ Vector<T, N> read(
    const Operand<T>& operand, const BroadcastElements<kVectors>& elements, const Place& place) {
  const int64_t left = elements.count() - place.element;
  if constexpr (kVectors) {
    return read_vector<N>(address(operand, elements, place), operand.data && left >= N, operand.step == 0);
  } else {
    Vector<T, N> values{};
    if (!operand.data) return values;
    const T* const from = operand.data + place.element;
    if (operand.flat && left >= N && reinterpret_cast<uintptr_t>(from) % sizeof(values) == 0) {
      return load_evict_last<N>(from, 0);
    }
    Place next = place;
#pragma unroll
    for (int k = 0; k < N; ++k) {
      if (k < left) values[k] = *address(operand, elements, next);
      elements.advance(next);
    }
    return values;
  }
}

// A single element; 0 of a tensor that is not needed.
template <typename T, typename Elements, typename Place>
__device__ T element_at(const Operand<T>& operand, const Elements& elements, const Place& place) {
  return operand.data ? *address(operand, elements, place) : T();
}

template <typename T>
__device__ T element_at(const T* tensor, const FlatElements&, int64_t element) {
  return tensor ? tensor[element] : T();
}

// The same for results.
template <int N, typename Elements, typename Index, typename T>
__device__ void write(T* results, const Elements& elements, Index element, const Vector<T, N>& values) {
  const Index left = elements.count() - element;
  if (left >= N) {
    store_evict_last(results + element, 0, values);
  } else if constexpr (!Elements::kVectors) {
#pragma unroll
    for (int k = 0; k < N; ++k) {
      if (k < left) results[element + k] = values[k];
    }
  }
}

// The same for a part of the rows of results, from a place on.
template <int N, bool kVectors, typename T>
__device__ void write(
    const ResultPart<T>& part,
    const BroadcastElements<kVectors>& elements,
    const Place& place,
    const Vector<T, N>& values) {
  const int64_t left = elements.count() - place.element;
  if constexpr (kVectors) {
    if (left >= N) store_evict_last(address(part, elements, place), 0, values);
  } else {
    Place next = place;
#pragma unroll
    for (int k = 0; k < N; ++k) {
      if (k < left) *address(part, elements, next) = values[k];
      elements.advance(next);
    }
  }
}

// Where the elements are no multiple of N, and an access is all or nothing, the first threads take one of the last
// elements each.
template <int N, typename Elements>
__device__ bool has_rest(const Elements& elements) {
  return Elements::kVectors && blockIdx.x == 0 && threadIdx.x < elements.count() % N;
}

// The blocks that take so many elements each.
inline unsigned element_blocks(const Rows& rows, int64_t elements) {
  return static_cast<unsigned>((rows.count * rows.n + elements - 1) / elements);
}

// ---- Gradients that are sums over the rows ---------------------------------------------------------------------
//
// A block has a thread for each access of some columns, and such threads for several rows; it goes down the rows and
// writes a row of partial sums of its own.

// Threads of a block along the columns and along the rows, and blocks likewise.
struct SumGrid {
  dim3 threads, blocks;

  // `resident`: blocks that a multiprocessor holds at once.
  SumGrid(int64_t rows, int64_t accesses, int resident) {
    const int width = sum_width(accesses);
    threads = dim3(width, kSumThreads / width);
    blocks = dim3((accesses + width - 1) / width, sum_rows(rows, accesses, resident));
  }
};

// An access of the same columns of rows that are `step` apart. The next row's is in flight while one is computed with.
// kNumbers: a row may have one number for all its elements.
template <typename T, int N, bool kNumbers>
class RowsReader {
 public:
  __device__ RowsReader(const Operand<T>& operand, int64_t row, int64_t column, int64_t step, bool is_valid)
      : next_(operand.data + row * operand.strides[0] + column * operand.step),
        step_(step * operand.strides[0]),
        is_needed_(operand.data),
        is_number_(kNumbers && operand.step == 0) {
    load(is_valid);
  }

  // The access of this row; starts to load the next one, or zeros.
  __device__ Vector<T, N> next(bool is_valid) {
    Vector<T, N> values = values_;
    if (is_number_) {
#pragma unroll
      for (int k = 0; k < N; ++k) values[k] = number_;
    }
    forget_conversions(values);  // Packed, so that the choice is one of four registers.
    load(is_valid);
    return values;
  }

 private:
  // Predicates, not branches: where a branch ends, the thread would wait for the load.
  __device__ void load(bool is_valid) {
    values_ = load_evict_last<N>(next_, 0, is_needed_ && is_valid && !is_number_);
    if constexpr (kNumbers) number_ = is_needed_ && is_valid && is_number_ ? *next_ : T();
    next_ += step_;
  }

  const T* next_;
  int64_t step_;
  bool is_needed_, is_number_;
  Vector<T, N> values_;
  T number_{};
};

// A thread's sums of the columns of an access, in shared memory: registers are for what is in flight.
template <typename T>
class ColumnTotals {
 public:
  using Number = accumulate_t<T>;
  static constexpr int N = kOperandVector<T>, kLength = kVectorLength<Number>, kParts = N / kLength;
  using Part = Vector<Number, kLength>;

  __device__ void clear() {
#pragma unroll
    for (int part = 0; part < kParts; ++part) parts_[part][thread()] = {};
  }

  // Of an access in parts of kLength elements.
  __device__ void add(int part, const Part& numbers) {
    Part sums = parts_[part][thread()];
    sums += numbers;
    parts_[part][thread()] = sums;
  }

  // Adds up what the block's threads have of the same columns, and writes it to the block's row of partial sums. All
  // threads of the block take part.
  __device__ void write(const Gradient<T>& gradient, int64_t columns) const {
    const int64_t access = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
    __syncthreads();
    if (threadIdx.y != 0 || access * N >= columns) return;
#pragma unroll
    for (int part = 0; part < kParts; ++part) {
      Part total = parts_[part][threadIdx.x];
      for (int y = 1; y < blockDim.y; ++y) total += parts_[part][y * blockDim.x + threadIdx.x];
      store(gradient.partial + blockIdx.y * gradient.partial_stride, access * kParts + part, total);
    }
  }

 private:
  __device__ static int thread() { return threadIdx.y * blockDim.x + threadIdx.x; }

  Part parts_[kParts][kSumThreads];
};
