// The widths of heads that kernels are for.

#pragma once

#include <type_traits>

namespace attention {

// Calls visit(width) for the tiles of Hopper that serve heads of `dims` dimensions, of kernels for up to D. Where that
// is 128, heads of up to 96 have tiles of their own.
template <int D, typename Visit>
auto visit_sm90_width(int dims, const Visit& visit) {
  if constexpr (D == 128) {
    if (dims <= 96) return visit(std::integral_constant<int, 96>());
  }
  return visit(std::integral_constant<int, D>());
}

// Calls visit(V) for the kernels with this D, where V is the width of values, which of wide heads may have another one
// than keys: D or, of 192, also 128.
template <int D, typename Problem, typename Visit>
auto visit_values(const Problem& problem, const Visit& visit) {
  if constexpr (D == 192) {
    if (problem.v.dims <= 128) return visit(std::integral_constant<int, 128>());
  }
  return visit(std::integral_constant<int, D>());
}

}  // namespace attention
