// The emulated GPU: threads as fibers of one OS thread, their warps, blocks and clusters.
//
// A thread runs until it waits for something; then the seed decides which runs next. A result that depends on that
// order, and must not, differs from seed to seed.

#pragma once

#include <signal.h>

#include <csetjmp>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "prelude.h"

namespace emulator {

constexpr int kLanes = 32;
constexpr uint32_t kAllLanes = 0xffffffff;
// Each block has a window of shared memory. An address in PTX is the offset in the window; for another block of the
// cluster, that block's rank plus one is in the bits from kRankShift on.
constexpr uint32_t kWindow = 1 << 18, kRankShift = 24, kReservedShared = 1024, kMaxShared = 227 * 1024;

struct Failure {
  std::string text;
};

[[noreturn]] __attribute__((format(printf, 1, 2))) void fail(const char* format, ...);
__attribute__((format(printf, 1, 2))) std::string text(const char* format, ...);

// The current thread's call stack.
std::vector<void*> trace();

// While a guard lives, the signal of a faulty access, or of a kernel that does not end, ends the kernel and not the
// process.
class SignalGuard {
 public:
  SignalGuard();
  ~SignalGuard();

 private:
  static constexpr int kSignals = 4, kNumbers[kSignals] = {SIGSEGV, SIGBUS, SIGILL, SIGVTALRM};
  struct sigaction before_[kSignals];
  stack_t stack_before_;
};

struct Block;
struct Warp;

struct Thread {
  Warp* warp;
  int lane;
  uint3 index;
  jmp_buf context;
  char* stack = nullptr;
  bool started = false;
  std::string (*describe_wait)(const Thread&) = nullptr;  // What the thread waits for, in words.
  const void* channel = nullptr;
  uint64_t detail = 0;
  std::vector<void*> trace;  // Its call stack, for the report of a deadlock.
  uint64_t cluster_arrival = 0;
  bool has_arrived = false;
  std::shared_ptr<struct Copies> copies;  // That this thread has started: see copies.cpp.
};

// An instruction that lanes of a warp execute together, and the lanes that have reached it.
struct Collective {
  uint32_t mask, arrived;
  const char* name;
  void* arguments[kLanes];
  void (*action)(Warp&, void* const* arguments);
};

struct Warp {
  Block* block;
  int number;
  Thread threads[kLanes];
  uint32_t runnable = 0, exited = 0;
  int64_t priority = 0;
  int registers = 0;  // Per thread.
  std::vector<Collective> collectives;
  std::shared_ptr<struct Products> products;  // Under way: see products.cpp.
};

struct Barrier {
  int expected = 0, arrived = 0;
  uint64_t phase = 0;
};

struct Cluster;

struct Block {
  Cluster* cluster;
  int rank;
  uint3 index;
  // Shared memory as threads see it, and as the copy engine and wgmma see it: a fence copies the first to the second.
  char *shared, *async_shared;
  std::vector<std::unique_ptr<Warp>> warps;
  Barrier barriers[16];
  int threads, live, free_registers = 0;
  int loads_under_way = 0;              // By the copy engine, to this block's shared memory.
  std::vector<uint32_t> new_mbarriers;  // Initialised, with no fence since.
  bool started = false;
};

struct Cluster {
  std::vector<std::unique_ptr<Block>> blocks;
  Barrier barrier;
  int live;
};

// Which warp runs next, and when asynchronous operations are done: at once, at any time, or when no thread can run. A
// GPU may do any of these.
enum class Order { kUniform, kPriorities, kSticky };
enum class Pace { kEager, kRandom, kOldestLast, kNewestLast };

struct Machine {
  Order order = Order::kUniform;
  Pace pace = Pace::kRandom;
  std::mt19937_64 random;
  int capability = 90, multiprocessors = 4, resident_clusters = 2;
  Thread* current = nullptr;
  std::string failure;

  uint64_t below(uint64_t limit) { return random() % limit; }
  bool one_in(uint64_t n) { return below(n) == 0; }
};

extern Machine machine;

// What all blocks of a launch share.
struct Launch {
  const char* name;
  Configuration configuration;
  void (*body)(void*);
  void* arguments;
  std::vector<std::unique_ptr<Cluster>> clusters = {};  // Resident on the machine.
  std::deque<std::function<void()>> pending = {};       // See `later`.
  std::map<const void*, uint32_t> variables = {};       // Offsets of shared variables in the window.
  // Offsets in the window: of dynamic shared memory (0 until the kernel uses it), of the gap after it, and of its end.
  uint32_t dynamic = 0, gap = 0, end = 0;
};

extern Launch* current_launch;

inline Thread& self() {
  return *machine.current;
}
inline Warp& warp() {
  return *self().warp;
}
inline Block& block() {
  return *warp().block;
}

template <typename F>
void for_each_warp(const F& visit) {
  for (const auto& cluster : current_launch->clusters) {
    for (const auto& block : cluster->blocks) {
      for (const auto& warp : block->warps) visit(*warp);
    }
  }
}

// Runs all blocks of the launch, or until one fails.
void run_all();
void start_cluster(uint64_t number);
void start(Block& block);
void finish(Block& block);
void release_memory(Block& block);
char* map_memory(size_t bytes);
// Switches to the scheduler, from a thread that has ended or waits.
[[noreturn]] void leave_thread();

// Puts the current thread to sleep on a channel. It may wake before its condition holds, so callers test that again.
void sleep(const void* channel, uint64_t detail, std::string (*describe_wait)(const Thread&));
void wake(const void* channel);
// Lets others run.
void yield();

// Waits for the lanes of the mask that have not exited. The last to come runs `action` for all, with their arguments.
void execute_together(uint32_t mask, const char* name, void* arguments, void (*action)(Warp&, void* const*));

// Schedules work of the copy engine or the tensor cores: it is done at some time, at the latest when no thread can run.
void later(std::function<void()> work);

struct SharedAddress {
  Block* block;
  uint32_t offset;

  char* pointer() const { return block->shared + offset; }
  char* async_pointer() const { return block->async_shared + offset; }
};
// The end of the part of the window that is in use.
uint32_t window_end();
// Decodes an address in PTX of so many bytes. Fails where it lies outside the window or is not aligned.
SharedAddress shared_address(uint64_t address, size_t bytes, size_t alignment);

// Whether as many threads as it expects have arrived; if it expects no number, all that have not exited.
bool is_complete(const Barrier& barrier, int live);
void complete(Barrier& barrier);
// Arrives at a block's named barrier, and waits there if `waits`. `threads` of 0 stands for all that have not exited.
void barrier_arrive(int number, int threads, bool waits);

}  // namespace emulator
