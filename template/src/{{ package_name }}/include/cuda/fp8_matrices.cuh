// Quantises matrices by tiles: where a block of a matrix shares a scale, or the transpose is written as well. A kernel
// takes the steps at the end, and is launched by `launch_tiles`.

#pragma once

#include <cuda_runtime_api.h>

#include <limits>
#include <type_traits>

#include "cache_hints.cuh"
#include "ceil_div.h"
#include "float_types.cuh"
#include "fp8.cuh"
#include "fp8_matrices.h"
#include "fp8_rows.cuh"
#include "reduce.cuh"
#include "registers.cuh"
#include "thread_group.cuh"
#include "vector.cuh"
#include "widen.cuh"

namespace fp8 {

// A tile is a block of a matrix. A thread has kSide rows of kSide columns of it: its column of threads the rows, its
// row of kAcross threads, half a warp, the columns.
constexpr int kTile = kGroupLength, kSide = 8, kAcross = kTile / kSide, kTileThreads = kAcross * kAcross;

// What of a tile's elements, from a thread's first on, is inside of the matrix: kSide rows and columns or fewer.
struct Extent {
  int height, width;

  __device__ Extent(int64_t rows, int64_t columns)
      : height(static_cast<int>(rows < kSide ? rows : kSide)),
        width(static_cast<int>(columns < kSide ? columns : kSide)) {}
};

// A register of elements: two of 16 bits, or one.
template <typename T>
struct Lanes {
  static constexpr int kCount = sizeof(uint32_t) / sizeof(T);

  static __device__ Vector<float, kCount> values(uint32_t elements) {
    return widen(reinterpret_cast<const Vector<T, kCount>&>(elements));
  }

  static __device__ uint32_t magnitudes(uint32_t elements) {
    return elements & (kCount == 2 ? 0x7fff7fff : 0x7fffffff);
  }

  // Of two registers of magnitudes, the larger ones by place: their bits are in the order of the numbers.
  static __device__ uint32_t larger(uint32_t a, uint32_t b) { return kCount == 2 ? __vmaxu2(a, b) : max(a, b); }

  // The magnitude at a place, as the bits of a float32.
  static __device__ uint32_t at(uint32_t magnitudes, int place) {
    const Vector<float, kCount> all = values(magnitudes);
    return __float_as_uint(place == 0 ? all[0] : all[kCount - 1]);
  }

  static __device__ uint32_t largest(uint32_t magnitudes) { return max(at(magnitudes, 0), at(magnitudes, kCount - 1)); }
};

// A thread's part of a tile, as loaded: zeros outside of the matrix. It is kept as registers, however it was loaded:
// the compiler would give each 16-bit element one.
template <typename T>
struct Part {
  using Lanes = fp8::Lanes<T>;
  static constexpr int kWords = kSide / Lanes::kCount;
  uint32_t words[kSide][kWords];

  __device__ Part(const T* first, int64_t stride, const Extent& extent, bool in_vectors) {
    // All of the loads are in flight before the branch ends.
    if (in_vectors) {
      load_vectors(first, stride, extent);
    } else {
      load_elements(first, stride, extent);
    }
  }

  __device__ Vector<float, kSide> row(int i) const {
    Vector<float, kSide> values;
#pragma unroll
    for (int k = 0; k < kSide; ++k) values[k] = value(i, k);
    return values;
  }

  __device__ Vector<float, kSide> column(int k) const {
    Vector<float, kSide> values;
#pragma unroll
    for (int i = 0; i < kSide; ++i) values[i] = value(i, k);
    return values;
  }

  // Makes the compiler compute magnitudes and float32 values again at their next use: kept, they take as many registers
  // as the elements, or twice as many. Those of bfloat16 are a shift, which it does not keep.
  __device__ void forget_conversions() {
    if constexpr (std::is_same_v<T, bfloat16>) return;
#pragma unroll
    for (int i = 0; i < kSide; ++i) {
#pragma unroll
      for (int word = 0; word < kWords; ++word) asm volatile("" : "+r"(words[i][word]));
    }
  }

  // The same with zeros in the place of infinity and NaN.
  __device__ Part finite() const {
    Part part = *this;
#pragma unroll
    for (int i = 0; i < kSide; ++i) {
#pragma unroll
      for (int word = 0; word < kWords; ++word) {
        const uint32_t magnitudes = Lanes::magnitudes(words[i][word]);
        if constexpr (std::is_same_v<T, float16>) {
          part.words[i][word] &= __vcmpltu2(magnitudes, 0x7c007c00);  // Infinity, twice. Conversions take registers.
          continue;
        }
#pragma unroll
        for (int place = 0; place < Lanes::kCount; ++place) {
          constexpr uint32_t kOfPlace = Lanes::kCount == 2 ? 0xffff : 0xffffffff;
          if (Lanes::at(magnitudes, place) >= kFloatInfinity) part.words[i][word] &= ~(kOfPlace << 16 * place);
        }
      }
    }
    return part;
  }

