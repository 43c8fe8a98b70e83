// The element types of kernels, spelled as PyTorch spells its dtypes.

#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

using float16 = __half;
using bfloat16 = __nv_bfloat16;
using float32 = float;
using float64 = double;

// float8_e4m3fn in memory: nothing here computes with its 8 bits.
struct e4m3 {
  uint8_t code;
};

// The left operand of a matrix product in float8_e5m2, the right one in float8_e4m3fn.
struct e5m2_by_e4m3 {
  uint8_t code;
};
