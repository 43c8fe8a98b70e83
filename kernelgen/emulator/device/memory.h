// Global memory: which bytes a kernel may read and write, which of them nobody has written yet, and their names.
//
// While tensors are registered, a kernel may use those, memory from cudaMalloc, and the variables of loaded libraries
// (`__device__`, `__constant__`, literals). With none registered any address will do.

#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace emulator {

struct Tensor {
  std::string name;
  char* data;
  int64_t itemsize;
  std::vector<int64_t> sizes, strides;  // In elements.
  char* storage;
  size_t storage_bytes;
  std::string dtype = {};  // For reports; may be empty.
};

// Forgets what the previous call registered.
void begin_call(const std::string& op);
// Registers an argument, a result or a temporary. `initialised` is false for memory that has just been allocated, and
// true for all else: that leaves open what is known of the storage already.
void note_tensor(const Tensor& tensor, bool initialised);
bool is_tracking();

// Memory from cudaMalloc and its like, which outlives a call. Of what the host may write to directly nobody knows what
// it has written.
void note_allocation(void* data, size_t bytes, bool host_writes = false);
// Whether there was an allocation that begins there.
bool forget_allocation(void* data);
// By how much a range that begins in known memory goes beyond that, in words; or an empty text.
std::string excess_of(const void* data, size_t bytes);
// What kernels have freed: see heap.cpp.
void release_freed_memory();
// The host, or a memset or memcpy in the stream, has written there.
void note_host_write(const void* data, size_t bytes);

// What may be done with the four bytes at a word's address, and which of them have been written: masks.
struct WordAccess {
  uint8_t may_read, may_write, written;
  bool keeps_written;  // Whether `note_written` wants to know.
};
WordAccess word_at(uintptr_t address);
void note_written(uintptr_t address, uint8_t bytes);

// "output[2, 3] (float32 [3, 5])", "4 bytes past the end of output (float32 [3, 5])", or the bare address.
std::string name_of_global(uintptr_t address);

}  // namespace emulator
