#include "machine.h"

#include <execinfo.h>
#include <sys/mman.h>
#include <ucontext.h>

#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <map>

#include "ptx.h"

// Those of the thread that runs.
uint3 threadIdx, blockIdx;
dim3 blockDim, gridDim;

namespace emulator {

Machine machine;

namespace {

constexpr size_t kStack = 256 * 1024;
constexpr unsigned char kPoison = 0xff;  // Floating-point numbers of such bytes are NaN.
constexpr size_t kGap = 256;             // Bytes after the dynamic shared memory that nothing may touch.

// What all blocks of a launch have in common.
struct Launch {
  const char* name;
  Configuration configuration;
  void (*body)(void*);
  void* arguments;
  std::vector<std::unique_ptr<Cluster>> clusters;  // Those that are on the machine.
  std::vector<std::function<void()>> pending;      // See `later`.
  std::map<const void*, uint32_t> variables;       // Where shared variables lie in the window.
  uint32_t dynamic = 0, gap, end;
};

Launch* launch_now = nullptr;
jmp_buf scheduler;
bool tracing = false;
std::map<const void*, int> most_dynamic;  // That kernels have asked for.
std::vector<char*> stacks, windows;       // Of fibers and blocks, to be used again.
long long clock_ticks = 0;

char* map_memory(size_t bytes) {
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) fail("no memory for the emulator");
  return static_cast<char*>(memory);
}

// ---- Threads --------------------------------------------------------------------------------------------------

void enter_scheduler() {
  if (tracing) {
    void* frames[24];
    self().trace.assign(frames, frames + backtrace(frames, 24));
  }
  if (_setjmp(self().context) == 0) _longjmp(scheduler, 1);
  if (tracing) enter_scheduler();
}

void finish_thread();

void thread_main() {
  try {
    launch_now->body(launch_now->arguments);
    finish_thread();
  } catch (const Failure& failure) {
    machine.failure = failure.text;
  }
  _longjmp(scheduler, 1);
}

// The start of a block: what its shared memory held is nobody's business.
void begin(Block& block) {
  block.started = true;
  memset(block.shared, kPoison, launch_now->end);
  memset(block.async_shared, kPoison, launch_now->end);
}

void resume(Thread& thread) {
  Block& block = *thread.warp->block;
  machine.current = &thread;
  threadIdx = thread.index;
  blockIdx = block.index;
  ++clock_ticks;
  if (_setjmp(scheduler) != 0) {
    machine.current = nullptr;
    return;
  }
  if (thread.started) _longjmp(thread.context, 1);
  thread.started = true;
  if (!block.started) begin(block);
  if (stacks.empty()) stacks.push_back(map_memory(kStack));
  thread.stack = stacks.back();
  stacks.pop_back();
  ucontext_t context;
  getcontext(&context);
  context.uc_stack.ss_sp = thread.stack;
  context.uc_stack.ss_size = kStack;
  context.uc_link = nullptr;
  makecontext(&context, thread_main, 0);
  setcontext(&context);
}

bool has_met(const Meeting& meeting, const Warp& warp) {
  return (meeting.mask & ~(meeting.arrived | warp.exited)) == 0;
}

void conclude(Warp& warp, size_t which) {
  const Meeting meeting = warp.meetings[which];
  warp.meetings.erase(warp.meetings.begin() + which);
  meeting.together(warp, meeting.arguments);
  warp.runnable |= meeting.arrived;
}

bool is_complete(const Barrier& barrier, int live) {
  return barrier.arrived > 0 && barrier.arrived >= (barrier.expected ? barrier.expected : live);
}

void complete(Barrier& barrier) {
  barrier.arrived = barrier.expected = 0;
  ++barrier.phase;
  wake(&barrier);
}

void finish_block(Block& block) {
  if (block.copies_to_here) fail("block %u ends while copies to its shared memory are under way", block.index.x);
  const uint32_t end = launch_now->dynamic ? launch_now->dynamic + launch_now->configuration.shared : launch_now->gap;
  const auto untouched = [](char byte) { return byte == char(kPoison); };
  if (!std::all_of(block.shared + end, block.shared + launch_now->gap + kGap, untouched)) {
    fail("block %u wrote past the end of its dynamic shared memory", block.index.x);
  }
}

void finish_thread() {
  Thread& thread = self();
  Warp& warp = *thread.warp;
  Block& block = *warp.block;
  if (thread.copies) check_copies_at_exit(thread);
  if (warp.products) check_products_at_exit(warp);
  const uint32_t bit = 1u << thread.lane;
  warp.exited |= bit;
  warp.runnable &= ~bit;
  --block.live;
  --block.cluster->live;
  for (size_t i = warp.meetings.size(); i-- > 0;) {
    if (has_met(warp.meetings[i], warp)) conclude(warp, i);
  }
  Barrier& barrier = block.barriers[0];
  if (!barrier.expected && is_complete(barrier, block.live)) complete(barrier);
  if (is_complete(block.cluster->barrier, block.cluster->live)) complete(block.cluster->barrier);
  if (block.live == 0) finish_block(block);
}

// ---- Who runs next --------------------------------------------------------------------------------------------

template <typename F>
void each_warp(const F& visit) {
  for (const auto& cluster : launch_now->clusters) {
    for (const auto& block : cluster->blocks) {
      for (const auto& warp : block->warps) visit(*warp);
    }
  }
}

Warp* last_warp = nullptr;

Warp* choose_warp() {
  if (machine.order == Order::kSticky && last_warp && last_warp->runnable && !machine.one_in(16)) return last_warp;
  Warp* chosen = nullptr;
  uint64_t seen = 0;
  each_warp([&](Warp& warp) {
    if (!warp.runnable) return;
    if (machine.order == Order::kPriorities) {
      if (!chosen || warp.priority > chosen->priority) chosen = &warp;
    } else if (machine.one_in(++seen)) {
      chosen = &warp;
    }
  });
  // Now and then another one comes first (Burckhardt et al., 2010: a few changes of priority find most faults).
  if (chosen && machine.order == Order::kPriorities && machine.one_in(256)) chosen->priority = -int64_t(clock_ticks);
  return last_warp = chosen;
}

Thread& choose_lane(Warp& warp) {
  const int start = machine.below(kLanes);
  return warp.threads[(start + std::countr_zero(std::rotr(warp.runnable, start))) % kLanes];
}

bool do_pending() {
  if (launch_now->pending.empty()) return false;
  std::swap(launch_now->pending[machine.below(launch_now->pending.size())], launch_now->pending.back());
  const auto work = std::move(launch_now->pending.back());
  launch_now->pending.pop_back();
  work();
  return true;
}

// Where the lanes of each warp wait.
std::string describe_waiting() {
  std::string all;
  tracing = true;
  each_warp([&](Warp& warp) {
    uint32_t left = ~warp.exited;
    for (int lane = 0; lane < kLanes; ++lane) {
      if (!(left >> lane & 1)) continue;
      Thread& thread = warp.threads[lane];
      uint32_t alike = 0;
      for (int other = lane; other < kLanes; ++other) {
        const Thread& candidate = warp.threads[other];
        const bool same = candidate.channel == thread.channel && candidate.waits == thread.waits;
        if ((left >> other & 1) && same) alike |= 1u << other;
      }
      left &= ~alike;
      resume(thread);
      all += text("\n  block %u, warp %d, lanes %08x: ", warp.block->index.x, warp.number, alike);
      all += thread.waits ? thread.waits(thread) : "is runnable";
      for (void* frame : thread.trace) all += text(" [%p]", frame);
    }
  });
  tracing = false;
  return all;
}

// ---- Blocks ---------------------------------------------------------------------------------------------------

std::unique_ptr<Block> make_block(Cluster& cluster, int rank, uint3 index) {
  auto block = std::make_unique<Block>();
  const dim3 size = launch_now->configuration.block;
  block->cluster = &cluster;
  block->rank = rank;
  block->index = index;
  block->threads = block->live = size.x * size.y * size.z;
  if (windows.empty()) windows.push_back(map_memory(2 * kWindow));
  block->shared = windows.back();
  block->async_shared = block->shared + kWindow;
  windows.pop_back();
  const int registers = std::min(65536 / ((block->threads + 127) / 128 * 128) / 8 * 8, 255);
  for (int thread = 0; thread < block->threads; ++thread) {
    const int lane = thread % kLanes;
    if (lane == 0) {
      auto warp = std::make_unique<Warp>();
      warp->block = block.get();
      warp->number = thread / kLanes;
      warp->exited = kAllLanes;
      warp->priority = machine.below(1 << 20);
      warp->registers = registers;
      block->warps.push_back(std::move(warp));
    }
    Warp& warp = *block->warps.back();
    warp.exited &= ~(1u << lane);
    warp.runnable |= 1u << lane;
    warp.threads[lane].warp = &warp;
    warp.threads[lane].lane = lane;
    warp.threads[lane].index = {thread % size.x, thread / size.x % size.y, thread / size.x / size.y};
  }
  return block;
}

void start_cluster(uint64_t number) {
  const dim3 grid = launch_now->configuration.grid, size = launch_now->configuration.cluster;
  launch_now->clusters.push_back(std::make_unique<Cluster>());
  Cluster& cluster = *launch_now->clusters.back();
  cluster.live = 0;
  for (unsigned rank = 0; rank < size.x; ++rank) {
    const uint64_t block = number * size.x + rank;
    const uint3 index = {
        unsigned(block % grid.x), unsigned(block / grid.x % grid.y), unsigned(block / grid.x / grid.y)};
    cluster.blocks.push_back(make_block(cluster, rank, index));
    cluster.live += cluster.blocks.back()->live;
  }
}

void give_back(Cluster& cluster) {
  for (const auto& block : cluster.blocks) {
    windows.push_back(block->shared);
    for (const auto& warp : block->warps) {
      for (const Thread& thread : warp->threads) {
        if (thread.stack) stacks.push_back(thread.stack);
      }
    }
  }
}

void remove_finished() {
  auto& clusters = launch_now->clusters;
  for (size_t i = clusters.size(); i-- > 0;) {
    if (clusters[i]->live) continue;
    give_back(*clusters[i]);
    clusters.erase(clusters.begin() + i);
    last_warp = nullptr;
  }
}

void run_all() {
  const dim3 grid = launch_now->configuration.grid;
  std::vector<uint64_t> waiting(uint64_t(grid.x) * grid.y * grid.z / launch_now->configuration.cluster.x);
  for (size_t i = 0; i < waiting.size(); ++i) waiting[i] = i;
  std::shuffle(waiting.begin(), waiting.end(), machine.random);
  size_t live = 0;
  while (true) {
    while (launch_now->clusters.size() < size_t(machine.residents) && !waiting.empty()) {
      start_cluster(waiting.back());
      waiting.pop_back();
    }
    live = launch_now->clusters.size();
    if (live == 0) break;
    while (launch_now->clusters.size() == live) {
      const bool hurries = machine.pace == Pace::kEager || (machine.pace == Pace::kRandom && machine.one_in(8));
      if (hurries && do_pending()) continue;
      Warp* warp = choose_warp();
      if (!warp) {
        if (do_pending()) continue;
        fail("deadlock in %s%s", launch_now->name, describe_waiting().c_str());
      }
      resume(choose_lane(*warp));
      if (!machine.failure.empty()) throw Failure{machine.failure};
      if (warp->block->cluster->live == 0) remove_finished();
    }
  }
  while (do_pending()) {
  }
}

}  // namespace

