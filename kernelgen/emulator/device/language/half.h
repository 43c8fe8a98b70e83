// float16 and bfloat16: the toolkit's headers. Their functions compute as on the host, which is faster than executing
// the instructions that device code has there, with the same results.

#pragma once

#include <nv/target>

#pragma push_macro("NV_IF_ELSE_TARGET")
#undef NV_IF_ELSE_TARGET
#define atomicAdd emulated_header_atomicAdd  // Plain loads and stores: half_atomics.h has others.

#define NV_IF_ELSE_TARGET(condition, device, ...) _NV_BLOCK_EXPAND(__VA_ARGS__)
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#undef atomicAdd
#pragma pop_macro("NV_IF_ELSE_TARGET")
