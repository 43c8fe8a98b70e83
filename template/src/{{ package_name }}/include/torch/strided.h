// Tensors of any layout for kernels that read and write them where they lie: see strided_view.h.
//
//     strided::visit_index({input, output}, [&](auto index) {
//       using Index = typename decltype(index)::type;
//       launch(strided::view<const T, Index>(input), strided::view<T, Index>(output), n, stream);
//     });

#pragma once

#include <initializer_list>
#include <limits>
#include <string>

#include "checks.h"
#include "dtypes.h"
#include "strided_view.h"

namespace strided {

// Refuses a tensor with more dimensions that lie apart than a view has.
inline StridedLayout layout_of(const checks::Argument& argument) {
  StridedLayout layout;
  const auto sizes = argument.tensor.sizes();
  const auto strides = argument.tensor.strides();
  for (int64_t d = argument.tensor.dim() - 1; d >= 0; --d) {
    if (sizes[d] == 1) continue;
    const int last = layout.dimensions - 1;
    if (last >= 0 && strides[d] == layout.sizes[last] * layout.strides[last]) {
      layout.sizes[last] *= sizes[d];
      continue;
    }
    if (layout.dimensions == kStridedDimensions) {
      checks::refuse(
          argument,
          "has " + std::to_string(argument.tensor.dim()) + " dimensions, of which more than " +
              std::to_string(kStridedDimensions) + " lie apart",
          "a tensor of fewer, or a contiguous one");
    }
    layout.sizes[layout.dimensions] = sizes[d];
    layout.strides[layout.dimensions] = strides[d];
    ++layout.dimensions;
  }
  return layout;
}

// Whether the numbers of a tensor's elements and their offsets fit 32 bits.
inline bool fits_32_bits(const checks::Tensor& tensor) {
  int64_t last = 0;
  for (int64_t d = 0; d < tensor.dim(); ++d) last += (tensor.size(d) - 1) * tensor.stride(d);
  return tensor.numel() <= std::numeric_limits<int>::max() && last <= std::numeric_limits<int>::max();
}

template <typename T, typename Index>
StridedView<T, Index> view(const checks::Argument& argument) {
  return StridedView<T, Index>(
      static_cast<T*>(
          std::is_const_v<T> ? const_cast<void*>(argument.tensor.const_data_ptr())
                             : argument.tensor.mutable_data_ptr()),
      layout_of(argument));
}

// Calls visitor(Type<int>()) if all tensors fit 32 bits, else visitor(Type<int64_t>()).
template <typename Visitor>
void visit_index(std::initializer_list<checks::Argument> tensors, Visitor&& visitor) {
  bool is_narrow = true;
  for (const checks::Argument& argument : tensors) is_narrow = is_narrow && fits_32_bits(argument.tensor);
  if (is_narrow) return visitor(dtypes::Type<int>());
  visitor(dtypes::Type<int64_t>());
}

}  // namespace strided
