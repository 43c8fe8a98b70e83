#include "clocks.h"

#include <algorithm>

#include "machine.h"

namespace emulator {

// ---- Clocks ---------------------------------------------------------------------------------------------------

Stamp BlockClock::of_warp(uint32_t warp) const {
  return warp < warps.size() ? std::max(all, warps[warp]) : all;
}

Stamp BlockClock::of_thread(uint32_t thread) const {
  const auto place = std::lower_bound(threads.begin(), threads.end(), std::pair(thread, Stamp(0)));
  const Stamp own = place != threads.end() && place->first == thread ? place->second : 0;
  return std::max(own, of_warp(thread / kLanes));
}

bool BlockClock::covers(uint32_t warp, uint32_t lanes, Stamp stamp) const {
  if (of_warp(warp) >= stamp) return true;
  if (threads.empty()) return lanes == 0;
  for (; lanes; lanes &= lanes - 1) {
    if (of_thread(warp * kLanes + std::countr_zero(lanes)) < stamp) return false;
  }
  return true;
}

const BlockClock* Clock::of(uint32_t block) const {
  const auto place = std::lower_bound(
      blocks.begin(), blocks.end(), block, [](const auto& entry, uint32_t block) { return entry.first < block; });
  return place != blocks.end() && place->first == block ? place->second.get() : nullptr;
}

namespace {

void raise(std::vector<Stamp>& to, const std::vector<Stamp>& from) {
  if (to.size() < from.size()) to.resize(from.size());
  for (size_t i = 0; i < from.size(); ++i) to[i] = std::max(to[i], from[i]);
}

using BlockPointer = std::shared_ptr<const BlockClock>;

// Whether a knows all that b knows: then a is their join, which spares a clock and the counts of what it refers to.
bool covers(const BlockClock& a, const BlockClock& b) {
  if (a.all < b.all || a.engines.size() < b.engines.size()) return false;
  for (size_t warp = 0; warp < b.warps.size(); ++warp) {
    if (a.of_warp(warp) < b.warps[warp]) return false;
  }
  for (size_t engine = 0; engine < b.engines.size(); ++engine) {
    if (a.engines[engine] < b.engines[engine]) return false;
  }
  auto place = a.threads.begin();
  for (const auto& [thread, stamp] : b.threads) {
    if (a.of_warp(thread / kLanes) >= stamp) continue;
    while (place != a.threads.end() && place->first < thread) ++place;
    if (place == a.threads.end() || place->first != thread || place->second < stamp) return false;
  }
  return true;
}

bool covers(const Clock& a, const Clock& b) {
  if (a.blocks.size() < b.blocks.size()) return false;
  auto place = a.blocks.begin();
  for (const auto& [block, clock] : b.blocks) {
    while (place != a.blocks.end() && place->first < block) ++place;
    if (place == a.blocks.end() || place->first != block) return false;
    if (place->second != clock && !covers(*place->second, *clock)) return false;
  }
  return true;
}

BlockPointer join(const BlockPointer& a, const BlockPointer& b) {
  if (covers(*a, *b)) return a;
  if (covers(*b, *a)) return b;
  auto joined = std::make_shared<BlockClock>();
  joined->all = std::max(a->all, b->all);
  joined->warps = a->warps;
  raise(joined->warps, b->warps);
  joined->engines = a->engines;
  raise(joined->engines, b->engines);
  const auto add = [&](std::pair<uint32_t, Stamp> thread) {
    if (thread.second > joined->of_warp(thread.first / kLanes)) joined->threads.push_back(thread);
  };
  auto left = a->threads.begin(), right = b->threads.begin();
  while (left != a->threads.end() || right != b->threads.end()) {
    if (right == b->threads.end() || (left != a->threads.end() && left->first < right->first)) {
      add(*left++);
    } else if (left == a->threads.end() || right->first < left->first) {
      add(*right++);
    } else {
      add({left->first, std::max(left->second, right->second)});
      ++left, ++right;
    }
  }
  return joined;
}

// The results of the latest joins: threads of a warp or block join the same clocks one after the other. The operands
// are kept, too, so that their addresses stay theirs.
template <typename Pointer>
class Memo {
 public:
  template <typename Make>
  const Pointer& get(const Pointer& a, const Pointer& b, int kind, const Make& make) {
    const size_t hash = (reinterpret_cast<size_t>(a.get()) >> 4) * 31 + (reinterpret_cast<size_t>(b.get()) >> 4) + kind;
    Entry& entry = entries_[hash % kEntries];
    if (entry.a != a || entry.b != b || entry.kind != kind || !entry.result) entry = {a, b, kind, make()};
    return entry.result;
  }

