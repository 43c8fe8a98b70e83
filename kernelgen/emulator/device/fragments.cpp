// Fragments of matrices, which the lanes of a warp hold together: nvcuda::wmma. CUDA leaves open which lane holds which
// element; here tiles of 8 x 8 lie as those of mma.sync do, the next one below.

#include <algorithm>
#include <tuple>
#include <vector>

#include "accesses.h"
#include "fragments.h"
#include "matrices.h"

namespace emulator {

namespace {

struct Place {
  int row, column;
};

int elements(const Fragment& kind) {
  return kind.rows * kind.columns / kLanes;
}

Place place_of(const Fragment& kind, int lane, int i) {
  if (kind.columns == 4) return {lane / 4, lane % 4};  // The factors in double precision.
  if (kind.rows == 4) return {lane % 4, lane / 4};
  const int tile = i / 2, tiles = kind.rows / 8;
  return {tile % tiles * 8 + lane / 4, tile / tiles * 8 + lane % 4 * 2 + i % 2};
}

size_t size_of(const Fragment& kind) {
  return bits_of(kind.type) / 8;
}

// Calls visit(element of the fragment, element in memory) for those of the current lane.
template <typename F>
void for_each_element(
    void* fragment, char* memory, unsigned stride, bool column_major, const Fragment& kind, const F& f) {
  execute_together(kAllLanes, "a fragment of a matrix", nullptr, [](Warp&, void* const*) {});
  for (int i = 0; i < elements(kind); ++i) {
    const auto [row, column] = place_of(kind, self().lane, i);
    const size_t index = column_major ? size_t(column) * stride + row : size_t(row) * stride + column;
    f(static_cast<char*>(fragment) + i * size_of(kind), memory + index * size_of(kind));
  }
}

}  // namespace

void load_fragment(void* fragment, const void* from, unsigned stride, bool column_major, Fragment kind) {
  char* const memory = const_cast<char*>(static_cast<const char*>(from));
  for_each_element(fragment, memory, stride, column_major, kind, [&](char* element, const char* place) {
    note_read(place, size_of(kind));
    memcpy(element, place, size_of(kind));
  });
}

void store_fragment(void* to, const void* fragment, unsigned stride, bool column_major, Fragment kind) {
  char* const memory = static_cast<char*>(to);
  void* const elements_of_lane = const_cast<void*>(fragment);
  for_each_element(elements_of_lane, memory, stride, column_major, kind, [&](const char* element, char* place) {
    note_write(place, size_of(kind));
    memcpy(place, element, size_of(kind));
  });
}

namespace {

struct Factors {
  void* d;
  const void *a, *b, *c;
  const FragmentProduct* product;
};

uint64_t bits_at(const void* fragment, Type type, int i) {
  uint64_t bits = 0;
  const size_t size = bits_of(type) / 8;
  memcpy(&bits, static_cast<const char*>(fragment) + i * size, size);
  return bits;
}

// Row by row.
std::vector<double> gathered(void* const* arguments, const void* Factors::*factor, const Fragment& kind) {
  std::vector<double> matrix(kind.rows * kind.columns);
  for (int lane = 0; lane < kLanes; ++lane) {
    const Factors& factors = *static_cast<const Factors*>(arguments[lane]);
    for (int i = 0; i < elements(kind); ++i) {
      const auto [row, column] = place_of(kind, lane, i);
      matrix[row * kind.columns + column] = element_value(kind.type, bits_at(factors.*factor, kind.type, i));
    }
  }
  return matrix;
}

uint64_t sum_bits(const FragmentProduct& product, double value) {
  switch (product.d) {
    case Type::kF64: return std::bit_cast<uint64_t>(value);
    case Type::kF32: return std::bit_cast<uint32_t>(float(value));
    case Type::kF16: return half_bits(value);
    default: {
      const int64_t sum = int64_t(value);
      return uint32_t(product.saturates ? std::min<int64_t>(std::max<int64_t>(sum, INT32_MIN), INT32_MAX) : sum);
    }
  }
}

void multiply(Warp&, void* const* arguments) {
  for (int lane = 0; lane < kLanes; ++lane) {
    if (!arguments[lane]) fail("a product of fragments of a warp in which lane %d has ended", lane);
  }
  const FragmentProduct& product = *static_cast<const Factors*>(arguments[0])->product;
  const auto [m, n, k] = std::tuple(product.m, product.n, product.k);
  const std::vector<double> a = gathered(arguments, &Factors::a, {product.factors, m, k});
  const std::vector<double> b = gathered(arguments, &Factors::b, {product.factors, k, n});
  const Fragment sums = {product.d, m, n};
  for (int lane = 0; lane < kLanes; ++lane) {
    const Factors& factors = *static_cast<const Factors*>(arguments[lane]);
    for (int i = 0; i < elements(sums); ++i) {
      const auto [row, column] = place_of(sums, lane, i);
      double sum = 0;
      for (int j = 0; j < k; ++j) sum += a[row * k + j] * b[j * n + column];
      const uint64_t bits = sum_bits(product, sum + element_value(product.c, bits_at(factors.c, product.c, i)));
      memcpy(static_cast<char*>(factors.d) + i * size_of(sums), &bits, size_of(sums));
    }
  }
}

}  // namespace

void multiply_fragments(void* d, const void* a, const void* b, const void* c, const FragmentProduct& product) {
  Factors factors = {d, a, b, c, &product};
  execute_together(kAllLanes, "a product of fragments", &factors, multiply);
}

}  // namespace emulator
