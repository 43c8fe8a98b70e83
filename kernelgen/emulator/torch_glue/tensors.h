// The memory of an op's tensors: whose it is, and what of it has been written.

#pragma once

#include <torch/csrc/stable/c/shim.h>

#include <string>

namespace emulator {

// Forgets the tensors of the call before.
void begin_tensors(const std::string& op);
// Before a launch: what the host has written to new tensors counts as written.
void note_host_writes();

void note_argument(const std::string& name, AtenTensorHandle tensor);
// A tensor that the op asks the address of: an argument, a result, a temporary or a view of one.
void note_used(AtenTensorHandle tensor);
// A new tensor of the op. Its memory is filled, so that what the host writes to it later shows.
void note_new(AtenTensorHandle tensor, bool initialised);

// A tensor that the op made on the CPU. All others look like CUDA tensors.
void note_host_tensor(AtenTensorHandle tensor);
bool is_host_tensor(AtenTensorHandle tensor);

}  // namespace emulator
