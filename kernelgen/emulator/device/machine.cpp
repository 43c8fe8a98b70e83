// Threads as fibers, and who runs next.

#include "machine.h"

#include <sys/mman.h>
#include <ucontext.h>

#include <algorithm>
#include <numeric>

#include "ptx.h"

// Those of the thread that runs.
uint3 threadIdx, blockIdx;
dim3 blockDim, gridDim;

namespace emulator {

Machine machine;
Launch* launch_now = nullptr;

namespace {

constexpr size_t kStack = 256 * 1024, kPage = 4096;

jmp_buf scheduler;
bool tracing = false;
std::vector<char*> stacks;  // That no fiber has.
long long clock_ticks = 0;
int spins = 0;  // Since anything was woken up or done.
Warp* last_warp = nullptr;

// ---- Threads --------------------------------------------------------------------------------------------------

void enter_scheduler() {
  if (tracing) self().trace = trace();
  if (_setjmp(self().context) == 0) leave_thread();
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
  leave_thread();
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
  if (!block.started) start(block);
  if (stacks.empty()) {
    stacks.push_back(map_memory(kStack));
    mprotect(stacks.back(), kPage, PROT_NONE);  // Beyond its end.
  }
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
  if (block.live == 0) finish(block);
}

// ---- Who runs next --------------------------------------------------------------------------------------------

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
  // Now and then another one comes first. Few changes of priority find most faults (Burckhardt et al., 2010), and
  // many would leave none far behind.
  if (chosen && machine.order == Order::kPriorities && machine.one_in(8192)) chosen->priority = -int64_t(clock_ticks);
  return last_warp = chosen;
}

Thread& choose_lane(Warp& warp) {
  const int start = machine.below(kLanes);
  return warp.threads[(start + std::countr_zero(std::rotr(warp.runnable, start))) % kLanes];
}

bool do_pending() {
  auto& pending = launch_now->pending;
  if (pending.empty()) return false;
  spins = 0;
  size_t which = machine.below(pending.size());
  if (machine.pace == Pace::kOldestLast) which = pending.size() - 1;
  if (machine.pace == Pace::kNewestLast) which = 0;
  const auto work = std::move(pending[which]);
  pending.erase(pending.begin() + which);
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

void give_back(Cluster& cluster) {
  for (const auto& block : cluster.blocks) {
    give_back_memory(*block);
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

// Has a thread go on, or something that is pending.
void step() {
  const bool hurries = machine.pace == Pace::kEager || (machine.pace == Pace::kRandom && machine.one_in(256));
  if (hurries && do_pending()) return;
  if (Warp* const warp = choose_warp()) {
    Cluster& cluster = *warp->block->cluster;
    resume(choose_lane(*warp));
    if (!machine.failure.empty()) throw Failure{machine.failure};
    if (cluster.live == 0) remove_finished();
  } else if (!do_pending()) {
    fail("deadlock in %s%s", launch_now->name, describe_waiting().c_str());
  }
}

void run_clusters() {
  const dim3 grid = launch_now->configuration.grid;
  std::vector<uint64_t> waiting(uint64_t(grid.x) * grid.y * grid.z / launch_now->configuration.cluster.x);
  std::iota(waiting.begin(), waiting.end(), 0);
  std::shuffle(waiting.begin(), waiting.end(), machine.random);
  while (!launch_now->clusters.empty() || !waiting.empty()) {
    while (launch_now->clusters.size() < size_t(machine.residents) && !waiting.empty()) {
      start_cluster(waiting.back());
      waiting.pop_back();
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
  try {
    run_clusters();
  } catch (const Failure& failure) {
    machine.failure = failure.text;
  }
  for (const auto& left : launch_now->clusters) give_back(*left);
  // Few are kept: a process may hold so many mappings only, and each kernel's library has its own.
  constexpr size_t kKept = 256;
  for (; stacks.size() > kKept; stacks.pop_back()) munmap(stacks.back(), kStack);
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
  spins = 0;
  each_warp([&](Warp& warp) {
    for (uint32_t asleep = ~(warp.runnable | warp.exited); asleep; asleep &= asleep - 1) {
      const int lane = std::countr_zero(asleep);
      if (warp.threads[lane].channel == channel) warp.runnable |= 1u << lane;
    }
  });
}

void yield() {
  constexpr int kMostSpins = 1'000'000;
  if (++spins > kMostSpins) fail("threads only spin, and nothing happens that they could spin for");
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
