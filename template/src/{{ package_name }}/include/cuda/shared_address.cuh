// Addresses in shared memory in the form that PTX takes: 32-bit offsets in the shared window.

#pragma once

#include <cstdint>

__device__ inline uint32_t shared_address(const void* pointer) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
}
