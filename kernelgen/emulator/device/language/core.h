// What both kernels and the emulated GPU itself include: the language without 16-bit floating-point numbers and the
// runtime's templates.

#pragma once

// The runtime's interface, as host code sees it, and what nvcc includes in every source.
#include <assert.h>
#include <cuda.h>
#include <cuda_runtime_api.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <vector_functions.h>
#include <vector_types.h>

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <ctime>
#include <new>
#include <type_traits>
#include <utility>

// From here on, all is device code for the emulated GPU.
#include "keywords.h"

// Those that the compiler makes an access of are instrumented as one; the others it would leave unseen.
extern "C" {
void* emulator_memcpy(void* to, const void* from, size_t bytes);
void* emulator_memmove(void* to, const void* from, size_t bytes);
void* emulator_memset(void* to, int value, size_t bytes);
}
__attribute__((always_inline)) inline void* emulator_copy(void* to, const void* from, size_t bytes) {
  if (__builtin_constant_p(bytes) && bytes <= 16 && (bytes & (bytes - 1)) == 0) return memcpy(to, from, bytes);
  return emulator_memcpy(to, from, bytes);
}
namespace std {
using ::emulator_copy;
using ::emulator_memmove;
using ::emulator_memset;
}  // namespace std
#define memcpy emulator_copy
#define memmove emulator_memmove
#define memset emulator_memset

// Accesses in a function of this kind are not checked by themselves: it says what it does by note_atomic.
#define EMULATOR_UNCHECKED __attribute__((no_sanitize("thread")))

#include "../kernel_accesses.h"
#include "assembly.h"
#include "launches.h"
#include "shared_memory.h"

#include "atomics.h"
#include "bits.h"
#include "conversions.h"
#include "floats.h"
#include "functions.h"
#include "loads.h"
#include "small_vectors.h"
#include "synchronisation.h"
#include "textures.h"
#include "warps.h"

#include "builtin_atomics.h"  // After fences.
