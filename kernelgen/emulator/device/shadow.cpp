#include "shadow.h"

#include <bit>

#include "machine.h"

namespace emulator {

namespace {

// Never destroyed, since cells may outlive a static variable.
auto& spare_vectors = *new std::vector<std::unique_ptr<std::vector<Entry>>>;

}  // namespace

void Cell::KeepForOthers::operator()(std::vector<Entry>* entries) const {
  constexpr size_t kMostKept = 64;
  std::unique_ptr<std::vector<Entry>> owner(entries);
  if (entries->capacity() > kMostKept) return;
  entries->clear();
  spare_vectors.push_back(std::move(owner));
}

void Cell::add(const Entry& entry) {
  if (count < kFew) {
    few[count++] = entry;
    return;
  }
  if (!more) {
    if (spare_vectors.empty()) spare_vectors.push_back(std::make_unique<std::vector<Entry>>());
    more.reset(spare_vectors.back().release());
    spare_vectors.pop_back();
  }
  more->push_back(entry);
}

bool Actor::knows(const Entry& entry) const {
  if (entry.flags & Entry::kUnderWay) return false;
  const bool own_block = entry.block() == block->id;
  uint32_t lanes = entry.lanes;
  if (own_block && entry.index() == warp) lanes &= ~own_lanes;
  if (!lanes) return true;
  const bool is_known = knows(
      entry,
      lanes,
      own_block             ? known_of_block
      : view && view->known ? view->known->of(entry.block())
                            : nullptr);
  if (is_known || entry.writes() || !view || !view->read) return is_known;
  return knows(entry, lanes, view->read->of(entry.block()));
}

bool Actor::knows(const Entry& entry, uint32_t lanes, const BlockClock* clock) const {
  if (!clock) return false;
  if (entry.index() < Entry::kEngines) return clock->covers(entry.index(), lanes, entry.stamp);
  const uint32_t engine = entry.index() - Entry::kEngines;
  return engine < clock->engines.size() && clock->engines[engine] >= entry.stamp;
}

namespace {

bool conflict(const Entry& a, const Entry& b) {
  if (!(a.bytes & b.bytes) || !(a.writes() || b.writes())) return false;
  if (!a.atomic() || !b.atomic()) return true;
  return ((a.flags | b.flags) & Entry::kOfBlock) && a.block() != b.block();
}

// Whether what races with the earlier entry would race with the access, too, that comes after it.
bool supersedes(const Entry& access, const Entry& earlier) {
  if (earlier.bytes & ~access.bytes) return false;
  if (earlier.writes() && !access.writes()) return false;
  return !access.atomic() ||
         (earlier.atomic() && (earlier.flags & Entry::kOfBlock) <= (access.flags & Entry::kOfBlock));
}

// A read-modify-write comes after the atomic writes whose values it continues (PTX: observation order), so what is
// ordered after it is ordered after those.
bool observes(const Entry& access, const Entry& earlier) {
  return access.flags & Entry::kUpdates && earlier.atomic() && earlier.writes() &&
         !(earlier.flags & Entry::kAsyncProxy);
}

bool alike(const Entry& a, const Entry& b) {
  return a.component == b.component && a.stamp == b.stamp && a.bytes == b.bytes && a.flags == b.flags;
}

bool merge(Entry& entry, const Entry& access) {
  if (!alike(entry, access) || (access.writes() && entry.lanes != access.lanes)) return false;
  entry.lanes |= access.lanes;
  return true;
}

}  // namespace

const Entry* find_race(const Cell& cell, const Actor& actor, const Entry& access) {
  const Entry* race = nullptr;
  cell.any([&](const Entry& entry) {
    if (!conflict(entry, access) || actor.knows(entry)) return false;
    race = &entry;
    return true;
  });
  return race;
}

void remember(Cell& cell, const Actor& actor, const Entry& access) {
  // Most accesses continue what the lanes before began.
  for (int i = 0; i < cell.count; ++i) {
    if (merge(cell.few[i], access)) return;
  }
  if (cell.more) {
    for (auto entry = cell.more->rbegin(); entry != cell.more->rend(); ++entry) {
      if (merge(*entry, access)) return;
    }
  }
  // Where many have accumulated, few can be removed: that is tried now and then.
  const bool few = !cell.more || std::has_single_bit(cell.more->size()) || access.writes();
  if (cell.count && few) {
    cell.remove_if([&](const Entry& entry) {
      return supersedes(access, entry) && (observes(access, entry) || actor.knows(entry));
    });
  }
  cell.add(access);
}

const Entry* unfenced_write(const Cell& cell, const Actor& actor, const Warp& warp, uint8_t bytes) {
  const Entry* unfenced = nullptr;
  cell.any([&](const Entry& entry) {
    if (!(entry.bytes & bytes) || !entry.writes() || entry.flags & Entry::kAsyncProxy) return false;
    if (entry.index() >= Entry::kEngines) return false;
    uint32_t lanes = entry.lanes;
    if (entry.block() == actor.block->id && entry.index() == actor.warp) {
      for (uint32_t rest = lanes; rest; rest &= rest - 1) {
        if (warp.threads[std::countr_zero(rest)].own.proxied >= entry.stamp) lanes ^= rest & -rest;
      }
    }
    const Clock* const proxied = actor.view ? actor.view->proxied.get() : nullptr;
    const BlockClock* const clock = lanes && proxied ? proxied->of(entry.block()) : nullptr;
    if (!lanes || (clock && clock->covers(entry.index(), lanes, entry.stamp))) return false;
    unfenced = &entry;
    return true;
  });
  return unfenced;
}

}  // namespace emulator