// ---- For the other parts --------------------------------------------------------------------------------------

std::string text(const char* format, ...) {
  char buffer[1024];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(buffer, sizeof(buffer), format, arguments);
  va_end(arguments);
  return buffer;
}

void fail(const char* format, ...) {
  std::vector<char> buffer(1 << 16);
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(buffer.data(), buffer.size(), format, arguments);
  va_end(arguments);
  std::string what = buffer.data();
  if (machine.current) {
    const uint3 thread = self().index;
    what += text("\n  in block %u, thread %u:", block().index.x, thread.x);
    void* frames[24];
    const int count = backtrace(frames, 24);
    for (int i = 0; i < count; ++i) what += text(" [%p]", frames[i]);
  }
  throw Failure{what};
}

void sleep(const void* channel, uint64_t detail, std::string (*waits)(const Thread&)) {
  Thread& thread = self();
  thread.channel = channel;
  thread.detail = detail;
  thread.waits = waits;
  thread.warp->runnable &= ~(1u << thread.lane);
  enter_scheduler();
  thread.channel = nullptr;
  thread.waits = nullptr;
}

void wake(const void* channel) {
  each_warp([&](Warp& warp) {
    for (uint32_t asleep = ~(warp.runnable | warp.exited); asleep; asleep &= asleep - 1) {
      const int lane = std::countr_zero(asleep);
      if (warp.threads[lane].channel == channel) warp.runnable |= 1u << lane;
    }
  });
}

