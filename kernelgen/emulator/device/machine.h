// The emulated GPU: threads as fibers of one OS thread, their warps, blocks and clusters.
//
// A thread runs until it waits for something; then the seed decides which runs next. Whatever must not depend on that
// order, and does, comes out differently from seed to seed.

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
// A block's window of shared memory. Addresses in it are what PTX sees, with the rank of another block of the cluster,
// plus one, above them.
constexpr uint32_t kWindow = 1 << 18, kRankShift = 24, kReservedShared = 1024, kMostShared = 227 * 1024;

struct Failure {
  std::string text;
};

[[noreturn]] __attribute__((format(printf, 1, 2))) void fail(const char* format, ...);
__attribute__((format(printf, 1, 2))) std::string text(const char* format, ...);

// Where the current thread is in the code.
std::vector<void*> trace();

// While one lives, a signal of an access that goes wrong ends the kernel and not the process. So does one of time.
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
  std::string (*waits)(const Thread&) = nullptr;  // Says what for.
  const void* channel = nullptr;
  uint64_t detail = 0;
  std::vector<void*> trace;  // Where it waits, if asked.
  uint64_t cluster_arrival = 0;
  bool has_arrived = false;
  std::shared_ptr<struct Copies> copies;  // Of its own, that it has started: see copies.cpp.
};

// Lanes that execute one instruction together.
struct Meeting {
  uint32_t mask, arrived;
  const char* name;
  void* arguments[kLanes];
  void (*together)(Warp&, void* const* arguments);
};

struct Warp {
  Block* block;
  int number;
  Thread threads[kLanes];
  uint32_t runnable = 0, exited = 0;
  int64_t priority = 0;
  int registers = 0;  // Of a thread.
  std::vector<Meeting> meetings;
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
  // What threads see of shared memory, and what the copy engine and wgmma see: a thread's writes get there by a fence.
  char *shared, *async_shared;
  std::vector<std::unique_ptr<Warp>> warps;
  Barrier barriers[16];
  int threads, live, free_registers = 0;
  int copies_to_here = 0;               // Under way.
  std::vector<uint32_t> new_mbarriers;  // That no fence has followed.
  bool started = false;
};

struct Cluster {
  std::vector<std::unique_ptr<Block>> blocks;
  Barrier barrier;
  int live;
};

// Who goes on, and when what is pending is done: at once, at any time, or when nothing else can be done. All are legal.
enum class Order { kUniform, kPriorities, kSticky };
enum class Pace { kEager, kRandom, kOldestLast, kNewestLast };

struct Machine {
  Order order = Order::kUniform;
  Pace pace = Pace::kRandom;
  std::mt19937_64 random;
  int capability = 90, multiprocessors = 4, residents = 2;
  Thread* current = nullptr;
  std::string failure;

  uint64_t below(uint64_t limit) { return random() % limit; }
  bool one_in(uint64_t n) { return below(n) == 0; }
};

extern Machine machine;

// What all blocks of a launch have in common.
struct Launch {
  const char* name;
  Configuration configuration;
  void (*body)(void*);
  void* arguments;
  std::vector<std::unique_ptr<Cluster>> clusters = {};  // Those that are on the machine.
  std::deque<std::function<void()>> pending = {};       // See `later`.
  std::map<const void*, uint32_t> variables = {};       // Where shared variables lie in the window.
  uint32_t dynamic = 0, gap = 0, end = 0;
};

extern Launch* launch_now;

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
void each_warp(const F& visit) {
  for (const auto& cluster : launch_now->clusters) {
    for (const auto& block : cluster->blocks) {
      for (const auto& warp : block->warps) visit(*warp);
    }
  }
}

// Runs all blocks of the launch, until something goes wrong.
void run_all();
void start_cluster(uint64_t number);
void start(Block& block);
void finish(Block& block);
void give_back_memory(Block& block);
char* map_memory(size_t bytes);
// Back to the scheduler, from a thread that is done or cannot go on.
[[noreturn]] void leave_thread();

// Puts the current thread to sleep on a channel; whoever wakes it up may be wrong, so callers ask again.
void sleep(const void* channel, uint64_t detail, std::string (*waits)(const Thread&));
void wake(const void* channel);
// Lets others run.
void yield();

// Has the lanes of the mask, or those that have not exited, meet; the last runs `together` for all.
void meet(uint32_t mask, const char* name, void* arguments, void (*together)(Warp&, void* const*));

// Work of the copy engine and the tensor cores: done at some time, at the latest when nothing else can be.
void later(std::function<void()> work);

// An address of shared memory as PTX has it. Fails outside the window.
struct Place {
  Block* block;
  uint32_t offset;

  char* pointer() const { return block->shared + offset; }
  char* async_pointer() const { return block->async_shared + offset; }
};
// Where the part of the window that is in use ends.
uint32_t window_end();
Place shared_place(uint64_t address, size_t bytes, size_t alignment);

// Whether all have come: so many as it expects, or all that live.
bool is_complete(const Barrier& barrier, int live);
void complete(Barrier& barrier);
// The barriers of a block. 0 threads: all that have not exited.
void barrier_arrive(int number, int threads, bool waits);

}  // namespace emulator
