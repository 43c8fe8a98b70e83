// Replaces the toolkit's header of this name.

#pragma once

#include "prelude.h"

inline void __pipeline_memcpy_async(void* shared, const void* global, size_t bytes, size_t zeros = 0) {
  emulator::copy_async(shared, global, bytes, bytes - zeros);
}

inline void __pipeline_commit() {
  emulator::commit_copies();
}

inline void __pipeline_wait_prior(int under_way) {
  emulator::wait_for_copies(under_way);
}