 private:
  __device__ void load_vectors(const T* first, int64_t stride, const Extent& extent) {
    constexpr int N = kVectorLength<T>, kOfVector = kVectorBytes / sizeof(uint32_t);
#pragma unroll
    for (int i = 0; i < kSide; ++i) {
#pragma unroll
      for (int j = 0; j < kSide / N; ++j) {
        const auto loaded = load_evict_last<N>(first + i * stride, j, i < extent.height && j * N < extent.width);
#pragma unroll
        for (int word = 0; word < kOfVector; ++word) {
          words[i][j * kOfVector + word] = reinterpret_cast<const uint32_t*>(&loaded)[word];
        }
      }
    }
  }

  __device__ void load_elements(const T* first, int64_t stride, const Extent& extent) {
#pragma unroll
    for (int i = 0; i < kSide; ++i) {
#pragma unroll
      for (int word = 0; word < kWords; ++word) {
        Vector<T, Lanes::kCount> elements;
#pragma unroll
        for (int place = 0; place < Lanes::kCount; ++place) {
          const int k = word * Lanes::kCount + place;
          elements[place] = i < extent.height && k < extent.width ? first[i * stride + k] : T(0.f);
        }
        words[i][word] = reinterpret_cast<const uint32_t&>(elements);
      }
    }
  }

  __device__ float value(int row, int column) const {
    return Lanes::values(words[row][column / Lanes::kCount])[column % Lanes::kCount];
  }
};

// The largest magnitudes in a thread's rows and columns.
template <typename T>
struct Largest {
  using Lanes = fp8::Lanes<T>;
  static constexpr int kWords = Part<T>::kWords;
  uint32_t rows[kSide], columns[kWords];  // By place.

  __device__ explicit Largest(const Part<T>& part) : rows{}, columns{} {
#pragma unroll
    for (int i = 0; i < kSide; ++i) {
#pragma unroll
      for (int word = 0; word < kWords; ++word) {
        const uint32_t magnitudes = Lanes::magnitudes(part.words[i][word]);
        rows[i] = Lanes::larger(rows[i], magnitudes);
        columns[word] = Lanes::larger(columns[word], magnitudes);
      }
    }
  }

  // Of them all, as the bits of a float32.
  __device__ uint32_t of_all() const {
    uint32_t all = 0;
#pragma unroll
    for (int word = 0; word < kWords; ++word) all = Lanes::larger(all, columns[word]);
    return Lanes::largest(all);
  }
};

// The scales of a tile's columns, each of which is a group of the transpose.
template <typename T>
struct ColumnScales {
  using Lanes = fp8::Lanes<T>;
  uint32_t of_warps[kTileThreads / kWarp][kTile / Lanes::kCount];
  float inverses[kTile];

  // The block takes part. Calls keep(column, scale) for each column, by one thread.
  template <typename Keep>
  __device__ void find(const Largest<T>& largest, bool power_of_two, Format format, const Keep& keep) {
    const int lane = threadIdx.x % kWarp;
#pragma unroll
    for (int word = 0; word < Largest<T>::kWords; ++word) {
      const uint32_t own = largest.columns[word], others = __shfl_xor_sync(0xffffffff, own, kAcross);
      if (lane < kAcross) {
        of_warps[threadIdx.x / kWarp][lane * Largest<T>::kWords + word] = Lanes::larger(own, others);
      }
    }
    __syncthreads();
    if (threadIdx.x < kTile) {
      uint32_t all = 0;
#pragma unroll
      for (int warp = 0; warp < kTileThreads / kWarp; ++warp) {
        all = Lanes::larger(all, of_warps[warp][threadIdx.x / Lanes::kCount]);
      }
      const Scale scale = scale_for(Lanes::at(all, threadIdx.x % Lanes::kCount), power_of_two, format);
      inverses[threadIdx.x] = scale.inverse;
      keep(threadIdx.x, scale.value);
    }
    __syncthreads();
  }
};

// Writes codes(i), kSide of them or fewer, for each of a thread's rows.
template <typename Codes>
__device__ void write_codes(uint8_t* to, int64_t stride, const Extent& extent, const Codes& codes) {
  const bool whole = extent.width == kSide && reinterpret_cast<uintptr_t>(to) % kSide == 0 && stride % kSide == 0;
#pragma unroll
  for (int i = 0; i < kSide; ++i) {
    if (i >= extent.height) break;
    const Vector<uint8_t, kSide> row = codes(i);
    if (whole) {
      store(to + i * stride, 0, row);
    } else {
#pragma unroll
      for (int k = 0; k < kSide; ++k) {
        if (k < extent.width) to[i * stride + k] = row[k];
      }
    }
  }
}

// A thread's codes: two registers of four for each of its rows.
struct Codes {
  uint2 rows[kSide];

