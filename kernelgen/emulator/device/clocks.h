// Happens-before: what every thread knows of what the others have done. Two accesses of which neither is known to the
// thread of the other are a race, whichever order the run took.
//
// The clocks are those of FastTrack (Flanagan and Freund, 2009), compressed along the GPU's hierarchy as in Barracuda
// (Eizenberg et al., 2017): after a barrier one number stands for a whole block or warp, and threads share immutable
// clocks. A thread counts its releases in `Thread::now`; an access has the number at its time as its stamp.
//
// An asynchronous unit (the copies that an mbarrier counts, a thread's bulk groups, a warpgroup's products) is an
// *engine* of its block, with stamps of its own: the mbarrier's phase, the number of the group or product.

#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "kernel_accesses.h"

namespace emulator {

struct Thread;
struct Warp;
struct Block;
using Stamp = uint32_t;

constexpr int kLevels = 3;  // The system is the device.

// Up to which stamps a block's threads and engines are known. A thread's stamp is the highest that applies to it.
struct BlockClock {
  Stamp all = 0;
  std::vector<Stamp> warps;                         // May be shorter than the block, as `engines`.
  std::vector<std::pair<uint32_t, Stamp>> threads;  // Ascending.
  std::vector<Stamp> engines;

  Stamp of_warp(uint32_t warp) const;
  Stamp of_thread(uint32_t thread) const;
  bool covers(uint32_t warp, uint32_t lanes, Stamp stamp) const;
};

struct Clock {
  std::vector<std::pair<uint32_t, std::shared_ptr<const BlockClock>>> blocks;  // Ascending.

  const BlockClock* of(uint32_t block) const;
};
using ClockPointer = std::shared_ptr<const Clock>;  // Null knows nothing.

ClockPointer join(const ClockPointer& a, const ClockPointer& b);

// What a thread knows of others, and what barriers pass on.
struct View {
  ClockPointer known;
  ClockPointer proxied;          // The part of it that a fence.proxy.async has shown to the copy engine and wgmma.
  ClockPointer fenced[kLevels];  // The part that a fence of this scope precedes: a later atomic write publishes it.
  ClockPointer seen[kLevels];    // What atomic reads saw, which a later fence of this scope adds to `known`.
  ClockPointer read;             // Reads that are over, though nothing orders memory: see products.cpp.
};
using ViewPointer = std::shared_ptr<const View>;

ViewPointer join(const ViewPointer& a, const ViewPointer& b);
// The view that knows an engine of a block up to a stamp.
ViewPointer view_of_engine(uint32_t block, uint32_t engine, Stamp stamp);

// A thread's own part: the number of its releases, and that number at its last fences.
struct OwnClock {
  Stamp now = 1, proxied = 0, fenced[kLevels] = {};
};

// What threads that arrive at a barrier bring along. Kept apart from `view` until it is asked for, because one number
// often stands for all of them then.
class Gathering {
 public:
  void add(const Thread& thread);
  void add(const Block& block, uint32_t thread, const OwnClock& own, const ViewPointer& view);
  void add(const ViewPointer& view) { view_ = join(view_, view); }
  // All that has arrived so far.
  const ViewPointer& view();

 private:
  struct Arrival {
    const Block* block;
    uint32_t thread;
    OwnClock own;
  };
  ViewPointer view_;
  std::vector<Arrival> arrivals_;
};

// What a thread's relaxed writes publish after a fence, and what that was made of: many writes may follow one fence.
struct FencedView {
  OwnClock own;
  ClockPointer known, proxied;
  ViewPointer view;
};

// A thread's view changes by these alone. `release` begins the thread's next stamp: what it passed on is before that.
void learn(Thread& thread, const ViewPointer& view);
void release(Thread& thread, Gathering& into);
// Passes on only what a fence of the scope precedes.
void release_fenced(Thread& thread, Scope scope, Gathering& into);
void fence(Thread& thread, Scope scope);
void fence_proxy(Thread& thread);
// Threads that wait for each other: all know what all did, and `others` with it. Their stamps are equal from then on.
void meet(const std::vector<Thread*>& threads, Gathering& others);
// Lanes that execute an instruction together, which orders none of their own accesses: what one has acquired from other
// warps holds for all of them, for their later accesses come after it on the same path to memory. Cooperative groups
// rely on that: one lane acquires, and a shuffle tells the others.
void tell_lanes(Warp& warp, uint32_t lanes);

// The phases of a barrier whose waits are apart from its arrivals.
struct PhaseClock {
  static constexpr uint32_t kNone = ~0u;
  uint32_t engine = kNone;  // Of the copies that count at this barrier.
  Stamp phase = 1;
  Gathering arriving;
  ViewPointer completed;
  // Of an mbarrier: to whom a fence or a barrier has shown its initialisation.
  enum class Shown { kNobody, kBlock, kCluster } shown = Shown::kNobody;

  void complete(const Block& block);
};

// What the atomic operations on a variable have published, by the threads that may see it.
class Published {
 public:
  // To be called with the order of the operation, before it.
  void note(Thread& thread, bool reads, bool writes, Scope scope, bool acquire, bool release);

 private:
  std::map<uint64_t, ViewPointer> by_group_;

  void publish(uint64_t group, const ViewPointer& view);
};

}  // namespace emulator
