// The emulator's contents of a CUtensorMap.

#pragma once

#include <cuda.h>

#include <cstdint>

namespace emulator {

struct TensorMap {
  uint64_t mark;
  char* data;
  uint64_t sizes[5];    // Elements, the innermost first.
  uint64_t strides[4];  // Bytes, from the second dimension on.
  uint16_t box[5];
  uint8_t rank, element_bytes, type, swizzle;  // `swizzle` counts the bits of a 16-byte chunk's index that it changes.
};
static_assert(sizeof(TensorMap) <= sizeof(CUtensorMap));
constexpr uint64_t kTensorMapMark = 0x70616d20726f736e;

}  // namespace emulator
