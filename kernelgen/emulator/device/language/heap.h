// malloc and free: memory that a kernel allocates is new to the checks of accesses.

#pragma once

extern "C" {
void* emulator_malloc(size_t bytes);
void emulator_free(void* memory);
}

namespace std {
using ::emulator_free;
using ::emulator_malloc;
}  // namespace std
#define malloc emulator_malloc
#define free emulator_free