 private:
  static constexpr size_t kEntries = 61;
  struct Entry {
    Pointer a, b;
    int kind;
    Pointer result;
  };
  Entry entries_[kEntries];
};

ClockPointer join_new(const ClockPointer& a, const ClockPointer& b) {
  if (covers(*a, *b)) return a;
  if (covers(*b, *a)) return b;
  auto joined = std::make_shared<Clock>();
  joined->blocks.reserve(std::max(a->blocks.size(), b->blocks.size()));
  auto left = a->blocks.begin(), right = b->blocks.begin();
  while (left != a->blocks.end() || right != b->blocks.end()) {
    if (right == b->blocks.end() || (left != a->blocks.end() && left->first < right->first)) {
      joined->blocks.push_back(*left++);
    } else if (left == a->blocks.end() || right->first < left->first) {
      joined->blocks.push_back(*right++);
    } else {
      const bool same = left->second == right->second;
      joined->blocks.emplace_back(left->first, same ? left->second : join(left->second, right->second));
      ++left, ++right;
    }
  }
  return joined;
}

bool same(const View& a, const View& b) {
  bool equal = a.known == b.known && a.proxied == b.proxied && a.read == b.read;
  for (int level = 0; level < kLevels; ++level) {
    equal = equal && a.fenced[level] == b.fenced[level] && a.seen[level] == b.seen[level];
  }
  return equal;
}

ViewPointer join_new(const ViewPointer& a, const ViewPointer& b) {
  View joined;
  joined.known = join(a->known, b->known);
  joined.proxied = join(a->proxied, b->proxied);
  joined.read = join(a->read, b->read);
  for (int level = 0; level < kLevels; ++level) {
    joined.fenced[level] = join(a->fenced[level], b->fenced[level]);
    joined.seen[level] = join(a->seen[level], b->seen[level]);
  }
  if (same(joined, *a)) return a;
  if (same(joined, *b)) return b;
  return std::make_shared<View>(std::move(joined));
}

template <typename Pointer>
Pointer join_remembered(const Pointer& a, const Pointer& b) {
  static Memo<Pointer> memo;
  if (!a || a == b) return b;
  if (!b) return a;
  return memo.get(a, b, 0, [&] { return join_new(a, b); });
}

}  // namespace

ClockPointer join(const ClockPointer& a, const ClockPointer& b) {
  return join_remembered(a, b);
}

ViewPointer join(const ViewPointer& a, const ViewPointer& b) {
  return join_remembered(a, b);
}

ViewPointer view_of_engine(uint32_t block, uint32_t engine, Stamp stamp) {
  auto clock = std::make_shared<BlockClock>();
  clock->engines.resize(engine + 1);
  clock->engines[engine] = stamp;
  auto view = std::make_shared<View>();
  view->known = std::make_shared<Clock>(Clock{{{block, clock}}});
  return view;
}

// ---- Arrivals -------------------------------------------------------------------------------------------------

void Gathering::add(const Thread& thread) {
  add(*thread.warp->block, number_in_block(thread), thread.own, thread.view);
}

void Gathering::add(const Block& block, uint32_t thread, const OwnClock& own, const ViewPointer& view) {
  view_ = join(view_, view);
  arrivals_.push_back({&block, thread, own});
}

namespace {

// The clock that knows these stamps of a block's threads (0: none).
BlockPointer compressed(const Block& block, const std::vector<Stamp>& stamps) {
  auto clock = std::make_shared<BlockClock>();
  clock->all = *std::min_element(stamps.begin(), stamps.begin() + block.threads);
  for (int begin = 0; begin < block.threads; begin += kLanes) {
    const auto first = stamps.begin() + begin, last = stamps.begin() + std::min(begin + kLanes, block.threads);
    const Stamp lowest = *std::min_element(first, last);
    if (lowest > clock->all) {
      clock->warps.resize(begin / kLanes + 1);
      clock->warps.back() = lowest;
    }
    for (auto stamp = first; stamp != last; ++stamp) {
      if (*stamp > lowest) clock->threads.emplace_back(stamp - stamps.begin(), *stamp);
    }
  }
  return clock;
}

// The same of a single thread.
ClockPointer clock_of(const Block& block, uint32_t thread, Stamp stamp) {
  auto clock = std::make_shared<BlockClock>();
  if (block.threads == 1) {
    clock->all = stamp;
  } else {
    clock->threads.emplace_back(thread, stamp);
  }
  return std::make_shared<Clock>(Clock{{{block.id, std::move(clock)}}});
}

template <typename Arrivals, typename StampOf>
ClockPointer clock_of(const Arrivals& arrivals, const StampOf& stamp_of) {
  if (arrivals.size() == 1) {
    const auto& arrival = arrivals[0];
    const Stamp stamp = stamp_of(arrival.own);
    return stamp ? clock_of(*arrival.block, arrival.thread, stamp) : nullptr;
  }
  std::map<const Block*, std::vector<Stamp>> blocks;
  for (const auto& arrival : arrivals) {
    if (!stamp_of(arrival.own)) continue;
    auto& stamps = blocks[arrival.block];
    stamps.resize(arrival.block->threads);
    stamps[arrival.thread] = std::max(stamps[arrival.thread], stamp_of(arrival.own));
  }
  if (blocks.empty()) return nullptr;
  auto clock = std::make_shared<Clock>();
  for (const auto& [block, stamps] : blocks) clock->blocks.emplace_back(block->id, compressed(*block, stamps));
  std::sort(clock->blocks.begin(), clock->blocks.end());
  return clock;
}

}  // namespace

const ViewPointer& Gathering::view() {
  if (arrivals_.empty()) return view_;
  auto arrived = std::make_shared<View>();
  arrived->known = clock_of(arrivals_, [](const OwnClock& own) { return own.now; });
  arrived->proxied = clock_of(arrivals_, [](const OwnClock& own) { return own.proxied; });
  for (int level = 0; level < kLevels; ++level) {
    arrived->fenced[level] = clock_of(arrivals_, [=](const OwnClock& own) { return own.fenced[level]; });
  }
  arrivals_.clear();
  return view_ = join(view_, ViewPointer(arrived));
}

// ---- Threads --------------------------------------------------------------------------------------------------

void learn(Thread& thread, const ViewPointer& view) {
  thread.view = join(thread.view, view);
  thread.known_of_block = thread.view && thread.view->known ? thread.view->known->of(thread.warp->block->id) : nullptr;
}

void release(Thread& thread, Gathering& into) {
  into.add(thread);
  ++thread.own.now;
}

void release_fenced(Thread& thread, Scope scope, Gathering& into) {
  const int level = std::min(int(scope), kLevels - 1);
  OwnClock own;
  own.now = thread.own.fenced[level];
  own.proxied = thread.own.proxied;
  ViewPointer view;
  if (thread.view) {
    view = std::make_shared<View>(View{.known = thread.view->fenced[level], .proxied = thread.view->proxied});
  }
  into.add(*thread.warp->block, number_in_block(thread), own, view);
}

namespace {

// Threads with the same view get the same new one.
template <typename Change>
void change_view(Thread& thread, int kind, const Change& change) {
  static Memo<ViewPointer> memo;
  if (!thread.view) return;
  learn(thread, nullptr);
  const ViewPointer view = memo.get(thread.view, nullptr, kind, [&] {
    auto changed = std::make_shared<View>(*thread.view);
    change(*changed);
    return changed;
  });
  thread.view = view;
  learn(thread, nullptr);
}

}  // namespace

void fence(Thread& thread, Scope scope) {
  const int widest = std::min(int(scope), kLevels - 1);
  change_view(thread, widest, [=](View& view) {
    for (int level = 0; level <= widest; ++level) view.known = join(view.known, view.seen[level]);
    for (int level = 0; level <= widest; ++level) view.fenced[level] = view.known;
  });
  for (int level = 0; level <= widest; ++level) thread.own.fenced[level] = thread.own.now;
  ++thread.own.now;
}

void fence_proxy(Thread& thread) {
  change_view(thread, kLevels, [](View& view) { view.proxied = view.known; });
  thread.own.proxied = thread.own.now++;
}

void meet(const std::vector<Thread*>& threads, Gathering& others) {
  Stamp latest = 0;
  for (const Thread* thread : threads) latest = std::max(latest, thread->own.now);
  for (Thread* thread : threads) {
    thread->own.now = latest;
    others.add(*thread);
  }
  const ViewPointer& met = others.view();
  for (Thread* thread : threads) {
    ++thread->own.now;
    learn(*thread, met);
  }
}

void tell_lanes(Warp& warp, uint32_t lanes) {
  ClockPointer known;
  const View* latest = nullptr;  // Mostly all lanes have the same view.
  for (uint32_t rest = lanes; rest; rest &= rest - 1) {
    const ViewPointer& view = warp.threads[std::countr_zero(rest)].view;
    if (view.get() != latest) known = join(known, view ? view->known : nullptr);
    latest = view.get();
  }
  ViewPointer before, after;  // Lanes that have the same view get the same new one.
  for (uint32_t rest = known ? lanes : 0; rest; rest &= rest - 1) {
    Thread& thread = warp.threads[std::countr_zero(rest)];
    if (thread.view && thread.view->known == known) continue;
    if (!after || thread.view != before) {
      before = thread.view;
      const auto changed = std::make_shared<View>(before ? *before : View());
      changed->known = known;
      after = changed;
    }
    thread.view = after;
    learn(thread, nullptr);
  }
}

void PhaseClock::complete(const Block& block) {
  if (engine != kNone) arriving.add(view_of_engine(block.id, engine, phase));
  ++phase;
  completed = arriving.view();
}

// ---- Atomic operations ----------------------------------------------------------------------------------------

namespace {

// The threads among which a scope orders memory: those of the block, of the cluster, or all.
uint64_t group_of(const Thread& thread, int level) {
  const Block& block = *thread.warp->block;
  if (level == 0) return uint64_t(1) << 32 | block.id;
  return level == 1 ? uint64_t(2) << 32 | block.cluster->blocks[0]->id : 0;
}

// What a thread learns by reading what was published: threads mostly read the same from many variables.
ViewPointer view_of_reader(const ViewPointer& published, int level, bool acquires) {
  static Memo<ViewPointer> memo;
  return memo.get(published, nullptr, 2 * level + acquires, [&] {
    auto seen = std::make_shared<View>(View{.proxied = published->proxied});
    (acquires ? seen->known : seen->seen[level]) = published->known;
    return seen;
  });
}

ViewPointer without_fences(const View& view) {
  return std::make_shared<View>(View{.known = view.known, .proxied = view.proxied});
}

const ViewPointer& fenced_view(Thread& thread, int level) {
  const ClockPointer known = thread.view ? thread.view->fenced[level] : nullptr;
  const ClockPointer proxied = thread.view ? thread.view->proxied : nullptr;
  if (!thread.published) thread.published = std::make_unique<FencedView[]>(kLevels);
  FencedView& latest = thread.published[level];
  const bool is_latest = latest.view && latest.own.fenced[level] == thread.own.fenced[level] &&
                         latest.own.proxied == thread.own.proxied && latest.known == known && latest.proxied == proxied;
  if (!is_latest) {
    Gathering gathering;
    release_fenced(thread, Scope(level), gathering);
    latest = {thread.own, known, proxied, without_fences(*gathering.view())};
  }
  return latest.view;
}

}  // namespace

void Published::publish(uint64_t group, const ViewPointer& view) {
  ViewPointer& published = by_group_[group];
  published = join(published, view);
}

void Published::note(Thread& thread, bool reads, bool writes, Scope scope, bool acquire, bool releases) {
  const int widest = std::min(int(scope), kLevels - 1);
  for (int level = 0; reads && level <= widest; ++level) {
    const auto published = by_group_.find(group_of(thread, level));
    if (published == by_group_.end() || !published->second) continue;
    learn(thread, view_of_reader(published->second, level, acquire));
  }
  if (!writes) return;
  if (!reads) by_group_.clear();  // The value of a read-modify-write continues what was published; that of a store not.
  if (releases) {
    Gathering gathering;
    gathering.add(thread);
    const ViewPointer view = without_fences(*gathering.view());
    for (int level = 0; level <= widest; ++level) publish(group_of(thread, level), view);
    ++thread.own.now;
    return;
  }
  for (int level = 0; level <= widest; ++level) {
    const bool is_fenced = thread.own.fenced[level] || (thread.view && thread.view->fenced[level]);
    if (is_fenced) publish(group_of(thread, level), fenced_view(thread, level));
  }
}

}  // namespace emulator
