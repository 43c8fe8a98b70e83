#include "accesses.h"

#include <sys/mman.h>

#include <algorithm>
#include <unordered_map>

#include "machine.h"
#include "memory.h"
#include "reports.h"
#include "shadow.h"
#include "source_lines.h"

namespace emulator {

const void* place = nullptr;

namespace {

constexpr uintptr_t kPageBytes = 4096;
constexpr int kPageCells = kPageBytes / 4, kWindowCells = kWindow / 4 + 4;

struct Page {
  Cell cells[kPageCells];
};

std::unordered_map<uintptr_t, std::unique_ptr<Page>> pages;  // Of global memory, by number.
struct Latest {
  uintptr_t number = 0;
  Page* page = nullptr;
};
constexpr size_t kLatest = 64;
Latest latest[kLatest];

std::unordered_map<const char*, Cell*> cells_of_windows;  // By the window's address; they are kept.

// A write that another thread's unordered write precedes, until it is known whether both write the same.
struct Deferred {
  Entry earlier, access;
  const char* address;
  uint32_t before;
  uint8_t bytes;
};
std::vector<Deferred> deferred;

bool same_bytes(uint32_t a, uint32_t b, uint8_t bytes) {
  for (int i = 0; i < 4; ++i) {
    if (bytes >> i & 1 && (a ^ b) >> (8 * i) & 0xff) return false;
  }
  return true;
}

uint32_t word_in_memory(const char* address) {
  uint32_t word;
  memcpy(&word, address, 4);
  return word;
}

Cell& global_cell(uintptr_t address) {
  const uintptr_t number = address / kPageBytes;
  Latest& entry = latest[number % kLatest];
  if (entry.number != number || !entry.page) {
    auto& page = pages[number];
    if (!page) page = std::make_unique<Page>();
    entry = {number, page.get()};
  }
  Cell& cell = entry.page->cells[address % kPageBytes / 4];
  if (!cell.is_known) {
    const WordAccess word = word_at(address & ~uintptr_t(3));
    cell.may_read = word.may_read;
    cell.may_write = word.may_write;
    cell.written = word.written;
    cell.keeps_written = word.keeps_written;
    cell.is_known = true;
  }
  return cell;
}

Cell* shared_cells(Block& block) {
  Cell*& cells = cells_of_windows[block.shared];
  if (!cells) {
    void* memory = mmap(
        nullptr,
        kWindowCells * sizeof(Cell),
        PROT_READ | PROT_WRITE,
        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
        -1,
        0);
    if (memory == MAP_FAILED) fail_without_unwinding("no memory for the emulator");
    cells = static_cast<Cell*>(memory);
  }
  return cells;
}

// The words of an access, one after the other: visit(address of the word, mask of its bytes).
template <typename F>
void for_each_word(const char* address, size_t bytes, const F& visit) {
  const char* const end = address + bytes;
  while (address < end) {
    const unsigned first = reinterpret_cast<uintptr_t>(address) % 4;
    const unsigned count = std::min<size_t>(4 - first, end - address);
    visit(address - first, uint8_t(((1u << count) - 1) << first));
    address += count;
  }
}

}  // namespace

// What an access did to a word. To another word in the same state it does the same: mostly the words of a row or tile
// have been written at once.
struct Change {
  bool is_known = false;
  uint8_t bytes;
  CellState before, after;
};

struct Request {
  enum Step { kBoth, kCheck, kRemember } step = kBoth;
  Actor actor;
  Entry entry;
  bool checks_written;               // Plain loads fail where nobody has written.
  const Warp* proxied_by = nullptr;  // The warp on whose behalf the asynchronous proxy acts.
  Change* change = nullptr;          // Its latest, where there are several accesses.
};

namespace {

void check_use(Block& own, Block* target, const Request& request, const char* address) {
  if (!target || target->cluster != own.cluster) {
    fail_without_unwinding(
        "the shared memory of another block, which is not of this cluster or has ended, is used" +
        place_of(request.entry));
  }
  if (target->live == 0) {
    fail_without_unwinding(
        text("the shared memory of block %d of the cluster, which has ended, is used", target->rank) +
        place_of(request.entry));
  }
  const Clock* const known = request.actor.view ? request.actor.view->known.get() : nullptr;
  if (!known || !known->of(target->id)) {
    fail_without_unwinding(
        text(
            "the shared memory of block %d of the cluster is used, and nothing says that the block has started: no "
            "cluster barrier before",
            target->rank) +
        place_of(request.entry));
  }
}

// The toolkit's own headers are right, and read elements whose value they do not use: CUB's merge sort reads the key
// after the last. Whether a value is used is not known here, so that they are told by their place.
bool may_read_unwritten(const Entry& access) {
  return access.place && is_in_toolkit(place_in_memory(access.place));
}

// Checks and records an access to one memory: `cell_of(address)` are its cells.
template <typename CellOf>
void access(const Request& request, const char* address, size_t bytes, bool is_global, const CellOf& cell_of) {
  Entry entry = request.entry;
  static Change of_this;
  of_this.is_known = false;
  Change* const change = request.change ? request.change : bytes > 4 ? &of_this : nullptr;
  for_each_word(address, bytes, [&](const char* word, uint8_t mask) {
    Cell& cell = cell_of(word);
    if (change) {
      if (change->is_known && mask == change->bytes && !cell.more && cell == change->before) {
        static_cast<CellState&>(cell) = change->after;
        return;
      }
      change->bytes = mask;
      change->before = cell;
    }
    bool is_usual = !cell.more && !cell.keeps_written;
    entry.bytes = mask;
    if (mask & ~(entry.writes() ? cell.may_write : cell.may_read)) {
      const int first = std::countr_zero(unsigned(mask & ~(entry.writes() ? cell.may_write : cell.may_read)));
      is_usual = false;
      report_bounds(entry, word + first, bytes, is_global);
    }
    if (request.checks_written && !(cell.written & mask)) {
      // The upper half of eight bytes may be padding that a copy of a struct reads.
      const bool may_pad = bytes > 8 && reinterpret_cast<uintptr_t>(word) % 8 == 4;
      is_usual = false;
      if (!may_pad && !may_read_unwritten(entry)) {
        report_unwritten(entry, word + std::countr_zero(unsigned(mask)), bytes, is_global);
      }
    }
    const Entry* const earlier = request.step == Request::kRemember ? nullptr : find_race(cell, request.actor, entry);
    if (earlier) {
      const bool both_write = entry.writes() && earlier->writes() && !entry.atomic() && !earlier->atomic();
      const bool both_threads = entry.unit == Unit::kThread && earlier->unit == Unit::kThread;
      if (!both_write || !both_threads) {
        report_race(*earlier, entry, word + std::countr_zero(unsigned(mask & earlier->bytes)), is_global);
      }
      is_usual = false;
      deferred.push_back({*earlier, entry, word, word_in_memory(word), uint8_t(mask & earlier->bytes)});
    }
    // A write that is not even ordered before the read is a race; an ordered one needs the fence besides.
    if (request.proxied_by && !entry.writes() && !is_global) {
      if (const Entry* write = unfenced_write(cell, request.actor, *request.proxied_by, mask)) {
        is_usual = false;
        report_unfenced(entry, *write, word + std::countr_zero(unsigned(mask)));
      }
    }
    const bool is_remembered = request.step != Request::kCheck;
    if (is_remembered) remember(cell, request.actor, entry);
    if (is_remembered && entry.writes() && (cell.written & mask) != mask) {
      cell.written |= mask;
      if (cell.keeps_written) note_written(reinterpret_cast<uintptr_t>(word), mask);
    }
    if (!change) return;
    change->is_known = is_usual && !cell.more;
    change->after = cell;
  });
}

void route(const Request& request, const char* address, size_t bytes) {
  bool is_window = false;
  Block* const target = block_of_window(address, is_window);
  if (!is_window) {
    return access(request, address, bytes, true, [](const char* word) -> Cell& {
      return global_cell(reinterpret_cast<uintptr_t>(word));
    });
  }
  Block& own = *request.actor.block;
  const bool is_remote = target != &own && request.entry.index() < Entry::kEngines;
  if (is_remote) check_use(own, target, request, address);
  Cell* const cells = shared_cells(*target);
  if (request.entry.writes()) note_change(*target, address - target->shared, bytes);
  access(request, address, bytes, false, [&](const char* word) -> Cell& {
    const size_t number = (word - target->shared) / 4;
    Cell& cell = cells[number];
    cell.may_read = cell.may_write = current_launch->valid[number];
    if (number < kReservedShared / 4) cell.written = 0xf;  // Zeros at the start: see start() in blocks.cpp.
    if (is_remote) target->remote_cells.push_back(&cell);
    return cell;
  });
}

Request request_of(const Thread& thread, uint8_t flags, const void* pc) {
  Request request;
  Block& block = *thread.warp->block;
  request.actor = {&block, uint32_t(thread.warp->number), 1u << thread.lane, thread.view.get(), thread.known_of_block};
  request.entry.component = block.id << Entry::kIndexBits | thread.warp->number;
  request.entry.lanes = 1u << thread.lane;
  request.entry.stamp = thread.own.now;
  request.entry.place = relative_place(pc ? pc : place);
  request.entry.flags = flags;
  request.checks_written = false;
  return request;
}

// What the emulator keeps for the kernel: threadIdx and its like.
extern "C" char __start_emulator_index[], __stop_emulator_index[];

bool is_own(const Thread& thread, const char* address) {
  return size_t(address - thread.stack) < kStack ||
         size_t(address - __start_emulator_index) < size_t(__stop_emulator_index - __start_emulator_index);
}

bool is_of_host(const char* address) {
  return size_t(address - current_launch->host_stack_begin) <
         size_t(current_launch->host_stack_end - current_launch->host_stack_begin);
}

// Whether a thread has failed already, and the kernel goes on to its next barrier: see report_access. Not for long.
bool is_failing() {
  constexpr int kMostAccesses = 1'000'000;
  static int accesses = 0;
  if (machine.pending_report.empty()) {
    accesses = 0;
  } else if (++accesses > kMostAccesses) {
    fail_without_unwinding("");
  }
  return !machine.pending_report.empty();
}

bool may_write(const char* address, size_t bytes) {
  bool is_window = false, may = true;
  Block* const target = block_of_window(address, is_window);
  if (is_window && !target) return false;
  for_each_word(address, bytes, [&](const char* word, uint8_t mask) {
    const uint8_t allowed = is_window ? uint8_t(current_launch->valid[(word - target->shared) / 4])
                                      : global_cell(reinterpret_cast<uintptr_t>(word)).may_write;
    may = may && !(mask & ~allowed);
  });
  return may;
}

void note_plain(const void* pointer, size_t bytes, bool writes, const void* pc) {
  Thread* const thread = machine.current;
  if (!thread || bytes == 0) return;
  const char* const address = static_cast<const char*>(pointer);
  const bool fails = is_failing();
  if (fails && !writes) return;
  if (is_own(*thread, address)) return;
  if (fails) {
    // The index may come from what was raced for, or from what nobody wrote: it leads anywhere.
    if (!is_of_host(address) && !may_write(address, bytes)) fail_without_unwinding("");
    return;
  }
  if (!deferred.empty()) settle_accesses();
  if (is_of_host(address)) return;
  Request request = request_of(*thread, writes ? Entry::kWrites : 0, pc);
  request.checks_written = !writes;
  route(request, address, bytes);
}

}  // namespace

void note_read(const void* address, size_t bytes, const void* pc) {
  note_plain(address, bytes, false, pc);
}

void note_write(const void* address, size_t bytes, const void* pc) {
  note_plain(address, bytes, true, pc);
}

void note_atomic(
    const void* pointer,
    size_t bytes,
    bool reads,
    bool writes,
    Scope scope,
    bool acquire,
    bool releases,
    const void* pc) {
  Thread* const thread = machine.current;
  const char* const address = static_cast<const char*>(pointer);
  if (!thread || is_own(*thread, address)) return;
  settle_accesses();
  if (is_of_host(address)) return;
  if (reads) poll();
  uint8_t flags = Entry::kAtomic | (writes ? Entry::kWrites : 0) | (reads && writes ? Entry::kUpdates : 0);
  if (scope == Scope::kBlock) flags |= Entry::kOfBlock;
  Request request = request_of(*thread, flags, pc);
  request.checks_written = reads;
  route(request, address, bytes);
  bool is_window = false;
  Block* const target = block_of_window(address, is_window);
  auto& published = is_window ? target->published : current_launch->published;
  const auto key = reinterpret_cast<uintptr_t>(address);
  const bool publishes = releases || thread->own.fenced[0] || (thread->view && thread->view->fenced[0]);
  if (!publishes && !published.contains(key)) return;
  published[key].note(*thread, reads, writes, scope, acquire, releases);
}

void note_mbarrier(const void* address, bool writes) {
  settle_accesses();
  const Request request = request_of(self(), Entry::kAtomic | (writes ? Entry::kWrites : 0), nullptr);
  route(request, static_cast<const char*>(address), 8);
}

void note_fence(Scope scope) {
  if (machine.current) fence(self(), scope);
}

void note_warp_access(Warp& warp, const void* pointer, size_t bytes, bool writes) {
  settle_accesses();
  const char* const address = static_cast<const char*>(pointer);
  const uint8_t flags = writes ? Entry::kWrites : 0;
  // Every lane has to know of the accesses before. Lanes that know the same, mostly all, are checked together.
  const auto for_each_group = [&](bool by_stamp, const auto& visit) {
    for (uint32_t rest = ~warp.exited; rest;) {
      const Thread& first = warp.threads[std::countr_zero(rest)];
      uint32_t group = 0;
      for (uint32_t others = rest; others; others &= others - 1) {
        const Thread& other = warp.threads[std::countr_zero(others)];
        const bool same = by_stamp ? other.own.now == first.own.now : other.view == first.view;
        if (same) group |= others & -others;
      }
      rest &= ~group;
      Request request = request_of(first, flags, nullptr);
      request.entry.lanes = group;
      request.actor.own_lanes = group & (group - 1) ? 0 : group;
      visit(request);
    }
  };
  for_each_group(false, [&](Request& request) {
    request.step = Request::kCheck;
    route(request, address, bytes);
  });
  for_each_group(true, [&](Request& request) {
    request.step = Request::kRemember;
    route(request, address, bytes);
  });
}

ProductReader::ProductReader(Warp& warp, const ViewPointer& view, uint32_t engine, Stamp stamp)
    : request_(std::make_unique<Request>(request_of(self(), Entry::kAsyncProxy, nullptr))),
      change_(std::make_unique<Change>()) {
  settle_accesses();
  const uint32_t block = warp.block->id;
  Actor& actor = request_->actor;
  actor.view = view.get();
  actor.known_of_block = view && view->known ? view->known->of(block) : nullptr;
  actor.own_lanes = kAllLanes;
  Entry& entry = request_->entry;
  entry.component = block << Entry::kIndexBits | (Entry::kEngines + engine);
  entry.lanes = 1;
  entry.stamp = stamp;
  entry.unit = Unit::kProduct;
  request_->proxied_by = &warp;
  request_->change = change_.get();
}

ProductReader::~ProductReader() = default;

void ProductReader::note(const char* address, size_t bytes) const {
  route(*request_, address, bytes);
}

void note_engine_access(
    Block& target, uint32_t engine, Stamp stamp, Unit unit, const void* address, size_t bytes, bool writes, bool adds) {
  settle_accesses();
  const uint8_t flags = Entry::kAsyncProxy | (writes || adds ? Entry::kWrites : 0) | (adds ? Entry::kAtomic : 0);
  Request request = request_of(self(), flags, nullptr);
  request.entry.component = target.id << Entry::kIndexBits | (Entry::kEngines + engine);
  request.entry.lanes = 1;
  request.entry.stamp = stamp;
  request.entry.unit = unit;
  request.proxied_by = &warp();
  route(request, static_cast<const char*>(address), bytes);
}

void note_copy_start(const void* shared, const void* global, size_t bytes, size_t read) {
  settle_accesses();
  Request request = request_of(self(), Entry::kWrites | Entry::kUnderWay, nullptr);
  request.entry.unit = Unit::kCopy;
  route(request, static_cast<const char*>(shared), bytes);
  request.entry.flags = Entry::kUnderWay;
  request.checks_written = true;
  if (read) route(request, static_cast<const char*>(global), read);
}

namespace {

// Forgets that a cp.async of the current thread is under way, and notes instead that it is done, or whose it is now.
void end_copy(const char* address, size_t bytes, const Request& request) {
  const Request own = request_of(self(), 0, nullptr);
  const auto forget = [&](Cell& cell, uint8_t mask) {
    const auto is_own = [&](Entry& entry) {
      const bool same = entry.component == own.entry.component && entry.writes() == request.entry.writes();
      if (same && entry.flags & Entry::kUnderWay && entry.bytes & mask) entry.lanes &= ~own.entry.lanes;
      return entry.lanes == 0;
    };
    cell.remove_if(is_own);
  };
  bool is_window = false;
  Block* const target = block_of_window(address, is_window);
  for_each_word(address, bytes, [&](const char* word, uint8_t mask) {
    forget(
        is_window ? shared_cells(*target)[(word - target->shared) / 4] : global_cell(reinterpret_cast<uintptr_t>(word)),
        mask);
  });
  route(request, address, bytes);
}

}  // namespace

void note_copy_end(const void* shared, const void* global, size_t bytes, size_t read) {
  Request request = request_of(self(), Entry::kWrites, nullptr);
  request.entry.unit = Unit::kCopy;
  end_copy(static_cast<const char*>(shared), bytes, request);
  request.entry.flags = 0;
  if (read) end_copy(static_cast<const char*>(global), read, request);
}

void note_counted_copy(
    uint32_t engine, Stamp stamp, const void* shared, const void* global, size_t bytes, size_t read) {
  Request request = request_of(self(), Entry::kWrites, nullptr);
  request.entry.component = block().id << Entry::kIndexBits | (Entry::kEngines + engine);
  request.entry.lanes = 1;
  request.entry.stamp = stamp;
  request.entry.unit = Unit::kCountedCopy;
  end_copy(static_cast<const char*>(shared), bytes, request);
  request.entry.flags = 0;
  if (read) end_copy(static_cast<const char*>(global), read, request);
}

void settle_accesses() {
  for (; !deferred.empty(); deferred.pop_back()) {
    const Deferred& check = deferred.back();
    if (same_bytes(check.before, word_in_memory(check.address), check.bytes)) continue;
    bool is_window = false;
    block_of_window(check.address, is_window);
    report_race(check.earlier, check.access, check.address + std::countr_zero(unsigned(check.bytes)), !is_window);
  }
  if (machine.accused && machine.accused == machine.current) fail_without_unwinding("");
}

// ---- The record -----------------------------------------------------------------------------------------------

void clear_global_accesses() {
  deferred.clear();
  std::fill(std::begin(latest), std::end(latest), Latest());
  pages.clear();
}

void clear_shared_accesses(Block& block, uint32_t begin, uint32_t end) {
  Cell* const cells = shared_cells(block);
  for (uint32_t i = begin / 4; i < (end + 3) / 4; ++i) cells[i] = Cell();
}

void check_remote_accesses(Block& block) {
  const ViewPointer& view = block.exited.view();
  const BlockClock* const own = view && view->known ? view->known->of(block.id) : nullptr;
  const Actor end{&block, Entry::kEngines, 0, view.get(), own};
  for (const Cell* cell : block.remote_cells) {
    cell->any([&](const Entry& entry) {
      if (entry.block() == block.id || end.knows(entry)) return false;
      report_use_after_end(block, entry);
      return true;
    });
  }
}

}  // namespace emulator