void yield() {
  warp().priority = -clock_ticks;
  enter_scheduler();
}

void meet(uint32_t mask, const char* name, void* arguments, void (*together)(Warp&, void* const*)) {
  Thread& thread = self();
  Warp& warp = *thread.warp;
  const uint32_t bit = 1u << thread.lane;
  if (!(mask & bit)) fail("%s by a lane that its mask %08x leaves out", name, mask);
  size_t which = 0;
  while (which < warp.meetings.size() && !(warp.meetings[which].mask & mask)) ++which;
  if (which == warp.meetings.size()) warp.meetings.push_back({mask, 0, name, {}, together});
  Meeting& meeting = warp.meetings[which];
  if (meeting.mask != mask || (meeting.name != name && strcmp(meeting.name, name) != 0)) {
    fail(
        "lanes of a warp part: %s of lanes %08x while others are at %s of lanes %08x",
        name,
        mask,
        meeting.name,
        meeting.mask);
  }
  meeting.arrived |= bit;
  meeting.arguments[thread.lane] = arguments;
  if (has_met(meeting, warp)) {
    conclude(warp, which);
    return;
  }
  static const char channel = 0;
  sleep(&channel, 0, [](const Thread& thread) {
    for (const Meeting& meeting : thread.warp->meetings) {
      if (meeting.arrived >> thread.lane & 1) {
        return text("%s, where lanes %08x of %08x have come", meeting.name, meeting.arrived, meeting.mask);
      }
    }
    return std::string("nothing");
  });
}

