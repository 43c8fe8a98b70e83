// A function compiled several times, for newer CPUs too: the dynamic linker chooses the best that this CPU has.
//
// Wheels run on any x86-64, so compilers may use SSE2 alone, which has neither vectors of eight floats nor fused
// multiply-add; x86-64-v3 has both, and x86-64-v4 vectors of sixteen floats. Only what is inlined into the function is
// compiled with it: everything, by `flatten`.

#pragma once

#include <cstdint>

#if defined(__x86_64__) && defined(__linux__) && defined(__GNUC__) && !defined(__clang__) && __GNUC__ >= 12 && \
    !defined(__SANITIZE_ADDRESS__)
#define CPU_CLONES __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default"), flatten))
#else
#define CPU_CLONES
#endif

// Before a loop none of whose iterations reads what another writes: compilers then vectorise it without a look at how
// its arrays lie, which GCC does for a few arrays alone.
#if defined(__clang__)
#pragma clang diagnostic ignored "-Wpass-failed"  // A loop that is left as it is, is no fault.
#define CPU_INDEPENDENT _Pragma("clang loop vectorize(assume_safety)")
#elif defined(__GNUC__)
#define CPU_INDEPENDENT _Pragma("GCC ivdep")
#else
#define CPU_INDEPENDENT
#endif

// Before a loop as long as a vector register: GCC would unroll it whole, and vectorise none of what holds a choice. And
// before one over a tile, of which the unrolled code would be long.
#if defined(__GNUC__) && !defined(__clang__)
#define CPU_ROLLED _Pragma("GCC unroll 1")
#else
#define CPU_ROLLED
#endif

// For what is not worth a copy in each of its callers.
#if defined(__GNUC__)
#define CPU_APART __attribute__((noinline))
#else
#define CPU_APART
#endif

// Calls f(begin, end), in a form for this CPU.
template <typename F>
CPU_CLONES void call_cloned(const F& f, int64_t begin, int64_t end) {
  f(begin, end);
}
