// Asynchronous copies: cp.async, and those of the copy engine (TMA).
//
// A load's target holds poison from the load's start on. The bytes of cp.async arrive when the thread that started it
// waits. The bytes of the copy engine arrive at some time, and count at the mbarrier then; its stores read at some time
// before their wait returns.

#include <array>
#include <deque>

#include "accesses.h"
#include "counted_copies.h"
#include "ptx.h"
#include "tensor_map.h"

namespace emulator {

struct Store {
  bool is_done = false;
  std::function<void()> work;

  void finish() {
    if (!is_done) work();
    is_done = true;
  }
};

template <typename T>
struct Groups {
  std::vector<T> open;
  std::deque<std::vector<T>> closed;

  void close() {
    closed.push_back(std::move(open));
    open.clear();
  }
  template <typename F>
  void finish(size_t under_way, const F& f) {
    for (; closed.size() > under_way; closed.pop_front()) {
      for (T& operation : closed.front()) f(operation);
    }
  }
};

struct Copies {
  Groups<Copy> loads;
  Groups<std::shared_ptr<Store>> stores;
  // Engines (see clocks.h) of the stores: what they read, and what they write. The stamps count groups from 1 on.
  uint32_t reader = PhaseClock::kNone, writer = PhaseClock::kNone;
  Stamp group = 1;
};

namespace {

Copies& copies() {
  if (!self().copies) self().copies = std::make_shared<Copies>();
  return *self().copies;
}

void poison(SharedAddress place, size_t bytes) {
  memset(place.pointer(), 0xff, bytes);
  memset(place.async_pointer(), 0xff, bytes);
}

}  // namespace

// ---- cp.async -------------------------------------------------------------------------------------------------

void copy_async(void* shared, const void* global, size_t bytes, size_t read) {
  const SharedAddress to = shared_address(address_in_window(shared), bytes, bytes);
  if (reinterpret_cast<uintptr_t>(global) % bytes) fail("cp.async reads %zu bytes at %p", bytes, global);
  note_copy_start(to.pointer(), global, bytes, read);
  memset(to.pointer(), 0xff, bytes);
  copies().loads.open.push_back({to.pointer(), global, bytes, read, place});
}

void commit_copies() {
  copies().loads.close();
}

void wait_for_copies(int under_way) {
  copies().loads.finish(under_way, [](const Copy& copy) {
    place = copy.place;
    note_copy_end(copy.to, copy.from, copy.bytes, copy.read);
    copy.arrive();
  });
  wait_for_counted_copies();
}

std::vector<Copy> take_copies() {
  commit_copies();
  std::vector<Copy> taken;
  copies().loads.finish(0, [&](const Copy& copy) { taken.push_back(copy); });
  return taken;
}

void cp_async_commit(const Call&) {
  commit_copies();
}

void cp_async_wait(const Call& call) {
  if (call.has("wait_all")) commit_copies();
  wait_for_copies(call.has("wait_all") ? 0 : call.get(0));
}

// ---- The copy engine ------------------------------------------------------------------------------------------

namespace {

void copy_changes(Block& block) {
  for (size_t i = 0; i < std::size(block.changed); ++i) {
    for (uint64_t& rest = block.changed[i]; rest; rest &= rest - 1) {
      const size_t begin = (i * 64 + std::countr_zero(rest)) * Block::kChunk;
      memcpy(block.async_shared + begin, block.shared + begin, std::min<size_t>(Block::kChunk, window_end() - begin));
    }
  }
}

}  // namespace

// Makes writes to shared memory visible to the copy engine and wgmma. On a GPU only this thread's; the emulator does
// not know which thread wrote what.
void fence_async(const Call&) {
  fence_proxy(self());
  show_mbarriers(block(), PhaseClock::Shown::kCluster);
  copy_changes(block());
}

namespace {

// The part of a tensor that a copy moves.
struct Box {
  TensorMap map;
  int coordinates[5] = {};

  size_t bytes() const {
    size_t bytes = map.element_bytes;
    for (int i = 0; i < map.rank; ++i) bytes *= map.box[i];
    return bytes;
  }

  uint32_t swizzled(uint32_t address) const {
    const uint32_t bits = (1u << map.swizzle) - 1;
    return address ^ ((address >> 7 & bits) << 4);
  }