void later(std::function<void()> work) {
  launch_now->pending.push_back(std::move(work));
}

uint32_t window_end() {
  return launch_now->end;
}

Place shared_place(uint64_t address, size_t bytes, size_t alignment) {
  const uint32_t offset = address & ((1u << kRankShift) - 1), rank = address >> kRankShift;
  if (address >> 32 || offset < kReservedShared || offset + bytes > launch_now->end) {
    fail("%#llx is no address in shared memory", static_cast<unsigned long long>(address));
  }
  if (offset % alignment) fail("the address %#x in shared memory is no multiple of %zu", offset, alignment);
  if (rank == 0) return {&block(), offset};
  if (rank > block().cluster->blocks.size()) fail("the cluster has no block %u", rank - 1);
  Block& other = *block().cluster->blocks[rank - 1];
  if (other.live == 0) fail("the shared memory of block %u, which has ended, is used", rank - 1);
  return {&other, offset};
}

void barrier_arrive(int number, int threads, bool waits) {
  if (number < 0 || number > 15) fail("there is no barrier %d", number);
  if (threads % kLanes) fail("barrier %d for %d threads, which are no whole warps", number, threads);
  Barrier& barrier = block().barriers[number];
  if (barrier.arrived == 0) barrier.expected = threads;
  if (barrier.expected != threads) fail("barrier %d for %d threads and for %d", number, barrier.expected, threads);
  const uint64_t phase = barrier.phase;
  ++barrier.arrived;
  if (is_complete(barrier, block().live)) return complete(barrier);
  while (waits && barrier.phase == phase) {
    sleep(&barrier, number, [](const Thread& thread) {
      const Barrier& barrier = *static_cast<const Barrier*>(thread.channel);
      const int expected = barrier.expected ? barrier.expected : thread.warp->block->live;
      return text("barrier %d, where %d of %d threads are", int(thread.detail), barrier.arrived, expected);
    });
  }
}

