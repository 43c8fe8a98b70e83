// The widths of wide heads, whose values may have another one than keys.

#pragma once

#include <type_traits>

namespace attention {

// Calls visit(V) for the kernels with this D, where V is the width of values: D or, of 192, also 128.
template <int D, typename Problem, typename Visit>
auto visit_values(const Problem& problem, const Visit& visit) {
  if constexpr (D == 192) {
    if (problem.v.dims <= 128) return visit(std::integral_constant<int, 128>());
  }
  return visit(std::integral_constant<int, D>());
}

}  // namespace attention
