// malloc and free in kernels. Host code in a .cu file calls them, too.

#include <cstdlib>
#include <set>
#include <vector>

#include "machine.h"
#include "memory.h"

namespace emulator {

namespace {

std::set<void*> allocated_by_kernels;
// No address is used twice in a launch: what is known of the first use would be taken for the second's.
std::vector<void*> freed_by_kernels;

}  // namespace

void release_freed_memory() {
  for (void* const memory : freed_by_kernels) free(memory);
  freed_by_kernels.clear();
}

}  // namespace emulator

extern "C" {

void* emulator_malloc(size_t bytes) {
  if (!emulator::is_in_kernel()) return malloc(bytes);
  void* const memory = malloc(bytes ? bytes : 1);
  emulator::note_allocation(memory, bytes);
  emulator::allocated_by_kernels.insert(memory);
  return memory;
}

void emulator_free(void* memory) {
  if (emulator::allocated_by_kernels.erase(memory) == 0) return free(memory);
  emulator::forget_allocation(memory);
  if (!emulator::is_in_kernel()) return free(memory);
  emulator::freed_by_kernels.push_back(memory);
}
}