  __device__ Vector<uint8_t, kSide> row(int i) const {
    return reinterpret_cast<const Vector<uint8_t, kSide>&>(rows[i]);
  }

  // Those of four columns, left or right, as if they were rows.
  __device__ void turn(bool right, uint2 (&columns)[4]) const {
    uint32_t upper[4], lower[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      upper[i] = right ? rows[i].y : rows[i].x;
      lower[i] = right ? rows[4 + i].y : rows[4 + i].x;
    }
    turn(upper);
    turn(lower);
#pragma unroll
    for (int k = 0; k < 4; ++k) columns[k] = make_uint2(upper[k], lower[k]);
  }

 private:
  // Four rows of four codes become its columns.
  static __device__ void turn(uint32_t (&rows)[4]) {
    const uint32_t left_above = __byte_perm(rows[0], rows[1], 0x5140);
    const uint32_t left_below = __byte_perm(rows[2], rows[3], 0x5140);
    const uint32_t right_above = __byte_perm(rows[0], rows[1], 0x7362);
    const uint32_t right_below = __byte_perm(rows[2], rows[3], 0x7362);
    rows[0] = __byte_perm(left_above, left_below, 0x5410);
    rows[1] = __byte_perm(left_above, left_below, 0x7632);
    rows[2] = __byte_perm(right_above, right_below, 0x5410);
    rows[3] = __byte_perm(right_above, right_below, 0x7632);
  }
};

// The transposed tile's codes in shared memory: kAcross pieces of kSide codes a row, each at a place where the threads
// of half a warp, which write to the same piece of different rows, meet different banks.
struct TurnedTile {
  uint2 pieces[kTile][kAcross];

  __device__ uint2& piece(int row, int i) { return pieces[row][i ^ (row / kSide % kAcross)]; }
};

// The tiles of a matrix, down and across, and how they are read.
struct Tiles {
  int down, across;
  bool in_vectors;
};

// The blocks that a multiprocessor has registers for.
template <typename T>
constexpr int kResidentTiles = sizeof(T) == 4 ? 2 : resident_blocks(3);

// Where a thread's elements are.
struct TilePlace {
  int down, across, matrix, tile_row, tile_column;
  int x, y;            // In the tile.
  int64_t row_of_all;  // The first of the rows, among those of all matrices.

  __device__ __forceinline__ TilePlace(const Tiles& tiles, int64_t rows)
      : down(tiles.down),
        across(tiles.across),
        matrix(blockIdx.x / (down * across)),
        tile_row(blockIdx.x / across % down),
        tile_column(blockIdx.x % across),
        x(threadIdx.x % kAcross * kSide),
        y(threadIdx.x / kAcross * kSide),
        row_of_all(matrix * rows + row()) {}

