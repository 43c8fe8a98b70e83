// Has memory brought to L2 that will be read later.

#pragma once

// The cache line of an address.
__device__ inline void prefetch_l2(const void* address) {
  asm volatile("prefetch.global.L2 [%0];" ::"l"(address));
}