  // Calls visit(offset, data, begin, end) for each chunk of 16 bytes: its offset in the box, its address in the tensor,
  // and the range of its bytes that lie inside the tensor.
  template <typename F>
  void for_each_chunk(const F& visit) const {
    const int row_bytes = map.box[0] * map.element_bytes;
    const size_t rows = bytes() / row_bytes;
    for (size_t row = 0; row < rows; ++row) {
      char* data = map.data;
      bool inside = true;
      size_t remaining = row;
      for (int i = 1; i < map.rank; ++i) {
        const int64_t coordinate = int64_t(remaining % map.box[i]) + coordinates[i];
        remaining /= map.box[i];
        inside = inside && coordinate >= 0 && coordinate < map.sizes[i];
        data += coordinate * int64_t(map.strides[i - 1]);
      }
      const int64_t row_end = int64_t(map.sizes[0]) * map.element_bytes;
      for (int chunk = 0; chunk < row_bytes; chunk += 16) {
        const int64_t first = int64_t(coordinates[0]) * map.element_bytes + chunk;
        const int begin = inside ? std::min<int64_t>(std::max<int64_t>(-first, 0), 16) : 16;
        const int end = inside ? std::min<int64_t>(std::max<int64_t>(row_end - first, begin), 16) : 16;
        visit(row * row_bytes + chunk, data + first, begin, end);
      }
    }
  }
};

// The box that an operand [map, {coordinates}] describes.
Box box_of(const Call& call, size_t operand) {
  Box box;
  const auto* map = call.pointer<CUtensorMap>(operand);
  memcpy(&box.map, map, sizeof(box.map));
  if (box.map.mark != kTensorMapMark) fail("%p is no tensor map", static_cast<const void*>(map));
  const int rank = call.number("");
  if (rank != box.map.rank || call.words(operand) != size_t(rank) + 1) {
    fail("'%s' of a tensor of %d dimensions", call.instruction.text.c_str(), box.map.rank);
  }
  for (int i = 0; i < rank; ++i) box.coordinates[i] = int32_t(call.get(operand, i + 1));
  // PTX does not say so; an H100 stops with an illegal instruction at every other one.
  if (box.coordinates[0] * box.map.element_bytes % 16) {
    fail(
        "'%s' at %d in the innermost dimension; there a box begins at a multiple of 16 bytes, which are %d elements",
        call.instruction.text.c_str(), box.coordinates[0], 16 / box.map.element_bytes);
  }
  return box;
}

// Starts a load: poisons the target now; at some time `land` copies, and then the bytes count at the barrier.
// `note(engine, stamp)` notes what the load reads.
template <typename Note, typename Land>
void start_load(SharedAddress to, SharedAddress barrier, size_t bytes, const Note& note, const Land& land) {
  if (to.block != barrier.block) fail("a load to one block with its mbarrier in another");
  if (to.block->live == 0) fail("a load to the shared memory of a block that has ended");
  shared_address(to.offset, bytes, 1);
  check_known(barrier);
  const auto [engine, stamp] = engine_of(barrier);
  note_engine_access(*barrier.block, engine, stamp, Unit::kTensorCopy, barrier.pointer(), 8, true, true);
  note_engine_access(*to.block, engine, stamp, Unit::kTensorCopy, to.pointer(), bytes, true, false);
  note(engine, stamp);
  poison(to, bytes);
  ++to.block->loads_under_way;
  later([=] {
    land(to);
    --to.block->loads_under_way;
    complete_bytes(barrier, bytes);
  });
}

void write(SharedAddress place, const void* from, size_t bytes) {
  memcpy(place.pointer(), from, bytes);
  memcpy(place.async_pointer(), from, bytes);
}

template <typename Note>
void start_store(const Note& note, std::function<void()> work) {
  Copies& own = copies();
  if (own.reader == PhaseClock::kNone) {
    own.reader = block().engines++;
    own.writer = block().engines++;
  }
  note(own);
  auto store = std::make_shared<Store>();
  store->work = std::move(work);
  copies().stores.open.push_back(store);
  later([store] { store->finish(); });
}

// Notes what a store reads and writes.
void note_store(const Copies& own, const char* shared, const char* global, size_t bytes, bool adds) {
  Block& here = block();
  note_engine_access(here, own.reader, own.group, Unit::kBulkStore, shared, bytes, false, false);
  note_engine_access(here, own.writer, own.group, Unit::kBulkStore, global, bytes, true, adds);
}

bool reduces(const Call& call) {
  return call.has("reduce");
}

// Stores bytes of one chunk, or combines them with the target.
void store_or_reduce(const Call& call, Type type, char* target, const char* source, size_t bytes) {
  if (reduces(call)) return reduce_into(call, type, target, source, bytes);
  memcpy(target, source, bytes);
}

// The type of a tensor's elements, as reductions take them.
Type type_of(const Call& call, const TensorMap& map) {
  constexpr std::pair<CUtensorMapDataType, Type> kTypes[] = {
      {CU_TENSOR_MAP_DATA_TYPE_UINT32, Type::kU32},
      {CU_TENSOR_MAP_DATA_TYPE_INT32, Type::kS32},
      {CU_TENSOR_MAP_DATA_TYPE_UINT64, Type::kU64},
      {CU_TENSOR_MAP_DATA_TYPE_INT64, Type::kS64},
      {CU_TENSOR_MAP_DATA_TYPE_FLOAT16, Type::kF16},
      {CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, Type::kBf16},
      {CU_TENSOR_MAP_DATA_TYPE_FLOAT32, Type::kF32},
      {CU_TENSOR_MAP_DATA_TYPE_FLOAT32_FTZ, Type::kF32},
      {CU_TENSOR_MAP_DATA_TYPE_FLOAT64, Type::kF64},
  };
  for (const auto& [number, type] : kTypes) {
    if (map.type == number) return type;
  }
  if (reduces(call)) fail("'%s' on a tensor whose elements cannot be combined", call.instruction.text.c_str());
  return Type::kNone;
}

}  // namespace

// cp{.reduce}.async.bulk.tensor.nd... [map, {coordinates}], [shared]
//
// A chunk of 16 bytes that lies in part beyond the end of a row is written whole, into what pads the row; and a negative
// coordinate is an illegal instruction. PTX says neither; an H100 does both.
void tensor_store(const Call& call) {
  const Box box = box_of(call, 0);
  const SharedAddress from = shared_address(call.get(1), box.bytes(), 128);
  for (int i = 0; i < box.map.rank; ++i) {
    if (box.coordinates[i] >= 0) continue;
    fail(
        "'%s' at %d in dimension %d; a store begins inside the tensor", call.instruction.text.c_str(),
        box.coordinates[i], i);
  }
  const auto note = [&](const Copies& own) {
    box.for_each_chunk([&](size_t offset, char* data, int begin, int end) {
      const char* const chunk = from.block->shared + box.swizzled(from.offset + offset);
      if (begin < end) note_store(own, chunk, data, 16, reduces(call));
    });
  };
  const Type type = type_of(call, box.map);
  start_store(note, [call, type, box, from] {
    box.for_each_chunk([&](size_t offset, char* data, int begin, int end) {
      const char* const chunk = from.block->async_shared + box.swizzled(from.offset + offset);
      if (begin < end) store_or_reduce(call, type, data, chunk, 16);
    });
  });
}

namespace {

void check_bulk(const Call& call, size_t bytes, const void* global) {
  if (bytes % 16 || reinterpret_cast<uintptr_t>(global) % 16) {
    fail("'%s' of %zu bytes at %p; both must be multiples of 16", call.instruction.text.c_str(), bytes, global);
  }
}

// The blocks of the cluster that a load goes to: those of the mask that .multicast::cluster adds as an operand.
uint32_t targets_of(const Call& call, size_t operand, SharedAddress to) {
  const uint32_t targets = call.has("multicast::cluster") ? call.get(operand) : 1u << to.block->rank;
  const size_t count = block().cluster->blocks.size();
  if (targets == 0 || targets >> count) fail("a load to the blocks %#x of %zu", targets, count);
  return targets;
}

// Calls start(to, barrier) for each block that a load goes to. With multicast, each block's mbarrier counts the bytes.
template <typename F>
void for_each_target(const Call& call, uint32_t targets, SharedAddress to, SharedAddress barrier, const F& start) {
  if (!call.has("multicast::cluster")) return start(to, barrier);
  for (const auto& target : block().cluster->blocks) {
    if (targets >> target->rank & 1) {
      start(SharedAddress{target.get(), to.offset}, SharedAddress{target.get(), barrier.offset});
    }
  }
}

}  // namespace

// cp.async.bulk.tensor.nd... [shared], [map, {coordinates}], [barrier]{, blocks}{, cache policy}
void tensor_load(const Call& call) {
  const Box box = box_of(call, 1);
  const size_t bytes = box.bytes();
  const SharedAddress first = shared_address(call.get(0), bytes, 128), barrier = shared_address(call.get(2), 8, 8);
  const auto start = [&](SharedAddress to, SharedAddress at) {
    const auto note = [&](uint32_t engine, Stamp stamp) {
      box.for_each_chunk([&](size_t, const char* data, int begin, int end) {
        if (begin >= end) return;
        note_engine_access(*to.block, engine, stamp, Unit::kTensorCopy, data + begin, end - begin, false, false);
      });
    };
    start_load(to, at, bytes, note, [box](SharedAddress to) {
      box.for_each_chunk([&](size_t offset, const char* data, int begin, int end) {
        char chunk[16] = {};
        if (begin < end) memcpy(chunk + begin, data + begin, end - begin);
        write({to.block, box.swizzled(to.offset + offset)}, chunk, 16);
      });
    });
  };
  for_each_target(call, targets_of(call, 3, first), first, barrier, start);
}

// cp.async.bulk.shared::cluster.global... [shared], [global], bytes, [barrier]{, blocks}{, cache policy}
void bulk_load(const Call& call) {
  const size_t bytes = call.get(2);
  const char* global = call.pointer<char>(1);
  check_bulk(call, bytes, global);
  const SharedAddress first = shared_address(call.get(0), bytes, 16), barrier = shared_address(call.get(3), 8, 8);
  const auto start = [&](SharedAddress to, SharedAddress at) {
    const auto note = [&](uint32_t engine, Stamp stamp) {
      note_engine_access(*to.block, engine, stamp, Unit::kTensorCopy, global, bytes, false, false);
    };
    start_load(to, at, bytes, note, [=](SharedAddress to) { write(to, global, bytes); });
  };
  for_each_target(call, targets_of(call, 4, first), first, barrier, start);
}

// cp.async.bulk.shared::cluster.shared::cta... [shared of the cluster], [shared], bytes, [barrier]
void bulk_send(const Call& call) {
  const size_t bytes = call.get(2);
  check_bulk(call, bytes, nullptr);
  const SharedAddress to = shared_address(call.get(0), bytes, 16), from = shared_address(call.get(1), bytes, 16);
  const auto note = [&](uint32_t engine, Stamp stamp) {
    note_engine_access(*to.block, engine, stamp, Unit::kTensorCopy, from.pointer(), bytes, false, false);
  };
  start_load(to, shared_address(call.get(3), 8, 8), bytes, note, [=](SharedAddress to) {
    write(to, from.async_pointer(), bytes);
  });
}

// st.async... [shared of the cluster], values, [barrier]
void send_registers(const Call& call) {
  const size_t size = bits_of(call.instruction.type) / 8, count = call.has("v4") ? 4 : call.has("v2") ? 2 : 1;
  if (call.words(1) != count) fail("'%s' takes %zu elements", call.instruction.text.c_str(), count);
  const size_t bytes = size * count;
  std::array<char, 32> data{};
  for (size_t i = 0; i < count; ++i) {
    const uint64_t bits = call.get(1, i);
    memcpy(data.data() + size * i, &bits, size);
  }
  const auto reads_nothing = [](uint32_t, Stamp) {};
  start_load(
      shared_address(call.get(0), bytes, bytes),
      shared_address(call.get(2), 8, 8),
      bytes,
      reads_nothing,
      [data, bytes](SharedAddress to) { write(to, data.data(), bytes); });
}

// cp{.reduce}.async.bulk.global.shared::cta.bulk_group... [global], [shared], bytes
void bulk_store(const Call& call) {
  const size_t bytes = call.get(2);
  char* global = call.pointer<char>(0);
  check_bulk(call, bytes, global);
  const SharedAddress from = shared_address(call.get(1), bytes, 16);
  start_store(
      [&](const Copies& own) { note_store(own, from.pointer(), global, bytes, reduces(call)); },
      [call, global, from, bytes] {
        store_or_reduce(call, call.instruction.type, global, from.async_pointer(), bytes);
      });
}

void bulk_commit(const Call&) {
  copies().stores.close();
  ++copies().group;
}

void bulk_wait(const Call& call) {
  Copies& own = copies();
  own.stores.finish(call.get(0), [](const auto& store) { store->finish(); });
  if (own.reader == PhaseClock::kNone) return;
  const Stamp done = own.group - 1 - own.stores.closed.size();
  learn(self(), view_of_engine(block().id, own.reader, done));
  if (!call.has("read")) learn(self(), view_of_engine(block().id, own.writer, done));
}

void check_copies_at_exit(Thread& thread) {
  if (!thread.copies->stores.open.empty() || !thread.copies->stores.closed.empty()) {
    fail("a thread ends without having waited for its bulk stores");
  }
}

}  // namespace emulator
