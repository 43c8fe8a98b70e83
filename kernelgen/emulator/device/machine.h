// The emulated GPU: threads as fibers of one OS thread, their warps, blocks and clusters.
//
// A thread runs until it waits for something; then the seed decides which runs next. A result that depends on that
// order, and must not, differs from seed to seed.

#pragma once

#include <pthread.h>
#include <signal.h>
#include <time.h>

#include <csetjmp>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <unordered_map>
#include <vector>

#include "clocks.h"
#include "gpus.h"
#include "language/core.h"
#undef memcpy
#undef memmove
#undef memset

namespace emulator {

constexpr int kLanes = 32;
constexpr uint32_t kAllLanes = 0xffffffff;
constexpr size_t kStack = 320 * 1024;  // Of a thread, in bytes.
// Stacks are in use from one of so many places on, so many bytes apart: what threads use most would else lie a power of
// two apart, and a cache has room for a few lines of such addresses.
constexpr size_t kColours = 64, kColour = 17 * 64;
// Each block has a window of shared memory. An address in PTX is the offset in the window; for another block of the
// cluster, that block's rank plus one is in the bits from kRankShift on.
constexpr uint32_t kWindow = 1 << 18, kRankShift = 24, kReservedShared = 1024;

struct Failure {
  std::string text;
};

[[noreturn]] __attribute__((format(printf, 1, 2))) void fail(const char* format, ...);
// The same from code that cannot throw: a thread's failure leaves its kernel at once.
[[noreturn]] void fail_without_unwinding(const std::string& text);
// Notes a thread's failure, which ends the kernel when the thread waits next; at a __syncthreads, when all have come.
void fail_later(const std::string& text);
__attribute__((format(printf, 1, 2))) std::string text(const char* format, ...);

// The current thread's call stack.
std::vector<void*> trace();

// While a guard lives, the signal of a faulty access, or of a kernel that does not end, ends the kernel and not the
// process. Signals of other threads, and of the emulator's own faults, end the process as they did before.
class SignalGuard {
 public:
  SignalGuard();
  ~SignalGuard();
  bool is_on_its_thread() const;
  void pass_on(int number) const;

 private:
  static constexpr int kSignals = 5, kNumbers[kSignals] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGVTALRM};
  pthread_t thread_;
  timer_t timer_;
  bool has_timer_;
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
  std::vector<std::shared_ptr<struct CountedCopies>> counted_copies;
  // What it knows of the others: see clocks.h. The last is the part of `view` about its own block.
  OwnClock own;
  ViewPointer view;
  const BlockClock* known_of_block = nullptr;
  std::unique_ptr<FencedView[]> published;  // By level; of threads that have published something.
  uint32_t polls = 0;                       // Atomic reads.
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
  std::shared_ptr<struct Products> products;      // Under way: see products.cpp.
  std::shared_ptr<struct Gatherings> gatherings;  // At an activemask: see ptx_warps.cpp.
};

struct Barrier {
  int expected = 0, arrived = 0;
  uint64_t phase = 0;
  std::vector<Thread*> waiting;  // In the order of their arrival.
  Gathering others;              // Those that have arrived and do not wait.
  int line = 0;                  // Of the __syncthreads that the first thread is at, and its place.
  const void* place = nullptr;
};

struct Cluster;

struct Block {
  Cluster* cluster;
  int rank;
  uint32_t id;  // Its number in the grid.
  uint3 index;
  // Shared memory as threads see it, and as the copy engine and wgmma see it: a fence copies the first to the second,
  // as far as it has been written since the last fence.
  char *shared, *async_shared;
  static constexpr uint32_t kChunk = 512;            // Bytes.
  uint64_t changed[kWindow / kChunk / 64 + 1] = {};  // Chunks of `shared`, a bit each.
  std::vector<std::unique_ptr<Warp>> warps;
  Barrier barriers[16];
  int threads, live, free_registers = 0;
  int loads_under_way = 0;  // By the copy engine, to this block's shared memory.
  bool started = false;
  std::shared_ptr<struct BarrierVotes> votes;          // See ptx_warps.cpp.
  std::map<uint32_t, PhaseClock> mbarriers;            // By their offset.
  std::unordered_map<uintptr_t, Published> published;  // By the atomic operations on its shared memory.
  uint32_t engines = 0;                                // Asynchronous units, by number: see clocks.h.
  Gathering exited;                                    // What the threads that have exited knew and did.
  Stamp last_exit = 0;
  std::vector<struct Cell*> remote_cells;  // That other blocks have used.
};

struct Cluster {
  std::vector<std::unique_ptr<Block>> blocks;
  Barrier barrier;
  PhaseClock phases;
  int live;
};

// Which warp runs next, and when asynchronous operations are done: at once, at any time, or when no thread can run. A
// GPU may do any of these.
enum class Order { kUniform, kPriorities, kSticky };
enum class Pace { kEager, kRandom, kOldestLast, kNewestLast };

