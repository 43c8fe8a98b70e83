// The functions that the compiler calls before every access of a kernel (-fsanitize=thread), and those that move
// memory.

#include <cstring>

#include "accesses.h"
#include "machine.h"

using emulator::note_atomic;
using emulator::note_read;
using emulator::note_write;
using emulator::Scope;

#define PC __builtin_return_address(0)

extern "C" {

void __tsan_init() {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}

#define ACCESSES(size) \
  void __tsan_read##size(void* address) { \
    note_read(address, size, PC); \
  } \
  void __tsan_write##size(void* address) { \
    note_write(address, size, PC); \
  } \
  void __tsan_unaligned_read##size(void* address) { \
    note_read(address, size, PC); \
  } \
  void __tsan_unaligned_write##size(void* address) { \
    note_write(address, size, PC); \
  } \
  void __tsan_volatile_read##size(void* address) { \
    note_atomic(address, size, true, false, Scope::kSystem, false, false, PC); \
  } \
  void __tsan_volatile_write##size(void* address) { \
    note_atomic(address, size, false, true, Scope::kSystem, false, false, PC); \
  } \
  void __tsan_unaligned_volatile_read##size(void* address) { \
    note_atomic(address, size, true, false, Scope::kSystem, false, false, PC); \
  } \
  void __tsan_unaligned_volatile_write##size(void* address) { \
    note_atomic(address, size, false, true, Scope::kSystem, false, false, PC); \
  }
ACCESSES(1)
ACCESSES(2)
ACCESSES(4)
ACCESSES(8)
ACCESSES(16)

void __tsan_read_range(void* address, size_t bytes) {
  note_read(address, bytes, PC);
}
void __tsan_write_range(void* address, size_t bytes) {
  note_write(address, bytes, PC);
}
void __tsan_vptr_read(void* address) {
  note_read(address, sizeof(void*), PC);
}
void __tsan_vptr_update(void** address, void*) {
  note_write(address, sizeof(void*), PC);
}

// ---- The compiler's atomic operations ---------------------------------------------------------------------------

#define ORDER (order != __ATOMIC_RELAXED && order != __ATOMIC_RELEASE), (order >= __ATOMIC_RELEASE)
#define NOTE(reads, writes) note_atomic(address, sizeof(*address), reads, writes, Scope::kSystem, ORDER, PC)
#define CHANGE(bits, type, name, expression) \
  type __tsan_atomic##bits##_##name(type* address, type value, int order) { \
    NOTE(true, true); \
    const type old = *address; \
    *address = static_cast<type>(expression); \
    return old; \
  }
#define ATOMICS(bits, type) \
  type __tsan_atomic##bits##_load(const type* address, int order) { \
    NOTE(true, false); \
    return *address; \
  } \
  void __tsan_atomic##bits##_store(type* address, type value, int order) { \
    NOTE(false, true); \
    *address = value; \
  } \
  CHANGE(bits, type, exchange, value) \
  CHANGE(bits, type, fetch_add, old + value) \
  CHANGE(bits, type, fetch_sub, old - value) \
  CHANGE(bits, type, fetch_and, old& value) \
  CHANGE(bits, type, fetch_or, old | value) \
  CHANGE(bits, type, fetch_xor, old ^ value) \
  CHANGE(bits, type, fetch_nand, ~(old & value)) \
  int __tsan_atomic##bits##_compare_exchange_strong(type* address, type* expected, type value, int order, int) { \
    NOTE(true, true); \
    const type old = *address; \
    if (old == *expected) { \
      *address = value; \
      return 1; \
    } \
    *expected = old; \
    return 0; \
  } \
  int __tsan_atomic##bits##_compare_exchange_weak(type* address, type* expected, type value, int order, int failure) { \
    return __tsan_atomic##bits##_compare_exchange_strong(address, expected, value, order, failure); \
  } \
  type __tsan_atomic##bits##_compare_exchange_val(type* address, type expected, type value, int order, int) { \
    NOTE(true, true); \
    const type old = *address; \
    if (old == expected) *address = value; \
    return old; \
  }
ATOMICS(8, uint8_t)
ATOMICS(16, uint16_t)
ATOMICS(32, uint32_t)
ATOMICS(64, uint64_t)

void __tsan_atomic_thread_fence(int) {
  emulator::note_fence(Scope::kSystem);
}
void __tsan_atomic_signal_fence(int) {}

// ---- memcpy and its like: see prelude.h -------------------------------------------------------------------------

void* emulator_memcpy(void* to, const void* from, size_t bytes) {
  note_read(from, bytes, PC);
  note_write(to, bytes, PC);
  return memcpy(to, from, bytes);
}
void* emulator_memmove(void* to, const void* from, size_t bytes) {
  note_read(from, bytes, PC);
  note_write(to, bytes, PC);
  return memmove(to, from, bytes);
}
void* emulator_memset(void* to, int value, size_t bytes) {
  note_write(to, bytes, PC);
  return memset(to, value, bytes);
}
}
