#include "reports.h"

#include <bit>

#include "machine.h"
#include "memory.h"

namespace emulator {

namespace {

[[noreturn]] void stop(const std::string& message) {
  if (!machine.current) throw Failure{message};
  fail_without_unwinding(message);
}

// The cause may be that this thread has skipped a __syncthreads. It goes on to its next: where others of the block come
// to another, the threads diverge, and else it is what was seen.
void report_access(const std::string& message) {
  if (!machine.current) throw Failure{message};
  fail_later(message);
}

const char* base() {
  return reinterpret_cast<const char*>(&relative_place);
}

std::string name_of_block(uint32_t id) {
  const dim3 grid = current_launch->configuration.grid;
  return text("block (%u, %u, %u)", id % grid.x, id / grid.x % grid.y, id / grid.x / grid.y);
}

// "thread (3, 0, 0) of block (1, 0, 0)".
std::string who(const Entry& access) {
  const std::string block = name_of_block(access.block());
  switch (access.unit) {
    case Unit::kCountedCopy: return "a cp.async of " + block;
    case Unit::kTensorCopy: return "a copy by the copy engine to " + block;
    case Unit::kBulkStore: return "a bulk store of " + block;
    case Unit::kProduct: return "a product (wgmma) of " + block;
    case Unit::kThread:
    case Unit::kCopy: break;
  }
  const dim3 size = current_launch->configuration.block;
  const uint32_t thread = access.index() * kLanes + std::countr_zero(access.lanes);
  const char* const copy = access.unit == Unit::kCopy ? "a cp.async of " : "";
  return copy + text("thread (%u, %u, %u) of ", thread % size.x, thread / size.x % size.y, thread / size.x / size.y) +
         block;
}

const char* verb(const Entry& access) {
  if (access.atomic()) return access.writes() ? "atomically updates" : "atomically (or by a volatile load) reads";
  return access.writes() ? "writes" : "reads";
}

std::string name_of(const Entry& access, const char* address, bool is_global) {
  if (is_global) return name_of_global(reinterpret_cast<uintptr_t>(address));
  bool is_window = false;
  const Block* const block = block_of_window(address, is_window);
  if (!block) return text("%p", static_cast<const void*>(address));
  const std::string name = name_of_shared(*block, address);
  return block->id == access.block() ? name : name + " of " + name_of_block(block->id);
}

// What would have ordered two accesses.
std::string remedy(const Entry& earlier, const Entry& access, bool is_global) {
  switch (earlier.unit) {
    case Unit::kCopy: return "the cp.async has not been waited for, or no barrier follows the wait";
    case Unit::kCountedCopy: return "the mbarrier that counts the cp.async has not been waited for";
    case Unit::kTensorCopy: return "the mbarrier that counts the copy's bytes has not been waited for";
    case Unit::kBulkStore: return "the bulk store has not been waited for, or no barrier follows the wait";
    case Unit::kProduct: return "the product has not been waited for, or nothing passes that on";
    case Unit::kThread: break;
  }
  if (access.block() == earlier.block()) {
    const bool same_warp = access.index() == earlier.index();
    return same_warp ? "neither __syncwarp nor another barrier is between" : "no barrier is between";
  }
  return is_global ? "nothing orders these blocks: that takes atomics with fences" : "no cluster barrier is between";
}

}  // namespace

int32_t relative_place(const void* pc) {
  return pc ? static_cast<int32_t>(static_cast<const char*>(pc) - base()) : 0;
}

const void* place_in_memory(int32_t relative) {
  return base() + relative;
}

std::string place_of(const Entry& access) {
  return access.place ? text(" [%p]", place_in_memory(access.place)) : "";
}

namespace {

std::string past(size_t bytes) {
  return (bytes ? text("%zu bytes ", bytes) : "") + "past the end of ";
}

}  // namespace

std::string name_of_shared(const Block& block, const char* address) {
  const uint32_t offset = address - block.shared;
  const SharedVariable* nearest = nullptr;
  for (const auto& [key, variable] : current_launch->variables) {
    if (variable.offset <= offset && (!nearest || variable.offset > nearest->offset)) nearest = &variable;
  }
  const uint32_t dynamic = current_launch->dynamic;
  if (!nearest && dynamic && offset >= dynamic) {
    const size_t bytes = current_launch->configuration.shared, byte = offset - dynamic;
    if (byte < bytes) return text("byte %zu of dynamic shared memory", byte);
    return past(byte - bytes) + text("dynamic shared memory (%zu bytes)", bytes);
  }
  if (!nearest) return text("shared memory at %#x, which belongs to no variable", offset);
  const size_t byte = offset - nearest->offset;
  if (byte >= nearest->bytes) {
    return past(byte - nearest->bytes) + text("shared variable %s (%zu bytes)", nearest->names, nearest->bytes);
  }
  if (nearest->element_bytes) {
    return text("element %zu of shared variable %s", byte / nearest->element_bytes, nearest->names);
  }
  return text("byte %zu of shared variables %s", byte, nearest->names);
}

void report_bounds(const Entry& access, const char* address, size_t bytes, bool is_global) {
  const std::string name = name_of(access, address, is_global);
  const char* const preposition = name.starts_with("past") ? "" : "at ";
  stop(
      text("out of bounds: %s %s %zu bytes %s", who(access).c_str(), verb(access), bytes, preposition) + name +
      place_of(access));
}

void report_unwritten(const Entry& access, const char* address, size_t bytes, bool is_global) {
  report_access(
      text("uninitialised memory: %s reads %zu bytes that nobody has written: ", who(access).c_str(), bytes) +
      name_of(access, address, is_global) + place_of(access));
}

void report_unfenced(const Entry& access, const Entry& write, const char* address) {
  stop(
      "a missing fence.proxy.async: " + who(access) + " reads " + name_of(access, address, false) + place_of(access) +
      "\n  as it was before " + who(write) + " wrote it" + place_of(write) +
      "\n  No fence.proxy.async is between the write and what starts the read.");
}

void report_race(const Entry& earlier, const Entry& access, const char* address, bool is_global) {
  const bool is_mixed = earlier.atomic() != access.atomic() && earlier.unit == access.unit;
  report_access(
      "a race on " + name_of(access, address, is_global) + ": " + who(access) + " " + verb(access) + " it" +
      place_of(access) + "\n  and " + who(earlier) + " " + verb(earlier) + " it" + place_of(earlier) + "\n  " +
      remedy(earlier, access, is_global) +
      (is_mixed ? "\n  or both are meant: then both have to be atomic or volatile, and one is not" : ""));
}

void report_use_after_end(const Block& block, const Entry& access) {
  stop(
      who(access) + " " + verb(access) + " shared memory of " + name_of_block(block.id) + place_of(access) +
      "\n  and nothing keeps that block from ending before: no cluster barrier is between");
}

}  // namespace emulator