// Random numbers, which the scheduler draws at every step (SplitMix64: Steele, Lea and Flood, 2014).
class Random {
 public:
  using result_type = uint64_t;
  static constexpr uint64_t min() { return 0; }
  static constexpr uint64_t max() { return ~uint64_t(0); }
  void seed(uint64_t seed) { state_ = seed; }
  uint64_t operator()() {
    uint64_t mixed = state_ += 0x9e3779b97f4a7c15;
    mixed = (mixed ^ mixed >> 30) * 0xbf58476d1ce4e5b9;
    mixed = (mixed ^ mixed >> 27) * 0x94d049bb133111eb;
    return mixed ^ mixed >> 31;
  }

 private:
  uint64_t state_ = 0;
};

struct Machine {
  Order order = Order::kUniform;
  Pace pace = Pace::kRandom;
  Random random;
  int capability = 90, multiprocessors = 4, resident_clusters = 2;
  Thread* current = nullptr;
  bool may_leave = false;  // Whether a thread or an asynchronous operation runs, which leave_thread ends.
  std::string failure;
  // What a thread has done wrong, until it is known whether that came of a __syncthreads that it skipped: see
  // report_access in reports.cpp. The thread is null once it waits at its next __syncthreads, in that block.
  std::string pending_report;
  const Thread* accused = nullptr;
  const Block* block_of_accused = nullptr;
  // A launch that was refused: its error until somebody asks for it, and why.
  cudaError_t last_error = cudaSuccess;
  std::string launch_error;

  uint64_t below(uint64_t limit) { return uint64_t((unsigned __int128)(random()) * limit >> 64); }
  bool one_in(uint64_t n) { return below(n) == 0; }
};

extern Machine machine;

// Whether the calling thread has a CUDA context. One that is started later gets it from the first call of the runtime
// that needs it; until then functions of the driver fail.
extern thread_local bool has_context;

// The order of threads and the pace of asynchronous operations from here on.
void use_schedule(uint64_t seed);
// Called before each launch, if set.
extern void (*before_launch)();

// A declaration of shared variables.
struct SharedVariable {
  uint32_t offset;  // In the window.
  size_t bytes;
  const char* names;
  size_t element_bytes;
};

// What all blocks of a launch share.
struct Launch {
  const char* name;
  Configuration configuration;
  void (*body)(void*);
  void* arguments;
  std::vector<std::unique_ptr<Cluster>> clusters = {};  // Resident on the machine.
  std::vector<Warp*> warps = {};                        // Theirs.
  std::deque<std::function<void()>> pending = {};       // See `later`.
  std::map<const void*, SharedVariable> variables = {};
  std::vector<uint8_t> valid = {};  // Of each four bytes of the window, which belong to a variable: a mask.
  std::unordered_map<uintptr_t, Published> published = {};  // By atomic operations on global memory.
  const char *host_stack_begin = nullptr, *host_stack_end = nullptr;
  // Offsets in the window: of dynamic shared memory (0 until the kernel uses it), of the gap after it, and of its end.
  uint32_t dynamic = 0, gap = 0, end = 0;
  size_t static_bytes = 0;  // Of shared variables.
  size_t shared_limit = 0;  // The most shared memory, static and dynamic.
};

extern Launch* current_launch;

// To be called for every write to a block's shared memory, at an offset.
inline void note_change(Block& block, uint32_t begin, size_t bytes) {
  for (uint32_t chunk = begin / Block::kChunk; chunk <= (begin + bytes - 1) / Block::kChunk; ++chunk) {
    block.changed[chunk / 64] |= uint64_t(1) << chunk % 64;
  }
}

inline Thread& self() {
  return *machine.current;
}
inline Warp& warp() {
  return *self().warp;
}
inline Block& block() {
  return *warp().block;
}
inline uint32_t number_in_block(const Thread& thread) {
  return thread.warp->number * kLanes + thread.lane;
}

template <typename F>
void for_each_warp(const F& visit) {
  for (Warp* warp : current_launch->warps) visit(*warp);
}

// Runs all blocks of the launch, or until one fails.
void run_all();
void start_cluster(uint64_t number);
void start(Block& block);
void finish(Block& block);
void check_mbarriers_at_end(const Block& block);
void release_memory(Block& block);
// The block whose window an address lies in, null if it has none; `is_window` says whether it lies in any.
Block* block_of_window(const void* address, bool& is_window);
char* map_memory(size_t bytes);
// Switches to the scheduler, from a thread that has ended or waits, or from an asynchronous operation that failed.
[[noreturn]] void leave_thread();

// Puts the current thread to sleep on a channel. It may wake before its condition holds, so callers test that again.
void sleep(const void* channel, uint64_t detail, std::string (*describe_wait)(const Thread&));
void wake(const void* channel);
// Lets others run. A thread that does nothing else for long is reported.
void yield();
// Lets others run now and then: called before every atomic read, which a loop may wait by.
void poll();

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
void complete(Barrier& barrier, Block& block);
void complete_cluster_barrier(Cluster& cluster);
// Other threads and the copy engine may use the block's mbarriers from here on.
void show_mbarriers(Block& block, PhaseClock::Shown to);
// Arrives at a block's named barrier, and waits there if `waits`. `threads` of 0 stands for all that have not exited.
// `line` is that of a __syncthreads, which all threads have to reach.
void barrier_arrive(int number, int threads, bool waits, int line = 0, const void* place = nullptr);

}  // namespace emulator
