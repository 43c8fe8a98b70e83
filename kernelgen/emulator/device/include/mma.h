// The functions that nvcc has for the toolkit's header of this name: fragments of matrices (nvcuda::wmma). Those of 4-bit
// integers and of bits are declared only, so that the linker names them where they are used.

#pragma once

#include "fragments.h"

#define EMULATED_LOAD(name, type, rows, columns) \
  inline void name(void* fragment, const void* from, unsigned stride, int is_column_major) { \
    emulator::load_fragment(fragment, from, stride, is_column_major, {emulator::Type::type, rows, columns}); \
  }
#define EMULATED_STORE(name, type, rows, columns) \
  inline void name(void* to, const void* fragment, unsigned stride, int is_column_major) { \
    emulator::store_fragment(to, fragment, stride, is_column_major, {emulator::Type::type, rows, columns}); \
  }
#define EMULATED_PRODUCT(name, m, n, k, factors, d_type, c_type) \
  inline void name(void* d, const void* a, const void* b, const void* c, int, int saturates) { \
    using enum emulator::Type; \
    emulator::multiply_fragments(d, a, b, c, {m, n, k, factors, d_type, c_type, saturates != 0}); \
  }

#define EMULATED_SHAPE(shape, m, n) \
  EMULATED_LOAD(__hmma_##shape##_ld_a, kF16, m, 16) \
  EMULATED_LOAD(__hmma_##shape##_ld_b, kF16, 16, n) \
  EMULATED_LOAD(__hmma_##shape##_ld_c_f16, kF16, m, n) \
  EMULATED_LOAD(__hmma_##shape##_ld_c_f32, kF32, m, n) \
  EMULATED_STORE(__hmma_##shape##_st_c_f16, kF16, m, n) \
  EMULATED_STORE(__hmma_##shape##_st_c_f32, kF32, m, n) \
  EMULATED_PRODUCT(__hmma_##shape##_mma_f16f16, m, n, 16, kF16, kF16, kF16) \
  EMULATED_PRODUCT(__hmma_##shape##_mma_f16f32, m, n, 16, kF16, kF16, kF32) \
  EMULATED_PRODUCT(__hmma_##shape##_mma_f32f16, m, n, 16, kF16, kF32, kF16) \
  EMULATED_PRODUCT(__hmma_##shape##_mma_f32f32, m, n, 16, kF16, kF32, kF32) \
  EMULATED_LOAD(__mma_bf16_##shape##_ld_a, kBf16, m, 16) \
  EMULATED_LOAD(__mma_bf16_##shape##_ld_b, kBf16, 16, n) \
  EMULATED_PRODUCT(__mma_bf16_##shape##_mma_f32, m, n, 16, kBf16, kF32, kF32) \
  EMULATED_LOAD(__imma_##shape##_ld_a_s8, kS8, m, 16) \
  EMULATED_LOAD(__imma_##shape##_ld_a_u8, kU8, m, 16) \
  EMULATED_LOAD(__imma_##shape##_ld_b_s8, kS8, 16, n) \
  EMULATED_LOAD(__imma_##shape##_ld_b_u8, kU8, 16, n) \
  EMULATED_LOAD(__imma_##shape##_ld_c, kS32, m, n) \
  EMULATED_STORE(__imma_##shape##_st_c_i32, kS32, m, n) \
  EMULATED_PRODUCT(__imma_##shape##_mma_s8, m, n, 16, kS8, kS32, kS32) \
  EMULATED_PRODUCT(__imma_##shape##_mma_u8, m, n, 16, kU8, kS32, kS32)
EMULATED_SHAPE(m16n16k16, 16, 16)
EMULATED_SHAPE(m32n8k16, 32, 8)
EMULATED_SHAPE(m8n32k16, 8, 32)
#undef EMULATED_SHAPE

EMULATED_LOAD(__mma_tf32_m16n16k8_ld_a, kF32, 16, 8)
EMULATED_LOAD(__mma_tf32_m16n16k8_ld_b, kF32, 8, 16)
EMULATED_LOAD(__mma_tf32_m16n16k8_ld_c, kF32, 16, 16)
EMULATED_STORE(__mma_m16n16k8_st_c_f32, kF32, 16, 16)
EMULATED_PRODUCT(__mma_tf32_m16n16k8_mma_f32, 16, 16, 8, kTf32, kF32, kF32)
EMULATED_LOAD(__dmma_m8n8k4_ld_a, kF64, 8, 4)
EMULATED_LOAD(__dmma_m8n8k4_ld_b, kF64, 4, 8)
EMULATED_LOAD(__dmma_m8n8k4_ld_c, kF64, 8, 8)
EMULATED_STORE(__dmma_m8n8k4_st_c_f64, kF64, 8, 8)
EMULATED_PRODUCT(__dmma_m8n8k4_mma_f64, 8, 8, 4, kF64, kF64, kF64)
#undef EMULATED_LOAD
#undef EMULATED_STORE
#undef EMULATED_PRODUCT

void __imma_m8n8k32_ld_a_s4(void*, const void*, unsigned, int), __imma_m8n8k32_ld_a_u4(void*, const void*, unsigned, int);
void __imma_m8n8k32_ld_b_s4(void*, const void*, unsigned, int), __imma_m8n8k32_ld_b_u4(void*, const void*, unsigned, int);
void __imma_m8n8k32_ld_c(void*, const void*, unsigned, int), __imma_m8n8k32_st_c_i32(void*, const void*, unsigned, int);
void __imma_m8n8k32_mma_s4(void*, const void*, const void*, const void*, int, int);
void __imma_m8n8k32_mma_u4(void*, const void*, const void*, const void*, int, int);
void __bmma_m8n8k128_ld_a_b1(void*, const void*, unsigned, int), __bmma_m8n8k128_ld_b_b1(void*, const void*, unsigned, int);
void __bmma_m8n8k128_ld_c(void*, const void*, unsigned, int), __bmma_m8n8k128_st_c_i32(void*, const void*, unsigned, int);
void __bmma_m8n8k128_mma_xor_popc_b1(void*, const void*, const void*, const void*, int);
void __bmma_m8n8k128_mma_and_popc_b1(void*, const void*, const void*, const void*, int);

#include_next <mma.h>
