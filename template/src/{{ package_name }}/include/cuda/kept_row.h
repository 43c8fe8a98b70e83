// A row with what several passes need of each element. A CPU computes it once, and keeps it; a GPU computes it again in
// each pass, from what its registers hold. Plain C++: the CPU's kernels use it too.

#pragma once

#include <cstdint>

#ifdef __CUDACC__
#define KEPT_FUNCTION __device__ __forceinline__
#else
#define KEPT_FUNCTION inline
#endif

// Numbers of a row's inputs.
template <int... kNumbers>
struct Inputs {};

// The passes of a row whose formulas take what is kept first: f(kept, inputs...). See formula_row.h.
template <typename Row, typename Kept>
class KeptRow {
 public:
  using Number = typename Row::Number;

  KEPT_FUNCTION KeptRow(Row& row, Kept kept) : row_(row), kept_(kept) {}

  template <typename F>
  KEPT_FUNCTION Number sum(F term) {
    return row_.sum(kept_.with(term));
  }

  template <typename F>
  KEPT_FUNCTION void sums(Number& first, Number& second, F term) {
    row_.sums(first, second, kept_.with(term));
  }

  template <typename F>
  KEPT_FUNCTION void sums(Number& first, Number& second, Number& third, F term) {
    row_.sums(first, second, third, kept_.with(term));
  }

  template <typename F>
  KEPT_FUNCTION void sums(Number& first, Number& second, Number& third, Number& fourth, F term) {
    row_.sums(first, second, third, fourth, kept_.with(term));
  }

  template <typename F>
  KEPT_FUNCTION Number max(F term) {
    return row_.max(kept_.with(term));
  }

  template <typename F>
  KEPT_FUNCTION Number min(F term) {
    return row_.min(kept_.with(term));
  }

  template <typename F>
  KEPT_FUNCTION Number product(F term) {
    return row_.product(kept_.with(term));
  }

  template <typename F>
  KEPT_FUNCTION int64_t argmax(F term) {
    return row_.argmax(kept_.with(term));
  }

  template <typename F>
  KEPT_FUNCTION int64_t argmin(F term) {
    return row_.argmin(kept_.with(term));
  }

  template <typename F>
  KEPT_FUNCTION void write(F f) {
    row_.write(kept_.with(f));
  }

 private:
  Row& row_;
  Kept kept_;
};
