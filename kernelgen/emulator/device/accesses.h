// Every access of a kernel to memory comes by here: those that the compiler instruments (`__tsan_read4` and its like),
// and those that the emulator makes for PTX and for intrinsics. Each is checked against the bounds of what it may
// touch, against memory that nobody has written, and against the accesses of other threads (see clocks.h and shadow.h).

#pragma once

#include <cstddef>
#include <cstdint>

#include "clocks.h"
#include "kernel_accesses.h"

namespace emulator {

// The asm statement or intrinsic that the current thread is about to execute, for reports.
extern const void* place;

// ---- For barriers, matrix instructions and asynchronous copies ---------------------------------------------------

// An operation on an mbarrier, whose order is that of its phases.
void note_mbarrier(const void* address, bool writes);

// An asynchronous unit, for reports.
enum class Unit : uint8_t { kThread, kCopy, kCountedCopy, kTensorCopy, kBulkStore, kProduct };

// By all lanes of the warp. Unwritten memory may be read.
void note_warp_access(struct Warp& warp, const void* address, size_t bytes, bool writes);
// By an engine of a block on behalf of the current thread, and what the thread knows is what the engine may rely on.
// `adds` marks reductions, which are atomic.
void note_engine_access(
    Block& block, uint32_t engine, Stamp stamp, Unit unit, const void* address, size_t bytes, bool writes, bool adds);
// What a product of a warpgroup reads; `warp` is the one that issues it, and `view` what its lanes know together.
class ProductReader {
 public:
  ProductReader(struct Warp& warp, const ViewPointer& view, uint32_t engine, Stamp stamp);
  ~ProductReader();
  void note(const char* address, size_t bytes) const;

 private:
  std::unique_ptr<struct Request> request_;
  std::unique_ptr<struct Change> change_;
};
// A cp.async of the current thread, when it starts and when the thread has waited for it.
void note_copy_start(const void* shared, const void* global, size_t bytes, size_t read);
void note_copy_end(const void* shared, const void* global, size_t bytes, size_t read);
// The same where an mbarrier's engine takes the copy over.
void note_counted_copy(
    uint32_t engine, Stamp stamp, const void* shared, const void* global, size_t bytes, size_t read);

// Whether a deferred check fails: to be called before another thread runs.
void settle_accesses();

// Begins and ends a launch's record of accesses to global memory, and a block's of those to its shared memory.
void clear_global_accesses();
void clear_shared_accesses(Block& block, uint32_t begin, uint32_t end);
// Fails if threads of other blocks used the block's shared memory, and nothing orders that before its end.
void check_remote_accesses(Block& block);

}  // namespace emulator
