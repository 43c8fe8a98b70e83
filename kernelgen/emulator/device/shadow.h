// The record of accesses to memory: for every four bytes those that a later access may race with.

#pragma once

#include <bit>
#include <memory>
#include <type_traits>
#include <vector>

#include "accesses.h"

namespace emulator {

struct Warp;

// Accesses of some lanes of a warp, or of an engine, that have the same stamp.
struct Entry {
  // The block's number shifted by kIndexBits, and in it the warp, or kEngines + the engine.
  static constexpr uint32_t kIndexBits = 12, kEngines = 32, kIndexMask = (1 << kIndexBits) - 1;
  enum Flags : uint8_t {
    kWrites = 1,
    kAtomic = 2,
    kOfBlock = 4,      // An atomic operation of the block's scope.
    kUnderWay = 8,     // A cp.async that its thread has not waited for.
    kAsyncProxy = 16,  // By the copy engine or wgmma.
    kUpdates = 32,     // A read-modify-write.
  };

  uint32_t component = 0, lanes = 0;
  Stamp stamp = 0;
  int32_t place = 0;  // Relative to an address in the library.
  uint8_t bytes = 0;  // Which of the four.
  uint8_t flags = 0;
  Unit unit = Unit::kThread;
  uint8_t unused = 0;  // No padding, so that entries are compared as three words.

  uint32_t block() const { return component >> kIndexBits; }
  uint32_t index() const { return component & kIndexMask; }
  bool writes() const { return flags & kWrites; }
  bool atomic() const { return flags & kAtomic; }
  bool operator==(const Entry& other) const {
    struct Words {
      uint64_t first, second;
      uint32_t third;
    } __attribute__((packed));
    const auto a = std::bit_cast<Words>(*this), b = std::bit_cast<Words>(other);
    return ((a.first ^ b.first) | (a.second ^ b.second) | (a.third ^ b.third)) == 0;
  }
};
static_assert(std::has_unique_object_representations_v<Entry>);

// All that a cell mostly holds.
struct CellState {
  static constexpr int kFew = 3;
  Entry few[kFew];
  uint8_t count = 0;  // In `few`.
  uint8_t written = 0, may_read = 0, may_write = 0;
  bool is_known = false;  // Of global memory: whether the masks are set.
  bool keeps_written = false;

  bool operator==(const CellState& other) const {
    if (count != other.count || written != other.written || may_read != other.may_read) return false;
    if (may_write != other.may_write || keeps_written != other.keeps_written) return false;
    for (int i = 0; i < count; ++i) {
      if (few[i] != other.few[i]) return false;
    }
    return true;
  }
};

struct Cell : CellState {
  // Emptied vectors keep their memory for other cells: most cells of a tile need one at the same time.
  struct KeepForOthers {
    void operator()(std::vector<Entry>* entries) const;
  };
  std::unique_ptr<std::vector<Entry>, KeepForOthers> more;

  template <typename F>
  bool any(const F& test) const {
    for (int i = 0; i < count; ++i) {
      if (test(few[i])) return true;
    }
    if (more) {
      for (const Entry& entry : *more) {
        if (test(entry)) return true;
      }
    }
    return false;
  }
  template <typename F>
  void remove_if(const F& test) {
    int kept = 0;
    for (int i = 0; i < count; ++i) {
      if (!test(few[i])) few[kept++] = few[i];
    }
    count = kept;
    if (more) {
      std::erase_if(*more, test);
      if (more->empty()) more.reset();
    }
  }
  void add(const Entry& entry);
};

// On whose behalf an access happens: what is known to this one is ordered before the access.
struct Actor {
  Block* block;
  uint32_t warp;
  uint32_t own_lanes;  // Whose own accesses come before.
  const View* view;
  const BlockClock* known_of_block;

  bool knows(const Entry& entry) const;

 private:
  bool knows(const Entry& entry, uint32_t lanes, const BlockClock* clock) const;
};

// An earlier access that this one races with, or null.
const Entry* find_race(const Cell& cell, const Actor& actor, const Entry& access);
void remember(Cell& cell, const Actor& actor, const Entry& access);
// Whether the copy engine or wgmma may read what generic accesses wrote. Returns a write that no fence.proxy.async has
// shown to it, or null.
const Entry* unfenced_write(const Cell& cell, const Actor& actor, const Warp& warp, uint8_t bytes);

}  // namespace emulator
