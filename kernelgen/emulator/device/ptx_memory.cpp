// Loads, stores, atomics and fences; addresses of shared memory.

#include <algorithm>
#include <cmath>

#include "accesses.h"
#include "ptx.h"

namespace emulator {

namespace {

constexpr uint64_t kOffsetMask = (1u << kRankShift) - 1;

Scope scope_of(const Call& call, Scope otherwise) {
  if (call.has("cta")) return Scope::kBlock;
  if (call.has("cluster")) return Scope::kCluster;
  if (call.has("gpu") || call.has("gl")) return Scope::kDevice;
  if (call.has("sys")) return Scope::kSystem;
  return otherwise;
}

// The place that an operand of an instruction addresses, in the space that its name tells.
char* place_of(const Call& call, size_t operand, size_t bytes) {
  const uint64_t address = call.get(operand);
  if (call.has("shared") || call.has("shared::cta") || call.has("shared::cluster")) {
    return shared_address(address, bytes, bytes).pointer();
  }
  if (address % bytes) {
    fail("'%s' at an address that is not a multiple of its size", call.instruction.text.c_str());
  }
  return reinterpret_cast<char*>(address);
}

// How many elements an operand has, as the name tells.
size_t vector_of(const Call& call, size_t operand) {
  const size_t count = call.has("v8") ? 8 : call.has("v4") ? 4 : call.has("v2") ? 2 : 1;
  if (call.words(operand) != count) fail("'%s' takes %zu elements", call.instruction.text.c_str(), count);
  return count;
}

bool is_strong(const Call& call) {
  return call.has("volatile") || call.has("relaxed") || call.has("acquire") || call.has("release") || call.has("mmio");
}

// Its bits; extended to a wider register.
uint64_t element(const char* from, Type type) {
  switch (bits_of(type)) {
    case 8: return is_signed(type) ? uint64_t(int64_t(int8_t(*from))) : uint8_t(*from);
    case 16: {
      uint16_t bits;
      memcpy(&bits, from, 2);
      return is_signed(type) ? uint64_t(int64_t(int16_t(bits))) : bits;
    }
    case 32: {
      uint32_t bits;
      memcpy(&bits, from, 4);
      return is_signed(type) ? uint64_t(int64_t(int32_t(bits))) : bits;
    }
    default: {
      uint64_t bits;
      memcpy(&bits, from, 8);
      return bits;
    }
  }
}

}  // namespace

namespace {

void note_load(const Call& call, const void* from, size_t bytes) {
  if (!is_strong(call)) return note_read(from, bytes);
  note_atomic(from, bytes, true, false, scope_of(call, Scope::kSystem), call.has("acquire"), false);
}

void note_store(const Call& call, const void* to, size_t bytes) {
  if (!is_strong(call)) return note_write(to, bytes);
  note_atomic(to, bytes, false, true, scope_of(call, Scope::kSystem), false, call.has("release"));
}

void load_wide(const Call& call) {
  const char* const from = place_of(call, 1, 16);
  note_load(call, from, 16);
  unsigned __int128 bits;
  memcpy(&bits, from, 16);
  call.set_wide(0, bits);
}

void store_wide(const Call& call) {
  char* const to = place_of(call, 0, 16);
  note_store(call, to, 16);
  const unsigned __int128 bits = call.get_wide(1);
  memcpy(to, &bits, 16);
  note_progress();
}

}  // namespace

void load(const Call& call) {
  const Type type = call.instruction.type;
  if (type == Type::kB128) return load_wide(call);
  const size_t size = bits_of(type) / 8, count = vector_of(call, 0);
  const char* const from = place_of(call, 1, size * count);
  note_load(call, from, size * count);
  for (size_t i = 0; i < count; ++i) {
    if (call.instruction.operands[0][i].kind != Word::kLabel) call.set(0, i, element(from + size * i, type));
  }
}

void store(const Call& call) {
  const Type type = call.instruction.type;
  if (type == Type::kB128) return store_wide(call);
  const size_t size = bits_of(type) / 8, count = vector_of(call, 1);
  char* const to = place_of(call, 0, size * count);
  note_store(call, to, size * count);
  for (size_t i = 0; i < count; ++i) {
    const uint64_t bits = call.get(1, i);
    memcpy(to + size * i, &bits, size);
  }
  note_progress();
}

// ---- Atomics --------------------------------------------------------------------------------------------------

namespace {

enum class Operation { kAdd, kMin, kMax, kInc, kDec, kAnd, kOr, kXor, kExchange, kCompare };

Operation operation_of(const Call& call) {
  constexpr std::pair<const char*, Operation> kNames[] = {
      {"add", Operation::kAdd},
      {"min", Operation::kMin},
      {"max", Operation::kMax},
      {"inc", Operation::kInc},
      {"dec", Operation::kDec},
      {"and", Operation::kAnd},
      {"or", Operation::kOr},
      {"xor", Operation::kXor},
      {"cas", Operation::kCompare},
      {"exch", Operation::kExchange},
  };
  for (const auto& [name, operation] : kNames) {
    if (call.has(name)) return operation;
  }
  fail_unknown(call);
}

template <typename T>
uint64_t arithmetic(Operation operation, uint64_t a, uint64_t b) {
  const T x = T(a), y = T(b);
  switch (operation) {
    case Operation::kAdd: return std::make_unsigned_t<T>(a + b);
    case Operation::kMin: return std::make_unsigned_t<T>(y < x ? y : x);
    case Operation::kMax: return std::make_unsigned_t<T>(x < y ? y : x);
    case Operation::kInc: return std::make_unsigned_t<T>(x >= y ? 0 : x + 1);
    default: return std::make_unsigned_t<T>(x == 0 || x > y ? y : x - 1);
  }
}

template <typename T>
T float_arithmetic(Operation operation, T a, T b) {
  if (operation != Operation::kAdd && (a != a || b != b)) return a != a && b != b ? T(NAN) : a != a ? b : a;
  return operation == Operation::kAdd ? a + b : operation == Operation::kMin ? std::fmin(a, b) : std::fmax(a, b);
}

uint64_t narrow_arithmetic(Operation operation, uint64_t a, uint64_t b, bool is_bfloat, int halves) {
  uint64_t result = 0;
  for (int half = 0; half < halves; ++half) {
    const uint16_t x = uint16_t(a >> (16 * half)), y = uint16_t(b >> (16 * half));
    const uint16_t bits =
        is_bfloat ? bfloat_bits(float_arithmetic(operation, double(bfloat_value(x)), double(bfloat_value(y))))
                  : half_bits(float_arithmetic(operation, double(half_value(x)), double(half_value(y))));
    result |= uint64_t(bits) << (16 * half);
  }
  return result;
}

float float_sum(float a, float b, bool flushes) {
  return canonical(flushes ? flushed(flushed(a) + flushed(b)) : a + b);
}

// Of a NaN, an addition in global memory leaves even the quiet bit as it is.
uint64_t double_sum(uint64_t a, uint64_t b, bool is_shared) {
  const double x = std::bit_cast<double>(a), y = std::bit_cast<double>(b);
  if (is_shared) return std::bit_cast<uint64_t>(rounded_add(x, y, Rounding::kNearest));
  return x != x ? a : y != y ? b : std::bit_cast<uint64_t>(x + y);
}

// What memory holds after an operation with b, and for a compare also c.
uint64_t combined(
    const Call& call, Operation operation, Type type, uint64_t old, uint64_t b, uint64_t c, bool is_shared) {
  const int bits = bits_of(type);
  const uint64_t all = bits == 64 ? ~uint64_t(0) : (uint64_t(1) << bits) - 1;
  switch (operation) {
    case Operation::kAnd: return old & b;
    case Operation::kOr: return old | b;
    case Operation::kXor: return old ^ b;
    case Operation::kExchange: return b;
    case Operation::kCompare: return old == (b & all) ? c : old;
    default: break;
  }
  switch (type) {
    case Type::kU32:
    case Type::kB32: return arithmetic<uint32_t>(operation, old, b);
    case Type::kS32: return arithmetic<int32_t>(operation, old, b);
    case Type::kU64:
    case Type::kB64: return arithmetic<uint64_t>(operation, old, b);
    case Type::kS64: return arithmetic<int64_t>(operation, old, b);
    case Type::kF32:
      return std::bit_cast<uint32_t>(
          float_sum(std::bit_cast<float>(uint32_t(old)), std::bit_cast<float>(uint32_t(b)), !is_shared));
    case Type::kF64: return double_sum(old, b, is_shared);
    case Type::kF16: return narrow_arithmetic(operation, old, b, false, 1);
    case Type::kF16x2: return narrow_arithmetic(operation, old, b, false, 2);
    case Type::kBf16: return narrow_arithmetic(operation, old, b, true, 1);
    case Type::kBf16x2: return narrow_arithmetic(operation, old, b, true, 2);
    default: fail_unknown(call);
  }
}

}  // namespace

float atomic_sum(const void* place, float a, float b) {
  return float_sum(a, b, !is_in_shared(place, true));
}

namespace {

void note_update(const Call& call, const void* place, size_t bytes) {
  const bool both = call.has("acq_rel");
  const bool acquires = both || call.has("acquire"), releases = both || call.has("release");
  note_atomic(place, bytes, true, true, scope_of(call, Scope::kDevice), acquires, releases);
}

// atom.exch.b128 d, [a], b; atom.cas.b128 d, [a], b, c
void atomic_wide(const Call& call) {
  char* const place = place_of(call, 1, 16);
  note_update(call, place, 16);
  unsigned __int128 old;
  memcpy(&old, place, 16);
  const bool compares = call.has("cas");
  const unsigned __int128 after = !compares ? call.get_wide(2) : old == call.get_wide(2) ? call.get_wide(3) : old;
  memcpy(place, &after, 16);
  call.set_wide(0, old);
  pause_after_atomic(old != after);
}

}  // namespace

// atom.op.type d, [a], b{, c}; red.op.type [a], b
void atomic(const Call& call) {
  const Type type = call.instruction.type;
  if (type == Type::kB128) return atomic_wide(call);
  const size_t size = bits_of(type) / 8, first = call.instruction.parts[0] == "atom";
  const size_t count = vector_of(call, first + 1);
  char* const place = place_of(call, first, size * count);
  const Operation operation = operation_of(call);
  note_update(call, place, size * count);
  bool changed = false;
  const bool is_shared = is_in_shared(place, true);
  for (size_t i = 0; i < count; ++i) {
    uint64_t old = 0;
    memcpy(&old, place + size * i, size);
    const uint64_t c = operation == Operation::kCompare ? call.get(first + 2, i) : 0;
    const uint64_t after = combined(call, operation, type, old, call.get(first + 1, i), c, is_shared);
    memcpy(place + size * i, &after, size);
    changed |= memcmp(&old, &after, size) != 0;
    if (first) call.set(0, i, old);
  }
  pause_after_atomic(changed);
}

void reduce_into(const Call& call, Type type, char* target, const char* source, size_t bytes) {
  const Operation operation = operation_of(call);
  const size_t size = bits_of(type) / 8;
  for (size_t i = 0; i + size <= bytes; i += size) {
    uint64_t old = 0, operand = 0;
    memcpy(&old, target + i, size);
    memcpy(&operand, source + i, size);
    const uint64_t after = combined(call, operation, type, old, operand, 0, false);
    memcpy(target + i, &after, size);
  }
}

void pause_after_atomic(bool changed) {
  if (!machine.current) return;
  if (changed) note_progress();  // A thread that polls gives way in note_atomic.
}

void fail_alignment(const void* address, size_t bytes) {
  fail("an atomic operation on %zu bytes at %p, which is not a multiple of their number", bytes, address);
}

// ---- Fences ---------------------------------------------------------------------------------------------------

void fence(Scope scope) {
  if (machine.current) note_fence(scope);
}

void fence_memory(const Call& call) {
  fence(scope_of(call, Scope::kSystem));
}

void sleep_nanoseconds() {
  yield();
}

unsigned long long nanoseconds() {
  return static_cast<unsigned long long>(ticks());
}

// ---- Shared memory of blocks and clusters ---------------------------------------------------------------------

namespace {

Block& block_of_rank(uint64_t rank, const char* what) {
  const auto& blocks = block().cluster->blocks;
  if (rank >= blocks.size()) fail("%s: the cluster has no block %llu", what, static_cast<unsigned long long>(rank));
  if (blocks[rank]->live == 0) fail("%s: block %d of the cluster has ended", what, int(rank));
  return *blocks[rank];
}

const Block* owner(const void* pointer) {
  const char* const address = static_cast<const char*>(pointer);
  for (const auto& candidate : block().cluster->blocks) {
    if (address >= candidate->shared && address < candidate->shared + kWindow) return candidate.get();
  }
  return nullptr;
}

}  // namespace

uint32_t address_in_window(const void* pointer) {
  const Block* const holder = owner(pointer);
  if (!holder) fail("%p does not point to shared memory", pointer);
  const uint32_t offset = uint32_t(static_cast<const char*>(pointer) - holder->shared);
  return holder == &block() ? offset : offset | uint32_t(holder->rank + 1) << kRankShift;
}

void* pointer_from_window(size_t address) {
  const uint64_t rank = address >> kRankShift, offset = address & kOffsetMask;
  Block& holder = rank ? block_of_rank(rank - 1, "cvta.shared") : block();
  if (offset > kWindow) fail("%#zx is no address in shared memory", address);
  return holder.shared + offset;
}

bool is_in_shared(const void* pointer, bool of_cluster) {
  const Block* const holder = owner(pointer);
  return holder && (of_cluster || holder == &block());
}

bool is_on_stack(const void* pointer) {
  const char* const address = static_cast<const char*>(pointer);
  const char* const here = static_cast<const char*>(__builtin_frame_address(0));
  constexpr ptrdiff_t kStackSize = kStack;
  return address > here - kStackSize && address < here + kStackSize && self().stack && address >= self().stack &&
         address < self().stack + kStackSize;
}

void* map_to_rank(const void* pointer, unsigned rank) {
  Block& other = block_of_rank(rank, "mapa");
  const Block* const holder = owner(pointer);
  if (!holder) fail("mapa: %p does not point to shared memory", pointer);
  return other.shared + (static_cast<const char*>(pointer) - holder->shared);
}

unsigned rank_of(const void* pointer) {
  const Block* const holder = owner(pointer);
  if (!holder) fail("getctarank: %p does not point to shared memory", pointer);
  return unsigned(holder->rank);
}

void map_to_block(const Call& call) {
  const uint64_t rank = call.get(2);
  if (!call.has("shared::cluster")) {
    return call.set(0, reinterpret_cast<uint64_t>(map_to_rank(call.pointer<void>(1), unsigned(rank))));
  }
  block_of_rank(rank, "mapa");
  call.set(0, (call.get(1) & kOffsetMask) | (rank + 1) << kRankShift);
}

void block_rank_of(const Call& call) {
  const uint64_t address = call.get(1);
  if (!call.has("shared::cluster")) return call.set(0, rank_of(reinterpret_cast<const void*>(address)));
  call.set(0, address >> kRankShift ? (address >> kRankShift) - 1 : uint64_t(block().rank));
}

// discard.L2 [a], 128: nobody may rely on what was there.
void discard(const Call& call) {
  const uint64_t bytes = call.get(1);
  if (bytes != 128 || call.get(0) % bytes) fail("'%s' takes 128 bytes, aligned", call.instruction.text.c_str());
  note_write(call.pointer<char>(0), bytes);
  memset(call.pointer<char>(0), 0xff, bytes);
}

// A policy tells caches what to keep, which changes no result.
void make_policy(const Call& call) {
  call.set(0, 0);
}

// ---- Clusters -------------------------------------------------------------------------------------------------

unsigned cluster_rank() {
  return unsigned(block().rank);
}

uint3 cluster_size() {
  const dim3 size = current_launch->configuration.cluster;
  return {size.x, size.y, size.z};
}

uint3 cluster_count() {
  const dim3 grid = current_launch->configuration.grid, size = current_launch->configuration.cluster;
  return {grid.x / size.x, grid.y / size.y, grid.z / size.z};
}

uint3 cluster_index() {
  const dim3 size = current_launch->configuration.cluster;
  return {blockIdx.x / size.x, blockIdx.y / size.y, blockIdx.z / size.z};
}

uint3 cluster_block_index() {
  const dim3 size = current_launch->configuration.cluster;
  return {blockIdx.x % size.x, blockIdx.y % size.y, blockIdx.z % size.z};
}

void cluster_barrier_arrive() {
  cluster_arrive(Call{Instruction{}, nullptr, nullptr});
}

void cluster_barrier_wait() {
  cluster_wait(Call{Instruction{}, nullptr, nullptr});
}

}  // namespace emulator
