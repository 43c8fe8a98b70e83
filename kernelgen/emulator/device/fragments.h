// Fragments of matrices: what include/mma.h calls.

#pragma once

#include "ptx_types.h"

namespace emulator {

struct Fragment {
  Type type;
  int rows, columns;
};
// `stride` counts elements from one row, or column, to the next.
void load_fragment(void* fragment, const void* from, unsigned stride, bool column_major, Fragment kind);
void store_fragment(void* to, const void* fragment, unsigned stride, bool column_major, Fragment kind);
// d = a b + c, of m x k and k x n matrices.
struct FragmentProduct {
  int m, n, k;
  Type factors, d, c;
  bool saturates;
};
void multiply_fragments(void* d, const void* a, const void* b, const void* c, const FragmentProduct& product);

}  // namespace emulator
