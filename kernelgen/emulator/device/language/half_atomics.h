// Atomic additions of float16 and bfloat16, and of pairs of them.

#pragma once

EMULATED_ATOMIC_AT(atomicAdd, kDevice, __half, (__half * place, __half value), __hadd(old, value))
EMULATED_ATOMIC_AT(atomicAdd, kDevice, __half2, (__half2 * place, __half2 value), __hadd2(old, value))
EMULATED_ATOMIC_AT(atomicAdd, kDevice, __nv_bfloat16, (__nv_bfloat16 * place, __nv_bfloat16 value), __hadd(old, value))
EMULATED_ATOMIC_AT(
    atomicAdd, kDevice, __nv_bfloat162, (__nv_bfloat162 * place, __nv_bfloat162 value), __hadd2(old, value))