// ---- For kernels ----------------------------------------------------------------------------------------------

void synchronise_block() {
  barrier_arrive(0, 0, true);
}

int lane_number() {
  return self().lane;
}

void check_bounds(int most_threads, int) {
  const int threads = blockDim.x * blockDim.y * blockDim.z;
  if (threads > most_threads) fail("%d threads in a block of a kernel that is bound to %d", threads, most_threads);
}

void trap() {
  fail("the kernel called __trap");
}

long long ticks() {
  return ++clock_ticks;
}

uint32_t address_in_window(const void* pointer) {
  const char* const begin = block().shared;
  const char* const at = static_cast<const char*>(pointer);
  if (at < begin || at >= begin + kWindow) fail("%p does not point to this block's shared memory", pointer);
  return at - begin;
}

void* dynamic_shared(size_t alignment) {
  uint32_t& start = launch_now->dynamic;
  // Where nothing is asked for, no more than the alignment that CUDA promises.
  if (!start) start = alignment > 16 ? (kReservedShared + alignment - 1) / alignment * alignment : kReservedShared + 48;
  return block().shared + start;
}

void* shared_variable(const void* key, size_t bytes, size_t alignment) {
  auto [found, is_new] = launch_now->variables.try_emplace(key, 0);
  if (is_new) {
    found->second = (launch_now->end + alignment - 1) / alignment * alignment;
    const uint32_t end = found->second + bytes;
    if (end - launch_now->gap - kGap + launch_now->configuration.shared > kMostShared || end > kWindow) {
      fail("more shared memory than a block can have");
    }
    // Blocks that have begun have it poisoned as well.
    for (const auto& cluster : launch_now->clusters) {
      for (const auto& block : cluster->blocks) {
        memset(block->shared + launch_now->end, kPoison, end - launch_now->end);
        memset(block->async_shared + launch_now->end, kPoison, end - launch_now->end);
      }
    }
    launch_now->end = end;
  }
  return block().shared + found->second;
}

cudaError_t run(
    const char* name, const void* kernel, const Configuration& configuration, void (*body)(void*), void* arguments) {
  if (!machine.failure.empty()) return cudaErrorLaunchFailure;
  const dim3 grid = configuration.grid, threads = configuration.block, cluster = configuration.cluster;
  const uint64_t blocks = uint64_t(grid.x) * grid.y * grid.z, block_size = uint64_t(threads.x) * threads.y * threads.z;
  const size_t most = kernel && most_dynamic.contains(kernel) ? most_dynamic[kernel] : 48 * 1024;
  const bool fits = (!kernel || configuration.shared <= most) && configuration.shared <= kMostShared;
  if (!blocks || grid.y > 65535 || grid.z > 65535 || !block_size || block_size > 1024 || !fits ||
      cluster.y * cluster.z != 1 || cluster.x == 0 || cluster.x > 8 || grid.x % cluster.x) {
    machine.failure = text(
        "%s cannot be launched: (%u, %u, %u) blocks of %llu threads, %zu bytes of shared memory, clusters of %u",
        name,
        grid.x,
        grid.y,
        grid.z,
        static_cast<unsigned long long>(block_size),
        configuration.shared,
        cluster.x);
    return cudaErrorInvalidConfiguration;
  }
  Launch now{name, configuration, body, arguments, {}, {}, {}};
  // The dynamic shared memory may begin up to 1,024 bytes further on.
  now.gap = 2 * kReservedShared + (configuration.shared + 15) / 16 * 16;
  now.end = now.gap + kGap;
  launch_now = &now;
  gridDim = grid;
  blockDim = threads;
  last_warp = nullptr;
  try {
    run_all();
  } catch (const Failure& failure) {
    machine.failure = failure.text;
  }
  for (const auto& left : now.clusters) give_back(*left);
  launch_now = nullptr;
  return machine.failure.empty() ? cudaSuccess : cudaErrorLaunchFailure;
}

void ask_for_dynamic_shared(const void* kernel, int bytes) {
  most_dynamic[kernel] = bytes;
}

}  // namespace emulator
