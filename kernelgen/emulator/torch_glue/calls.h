// Calls of an op: each runs alone, its kernels' faults are raised when it ends.

#pragma once

#include <torch/csrc/stable/library.h>

#include <string>

namespace emulator {

// A function that torch may call in place of `kernel`, the boxed CUDA kernel of an operator.
using BoxedKernel = void (*)(StableIValue*, uint64_t, uint64_t);
BoxedKernel guarded(const std::string& op, BoxedKernel kernel);

}  // namespace emulator