  __device__ int64_t row() const { return int64_t(tile_row) * kTile + y; }
  __device__ int64_t column() const { return int64_t(tile_column) * kTile + x; }
};

// The steps of a kernel that quantises tiles. They are functions of their own, since ptxas spills where one has them
// all.

// Finds the inverses of the scales of rows that are groups, or of what has one scale, and writes those scales; without
// kWritesCodes only a block's, of the transpose.
template <bool kWritesCodes, typename T>
__device__ __forceinline__ void find_scales(
    const Matrices<T>& a, const TilePlace& place, const Largest<T>& largest, float (&inverses)[kSide], float& inverse) {
  const Format format{a.e5m2};
  if (a.scaling == Scaling::kGroup) {
    uint32_t of_rows[kSide];
#pragma unroll
    for (int i = 0; i < kSide; ++i) of_rows[i] = largest.rows[i];
    const uint32_t own = Lanes<T>::largest(own_largest<kAcross>(of_rows, Lanes<T>::larger));
    const Scale scale = scale_for(own, a.power_of_two, format);
    share_inverses(scale.inverse, inverses);
    const int i = threadIdx.x % kAcross;  // The row that the thread has the scale of.
    if (kWritesCodes && i < kSide && place.row() + i < a.rows) {
      a.scales[place.tile_column * a.count * a.rows + place.row_of_all + i] = scale.value;
    }
  } else if (a.scaling == Scaling::kBlock) {
    BlockGroup block;
    const Scale scale = scale_for(block.max(largest.of_all()), a.power_of_two, format);
    inverse = scale.inverse;
    if (threadIdx.x == 0) {
      if (kWritesCodes) a.scales[blockIdx.x] = scale.value;
      if (a.turned) {
        a.turned_scales[(int64_t(place.matrix) * place.across + place.tile_column) * place.down + place.tile_row] =
            scale.value;
      }
    }
  } else {
    const Scale scale = a.known.given ? Scale(*a.known.given) : scale_for(*a.known.largest, a.power_of_two, format);
    inverse = scale.inverse;
    if (a.scales && blockIdx.x == 0 && threadIdx.x == 0) *a.scales = scale.value;
  }
}

// The codes of a thread's rows, which are written with kWritesCodes.
template <bool kWritesCodes, typename T>
__device__ __forceinline__ Codes encode_rows(
    const Matrices<T>& a,
    const TilePlace& place,
    const Part<T>& part,
    const Extent& extent,
    bool finite,
    const float (&inverses)[kSide],
    float inverse) {
  Codes codes;
  const bool by_group = a.scaling == Scaling::kGroup;
#pragma unroll
  for (int i = 0; i < kSide; ++i) {
    const auto of_row = encode_all_inline(part.row(i), by_group ? inverses[i] : inverse, finite, Format{a.e5m2});
    codes.rows[i] = reinterpret_cast<const uint2&>(of_row);
  }
  uint8_t* const to = a.codes + place.row_of_all * a.n + place.column();
  if (kWritesCodes) write_codes(to, a.n, extent, [&](int i) { return codes.row(i); });
  return codes;
}

// Puts the codes of the transpose into shared memory. The block takes part.
template <typename T>
__device__ __forceinline__ void turn(
    const Matrices<T>& a,
    const TilePlace& place,
    Part<T>& part,
    const Largest<T>& largest,
    bool finite,
    const Codes& codes,
    ColumnScales<T>& column_scales,
    TurnedTile& turned) {
  const Format format{a.e5m2};
  if (a.scaling == Scaling::kGroup) {
    const int64_t first = int64_t(place.tile_column) * kTile;
    float* const to = a.turned_scales + (int64_t(place.matrix) * place.down + place.tile_row) * a.n + first;
    column_scales.find(largest, a.power_of_two, format, [&](int i, float scale) {
      if (first + i < a.n) to[i] = scale;
    });
    part.forget_conversions();
#pragma unroll
    for (int k = 0; k < kSide; ++k) {
      const auto of_column = encode_all_inline(part.column(k), column_scales.inverses[place.x + k], finite, format);
      turned.piece(place.x + k, place.y / kSide) = reinterpret_cast<const uint2&>(of_column);
    }
  } else {
    // The codes are the same.
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      uint2 columns[4];
      codes.turn(half == 1, columns);
#pragma unroll
      for (int k = 0; k < 4; ++k) turned.piece(place.x + 4 * half + k, place.y / kSide) = columns[k];
    }
  }
  __syncthreads();
}

// Writes them to memory: neighbouring threads write neighbouring codes.
template <typename T>
__device__ __forceinline__ void write_turned(const Matrices<T>& a, const TilePlace& place, TurnedTile& turned) {
  const int64_t row = int64_t(place.tile_column) * kTile + place.y, column = int64_t(place.tile_row) * kTile + place.x;
  uint8_t* const to = a.turned + (place.matrix * a.n + row) * a.turned_width + column;
  write_codes(to, a.turned_width, Extent(a.n - row, a.turned_width - column), [&](int i) {
    return reinterpret_cast<const Vector<uint8_t, kSide>&>(turned.piece(place.y + i, place.x / kSide));
  });
}

// Launches a kernel whose block has a tile.
template <typename T>
cudaError_t launch_tiles(void (*kernel)(Matrices<T>, Tiles), const Matrices<T>& a, cudaStream_t stream) {
  const int64_t height = a.turned && a.turned_width > a.rows ? a.turned_width : a.rows;
  const int64_t down = ceil_div(height, kTile), across = ceil_div(a.n, kTile), blocks = a.count * down * across;
  if (blocks == 0) return cudaSuccess;
  if (blocks > std::numeric_limits<int>::max()) return cudaErrorInvalidConfiguration;
  const bool in_vectors = vector_aligned(a.x.data) && a.x.stride % kVectorLength<T> == 0 && a.n % kVectorLength<T> == 0;
  const Tiles tiles{static_cast<int>(down), static_cast<int>(across), in_vectors};
  kernel<<<static_cast<unsigned>(blocks), kTileThreads, 0, stream>>>(a, tiles);
  return cudaGetLastError();
}

}  // namespace fp8
