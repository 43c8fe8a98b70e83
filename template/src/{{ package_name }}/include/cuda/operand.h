// Tensors that are broadcast to one shape, as rows with strides. Plain C++: the CPU's kernels use it too.

#pragma once

#include <cstdint>
#include <limits>

#ifdef __CUDACC__
#define OPERAND_FUNCTION __host__ __device__ inline
#else
#define OPERAND_FUNCTION inline
#endif

// The most dimensions that rows may have beside their own. Neighbours that lie alike in all tensors count as one.
constexpr int kRowDimensions = 6;

// The elements of type T that a vector holds: an access of 16 bytes.
template <typename T>
constexpr int kOperandVector = 16 / sizeof(T);

// The shape that all tensors are broadcast to: `count` rows of n elements.
struct Rows {
  int64_t count = 1;
  int64_t n = 1;
  int64_t inner = 1;                   // elements of a row that lie evenly: n, or fewer where a row has two dimensions
  int64_t batch = 1;                   // the size of the shape's first dimension
  int64_t lines = 1;                   // that of the dimension before the last
  int dimensions = 0;                  // of the rows
  int64_t sizes[kRowDimensions] = {};  // the innermost first
};

// How the last dimension of a tensor is cut into parts of equal sizes: they lie one after the other, or take turns
// element by element.
struct Cut {
  static constexpr bool kInTurns = true;

  int64_t parts = 1;
  bool in_turns = false;
};

// The place of a row along each dimension of the rows.
struct RowIndex {
  int64_t places[kRowDimensions] = {};
  int dimensions = 0;

  RowIndex() = default;

  // Of rows that lie evenly, in no dimension or in one.
  OPERAND_FUNCTION explicit RowIndex(int64_t row) { places[0] = row; }

  OPERAND_FUNCTION RowIndex(const Rows& rows, int64_t row) : dimensions(rows.dimensions) {
    places[0] = row;
    if (dimensions <= 1) return;  // So it is of most tensors: there is no division, and no branch for each dimension.
    for (int d = 0; d < kRowDimensions; ++d) {
      if (d + 1 < dimensions) {
        const int64_t next = row / rows.sizes[d];
        places[d] = row - next * rows.sizes[d];
        row = next;
      } else if (d < dimensions) {
        places[d] = row;
      }
    }
  }
};

// A tensor as the rows see it.
template <typename T>
struct Operand {
  const T* data = nullptr;
  int64_t step = 0;                      // between neighbouring elements of a row; 0 where they are one number
  int64_t outer_step = 0;                // between the row's parts of rows.inner elements
  int64_t strides[kRowDimensions] = {};  // between rows
  bool vectors = false;                  // whether rows can be read by vectors, or are one number each
  bool narrow = false;                   // the same of narrow vectors: see kNarrow
  bool small = false;                    // whether offsets of all elements fit 32 bits
  bool flat = false;                     // whether the elements lie one after the other, as those of a result do

  OPERAND_FUNCTION const T* row(const RowIndex& index) const {
    const T* pointer = data + index.places[0] * strides[0];
    if (index.dimensions <= 1) return pointer;
    for (int d = 1; d < kRowDimensions; ++d) {
      pointer += index.places[d] * strides[d];
    }
    return pointer;
  }

  // Where element i of a row lies, from the row's first one on.
  OPERAND_FUNCTION int64_t offset(const Rows& rows, int64_t i) const {
    if (rows.inner == rows.n) return i * step;
    const int64_t part = i / rows.inner;
    return part * outer_step + (i - part * rows.inner) * step;
  }
};

// A tensor of which neighbours of elements are read.
template <typename T>
struct BoundedOperand : Operand<T> {
  int64_t lines = 0, columns = 0;  // along its last two dimensions
  int64_t extent = 0;              // from its first element to one past the last
};

// A part of the rows of a result, which is written: an operand as far as it lies.
template <typename T>
struct ResultPart : Operand<T> {
  T* values = nullptr;  // the part's first element; null: not wanted

  // The element `first` of a row; null: not wanted.
  OPERAND_FUNCTION T* row_from(const RowIndex& index, int64_t first) const {
    return values ? values + (Operand<T>::row(index) - Operand<T>::data) + first * Operand<T>::step : nullptr;
  }
};

// Whether all operands can be read by vectors of N elements.
template <int N, typename... Operands>
bool all_vectors(const Rows& rows, const Operands&... operands) {
  return (rows.count == 1 || rows.n % N == 0) && (operands.vectors && ...);
}

// How many elements of each part a narrow access has: two, or one of each part that takes turns.
template <bool kInTurns>
constexpr int kNarrow = kInTurns ? 1 : 2;

// Whether all operands can be read by narrow vectors of N elements.
template <int N, typename... Operands>
bool all_narrow(const Rows& rows, const Operands&... operands) {
  return (rows.count == 1 || rows.n % N == 0) && (operands.narrow && ...);
}

// Whether 32 bits number all elements, of all operands; with room for those that the last block has no more.
template <typename... Operands>
bool all_small(const Rows& rows, const Operands&... operands) {
  return rows.count * rows.n <= std::numeric_limits<int>::max() - (1 << 20) && (operands.small && ...);
}

// How many elements at once reach those of an access of N elements of each of some parts that take turns: a power of 2,
// as many as fill 16 bytes or fewer.
template <typename T>
OPERAND_FUNCTION constexpr int elements_at_once(int elements) {
  int length = 1;
  while (length < kOperandVector<T> && elements % (2 * length) == 0) length *= 2;
  return length;
}

// Whether all operands lie as the results do.
template <typename... Operands>
bool all_flat(const Operands&... operands) {
  return (operands.flat && ...);
}

// Whether some operand has one number for all elements of a row.
template <typename... Operands>
bool any_numbers(const Operands&... operands) {
  return ((operands.step == 0) || ...);
}
