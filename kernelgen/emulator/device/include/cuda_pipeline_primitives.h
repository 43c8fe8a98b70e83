// Replaces the toolkit's header of this name.

#pragma once

#define _CUDA_PIPELINE_PRIMITIVES_H_

#include <cuda_awbarrier_primitives.h>
#include <cuda_pipeline_helpers.h>

inline void __pipeline_memcpy_async(void* shared, const void* global, size_t bytes, size_t zeros = 0) {
  emulator::copy_async(shared, global, bytes, bytes - zeros);
}

inline void __pipeline_commit() {
  emulator::commit_copies();
}

// The toolkit's waits for all but eight groups where it is told to leave more.
inline void __pipeline_wait_prior(size_t under_way) {
  emulator::wait_for_copies(under_way < 8 ? int(under_way) : 8);
}

inline void __pipeline_arrive_on(__mbarrier_t* barrier) {
  _CUDA_PIPELINE_INTERNAL_NAMESPACE::pipeline_arrive_on(barrier);
}
