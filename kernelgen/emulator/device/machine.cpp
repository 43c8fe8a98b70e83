// Threads as fibers, and the scheduler that decides which runs next.

#include "machine.h"

#include <sys/mman.h>
#include <ucontext.h>

#include <algorithm>
#include <numeric>
#include <optional>
#include <thread>

#include "accesses.h"
#include "counted_copies.h"
#include "ptx.h"

// Of the thread that runs.
#define EMULATOR_INDEX __attribute__((section("emulator_index")))  // See accesses.cpp.
EMULATOR_INDEX uint3 threadIdx, blockIdx;
EMULATOR_INDEX dim3 blockDim, gridDim;

namespace emulator {

Machine machine;
// PyTorch has called the runtime in the thread that loads a library.
static const std::thread::id loading_thread = std::this_thread::get_id();
thread_local bool has_context = std::this_thread::get_id() == loading_thread;
Launch* current_launch = nullptr;

namespace {

constexpr size_t kPage = 4096;
// Yields in a row after which threads count as only polling: late operations are done, further blocks start, and in the
// end the kernel is stopped.
constexpr int kLateOperations = 256, kPatience = 10'000, kMaxSpins = 1'000'000;

jmp_buf scheduler;
bool tracing = false;
std::vector<char*> free_stacks;
long long clock_ticks = 0;
int spins = 0;  // Yields since a thread was last woken or an operation done.
Warp* last_warp = nullptr;
// What the thread that has left found to be next, if anything: a thread, or a pending operation where that is null.
std::optional<Thread*> next_turn;

Thread* choose_turn();

// ---- Threads --------------------------------------------------------------------------------------------------

// Makes a thread that is about to go on the one whose registers a kernel reads.
void make_current(Thread& thread) {
  machine.current = &thread;
  threadIdx = thread.index;
  blockIdx = thread.warp->block->index;
  ++clock_ticks;
}

// Goes on with the next thread, where nothing but that is due. By way of the scheduler it takes twice as long.
void enter_next_thread() {
  if (!machine.failure.empty() || spins > kPatience) return;
  next_turn = choose_turn();
  Thread* const next = *next_turn;
  if (!next || !next->started) return;
  next_turn.reset();
  make_current(*next);
  _longjmp(next->context, 1);
}

void enter_scheduler() {
  if (tracing) self().trace = trace();
  if (_setjmp(self().context) == 0) {
    if (!tracing) enter_next_thread();
    leave_thread();
  }
  if (tracing) enter_scheduler();
}

void finish_thread();

void thread_main() {
  current_launch->body(current_launch->arguments);
  finish_thread();
  leave_thread();
}

// Goes on with a thread; returns the cluster of the thread that comes back, which may be another.
Cluster& resume(Thread& thread) {
  Block& block = *thread.warp->block;
  make_current(thread);
  if (_setjmp(scheduler) != 0) {
    Cluster& cluster = *machine.current->warp->block->cluster;
    machine.current = nullptr;
    machine.may_leave = false;
    return cluster;
  }
  machine.may_leave = true;
  if (thread.started) _longjmp(thread.context, 1);
  thread.started = true;
  if (!block.started) start(block);
  if (free_stacks.empty()) {
    free_stacks.push_back(map_memory(kStack));
    mprotect(free_stacks.back(), kPage, PROT_NONE);  // A guard page.
  }
  thread.stack = free_stacks.back();
  free_stacks.pop_back();
  ucontext_t context;
  getcontext(&context);
  context.uc_stack.ss_sp = thread.stack;
  const size_t colour = reinterpret_cast<uintptr_t>(thread.stack) / kStack % kColours;
  context.uc_stack.ss_size = kStack - colour * kColour;
  context.uc_link = nullptr;
  makecontext(&context, thread_main, 0);
  setcontext(&context);
  __builtin_unreachable();
}

bool all_arrived(const Collective& collective, const Warp& warp) {
  return (collective.mask & ~(collective.arrived | warp.exited)) == 0;
}

void complete_collective(Warp& warp, size_t which) {
  const Collective collective = warp.collectives[which];
  warp.collectives.erase(warp.collectives.begin() + which);
  collective.action(warp, collective.arguments);
  tell_lanes(warp, collective.arrived);
  warp.runnable |= collective.arrived;
}

void finish_thread() {
  settle_accesses();
  Thread& thread = self();
  Warp& warp = *thread.warp;
  Block& block = *warp.block;
  if (thread.copies) check_copies_at_exit(thread);
  wait_for_counted_copies();
  if (warp.products) check_products_at_exit(warp);
  const uint32_t bit = 1u << thread.lane;
  warp.exited |= bit;
  warp.runnable &= ~bit;
  --block.live;
  --block.cluster->live;
  block.last_exit = std::max(block.last_exit, thread.own.now);
  release(thread, block.exited);
  spins = 0;
  for (size_t i = warp.collectives.size(); i-- > 0;) {
    if (all_arrived(warp.collectives[i], warp)) complete_collective(warp, i);
  }
  Barrier& barrier = block.barriers[0];
  if (!barrier.expected && is_complete(barrier, block.live)) complete(barrier, block);
  if (is_complete(block.cluster->barrier, block.cluster->live)) complete_cluster_barrier(*block.cluster);
  if (block.live == 0) finish(block);
}

// ---- Scheduling -----------------------------------------------------------------------------------------------

Warp* highest_priority() {
  Warp* highest = nullptr;
  for_each_warp([&](Warp& warp) {
    if (warp.runnable && (!highest || warp.priority > highest->priority)) highest = &warp;
  });
  return highest;
}

Warp* any_runnable() {
  // Most warps can run, so a few draws mostly do.
  const auto& warps = current_launch->warps;
  for (int draw = 0; draw < 4 && !warps.empty(); ++draw) {
    Warp* const warp = warps[machine.below(warps.size())];
    if (warp->runnable) return warp;
  }
  static std::vector<Warp*> runnable;
  runnable.clear();
  for_each_warp([](Warp& warp) {
    if (warp.runnable) runnable.push_back(&warp);
  });
  return runnable.empty() ? nullptr : runnable[machine.below(runnable.size())];
}

Warp* choose_warp() {
  if (machine.order == Order::kSticky && last_warp && last_warp->runnable && !machine.one_in(16)) return last_warp;
  const bool by_priority = machine.order == Order::kPriorities;
  Warp* const chosen = by_priority ? highest_priority() : any_runnable();
  // Now and then the first becomes the last. Few changes of priority show most faults (Burckhardt et al., 2010), and
  // with many no warp would fall far behind.
  if (chosen && by_priority && machine.one_in(8192)) chosen->priority = -int64_t(clock_ticks);
  return last_warp = chosen;
}

Thread& choose_lane(Warp& warp) {
  const int start = machine.below(kLanes);
  return warp.threads[(start + std::countr_zero(std::rotr(warp.runnable, start))) % kLanes];
}

std::function<void()> take_pending() {
  auto& pending = current_launch->pending;
  std::function<void()> work;
  if (machine.pace == Pace::kNewestLast) {
    work = std::move(pending.front());
    pending.pop_front();
    return work;
  }
  // Where any may be next, their order does not matter: so the last takes the place of what is taken.
  if (machine.pace != Pace::kOldestLast) std::swap(pending[machine.below(pending.size())], pending.back());
  work = std::move(pending.back());
  pending.pop_back();
  return work;
}

bool do_pending() {
  if (current_launch->pending.empty()) return false;
  spins = 0;
  const auto work = take_pending();
  machine.may_leave = true;
  if (_setjmp(scheduler) == 0) work();
  machine.may_leave = false;
  if (!machine.failure.empty()) throw Failure{machine.failure};
  return true;
}

// What the lanes of each warp wait for, and where.
std::string describe_waiting() {
  std::string all;
  tracing = true;
  for_each_warp([&](Warp& warp) {
    uint32_t remaining = ~warp.exited;
    for (int lane = 0; lane < kLanes; ++lane) {
      if (!(remaining >> lane & 1)) continue;
      Thread& thread = warp.threads[lane];
      uint32_t alike = 0;
      for (int other = lane; other < kLanes; ++other) {
        const Thread& candidate = warp.threads[other];
        const bool same = candidate.channel == thread.channel && candidate.describe_wait == thread.describe_wait;
        if ((remaining >> other & 1) && same) alike |= 1u << other;
      }
      remaining &= ~alike;
      resume(thread);
      all += text("\n  block %u, warp %d, lanes %08x: ", warp.block->index.x, warp.number, alike);
      all += thread.describe_wait ? thread.describe_wait(thread) : "is runnable";
      for (void* frame : thread.trace) all += text(" [%p]", frame);
    }
  });
  tracing = false;
  return all;
}

void release(Cluster& cluster) {
  for (const auto& block : cluster.blocks) {
    release_memory(*block);
    for (const auto& warp : block->warps) {
      for (const Thread& thread : warp->threads) {
        if (thread.stack) free_stacks.push_back(thread.stack);
      }
    }
  }
}

void remove_finished() {
  auto& clusters = current_launch->clusters;
  for (size_t i = clusters.size(); i-- > 0;) {
    if (clusters[i]->live) continue;
    std::erase_if(current_launch->warps, [&](Warp* warp) { return warp->block->cluster == clusters[i].get(); });
    release(*clusters[i]);
    clusters.erase(clusters.begin() + i);
    last_warp = nullptr;
  }
}

// The thread that is to run now, or null if that is to be a pending operation.
Thread* choose_turn() {
  const bool is_random_turn = machine.pace == Pace::kRandom && machine.one_in(256);
  const bool pending_first = machine.pace == Pace::kEager || is_random_turn || spins > kLateOperations;
  if (pending_first && !current_launch->pending.empty()) return nullptr;
  Warp* const warp = choose_warp();
  return warp ? &choose_lane(*warp) : nullptr;
}

// Lets threads run, or does a pending operation.
void step() {
  Thread* const thread = next_turn ? *next_turn : choose_turn();
  next_turn.reset();
  if (thread) {
    const Cluster& cluster = resume(*thread);
    if (!machine.failure.empty()) throw Failure{machine.failure};
    if (cluster.live == 0) remove_finished();
  } else if (!do_pending()) {
    fail("deadlock in %s%s", current_launch->name, describe_waiting().c_str());
  }
}

void run_clusters() {
  const dim3 grid = current_launch->configuration.grid;
  std::vector<uint64_t> unstarted(uint64_t(grid.x) * grid.y * grid.z / current_launch->configuration.cluster.x);
  std::iota(unstarted.begin(), unstarted.end(), 0);
  std::shuffle(unstarted.begin(), unstarted.end(), machine.random);
  // All blocks of a cooperative launch run at once.
  const bool is_cooperative = current_launch->configuration.is_cooperative;
  const size_t resident = is_cooperative ? unstarted.size() : size_t(machine.resident_clusters);
  while (!current_launch->clusters.empty() || !unstarted.empty()) {
    // Threads that only poll may wait for blocks that a GPU would have started.
    const bool more = spins > kPatience && current_launch->clusters.size() < size_t(machine.multiprocessors);
    while ((more || current_launch->clusters.size() < resident) && !unstarted.empty()) {
      start_cluster(unstarted.back());
      unstarted.pop_back();
      if (more) break;
    }
    step();
  }
  while (do_pending()) {
  }
}

}  // namespace

void run_all() {
  const SignalGuard guard;
  last_warp = nullptr;
  tracing = false;
  spins = 0;
  next_turn.reset();
  try {
    run_clusters();
    if (!machine.pending_report.empty()) fail("");
  } catch (const Failure& failure) {
    machine.failure = machine.pending_report.empty() ? failure.text : machine.pending_report;
  }
  machine.may_leave = false;
  for (const auto& cluster : current_launch->clusters) release(*cluster);
  // As many are kept as two blocks have threads. More would be of no use, and the number of a process's mappings is
  // limited, of which a stack takes two.
  constexpr size_t kKept = 2048;
  for (; free_stacks.size() > kKept; free_stacks.pop_back()) munmap(free_stacks.back(), kStack);
}

void sleep(const void* channel, uint64_t detail, std::string (*describe_wait)(const Thread&)) {
  settle_accesses();
  Thread& thread = self();
  thread.channel = channel;
  thread.detail = detail;
  thread.describe_wait = describe_wait;
  thread.warp->runnable &= ~(1u << thread.lane);
  enter_scheduler();
  thread.channel = nullptr;
  thread.describe_wait = nullptr;
}

void wake(const void* channel) {
  spins = 0;
  for_each_warp([&](Warp& warp) {
    for (uint32_t asleep = ~(warp.runnable | warp.exited); asleep; asleep &= asleep - 1) {
      const int lane = std::countr_zero(asleep);
      if (warp.threads[lane].channel == channel) warp.runnable |= 1u << lane;
    }
  });
}

void yield() {
  if (++spins > kMaxSpins) fail("threads only spin, and nothing happens that could end it");
  settle_accesses();
  warp().priority = -clock_ticks;
  enter_scheduler();
}

void poll() {
  constexpr int kReads = 16;
  Thread& thread = self();
  if (++thread.polls % kReads == 0) {
    yield();
  } else if (machine.one_in(kReads)) {
    settle_accesses();
    enter_scheduler();
  }
}

void execute_together(uint32_t mask, const char* name, void* arguments, void (*action)(Warp&, void* const*)) {
  Thread& thread = self();
  Warp& warp = *thread.warp;
  const uint32_t bit = 1u << thread.lane;
  if (!(mask & bit)) fail("%s by a lane that its mask %08x leaves out", name, mask);
  size_t which = 0;
  for (; which < warp.collectives.size(); ++which) {
    const Collective& other = warp.collectives[which];
    const bool is_same_name = other.name == name || strcmp(other.name, name) == 0;
    if (other.mask == mask && is_same_name) break;
    // Lanes that wait for each other at different places. Others may come later.
    if ((other.mask & bit) && (mask & other.arrived)) {
      fail(
          "lanes of a warp diverge: %s of lanes %08x while others are at %s of lanes %08x",
          name,
          mask,
          other.name,
          other.mask);
    }
  }
  if (which == warp.collectives.size()) warp.collectives.push_back({mask, 0, name, {}, action});
  Collective& collective = warp.collectives[which];
  collective.arrived |= bit;
  collective.arguments[thread.lane] = arguments;
  if (all_arrived(collective, warp)) {
    complete_collective(warp, which);
    return;
  }
  static const char channel = 0;
  sleep(&channel, 0, [](const Thread& thread) {
    for (const Collective& collective : thread.warp->collectives) {
      if (collective.arrived >> thread.lane & 1) {
        return text("%s, where lanes %08x of %08x have come", collective.name, collective.arrived, collective.mask);
      }
    }
    return std::string("nothing");
  });
}

void note_progress() {
  spins = 0;
}

void later(std::function<void()> work) {
  current_launch->pending.push_back(std::move(work));
}

void leave_thread() {
  _longjmp(scheduler, 1);
}

int lane_number() {
  return self().lane;
}

long long ticks() {
  return ++clock_ticks;
}

}  // namespace emulator
