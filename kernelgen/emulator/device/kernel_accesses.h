// What a kernel's own code and the functions of language/ say of its accesses to memory. Each source of a project has
// this header in its prelude, so it includes little.

#pragma once

#include <cstddef>

namespace emulator {

// As PTX's scopes: the threads among which a fence or an atomic operation orders memory.
enum class Scope { kBlock, kCluster, kDevice, kSystem };

// An atomic access of the current thread, before it happens, and what it orders: a read-modify-write `reads` and
// `writes`. Volatile accesses are relaxed atomics of the system's scope.
void note_atomic(
    const void* address,
    size_t bytes,
    bool reads,
    bool writes,
    Scope scope,
    bool acquire,
    bool release,
    const void* pc = nullptr);
// A fence.acq_rel or fence.sc of the current thread: __threadfence and its like.
void note_fence(Scope scope);
// Plain accesses of the current thread. Without `pc` the place is that of the instruction that it executes.
void note_read(const void* address, size_t bytes, const void* pc = nullptr);
void note_write(const void* address, size_t bytes, const void* pc = nullptr);

}  // namespace emulator
