// Instructions that the lanes of a warp execute together, and the functions of language/warps.h; special registers.

#include <algorithm>
#include <map>

#include "ptx.h"

namespace emulator {

// ---- Exchange -------------------------------------------------------------------------------------------------

void synchronise_warp(uint32_t mask) {
  execute_together(mask, "syncwarp", &self(), [](Warp&, void* const* arguments) {
    std::vector<Thread*> threads;
    for (int lane = 0; lane < kLanes; ++lane) {
      if (arguments[lane]) threads.push_back(static_cast<Thread*>(arguments[lane]));
    }
    Gathering others;
    meet(threads, others);
  });
}

uint64_t exchange(const char* name, uint32_t mask, uint64_t bits, int source) {
  struct Exchange {
    uint64_t bits, result;
    int source;
  } own{bits, 0, source};
  execute_together(mask, name, &own, [](Warp&, void* const* arguments) {
    for (int lane = 0; lane < kLanes; ++lane) {
      if (!arguments[lane]) continue;
      auto& exchange = *static_cast<Exchange*>(arguments[lane]);
      const auto* other = static_cast<const Exchange*>(arguments[exchange.source % kLanes]);
      exchange.result = other ? other->bits : ~uint64_t(0);  // Undefined if that lane takes no part.
    }
  });
  return own.result;
}

uint32_t collect(const char* name, uint32_t mask, uint64_t bits, uint64_t (&all)[32]) {
  struct Collected {
    uint64_t bits;
    uint64_t* all;
    uint32_t present;
  } own{bits, all, 0};
  execute_together(mask, name, &own, [](Warp&, void* const* arguments) {
    uint64_t values[kLanes] = {};
    uint32_t present = 0;
    for (int lane = 0; lane < kLanes; ++lane) {
      if (!arguments[lane]) continue;
      values[lane] = static_cast<const Collected*>(arguments[lane])->bits;
      present |= 1u << lane;
    }
    for (int lane = 0; lane < kLanes; ++lane) {
      if (!arguments[lane]) continue;
      auto& collected = *static_cast<Collected*>(arguments[lane]);
      std::copy(values, values + kLanes, collected.all);
      collected.present = present;
    }
  });
  return own.present;
}

uint32_t ballot(uint32_t mask, bool value) {
  uint64_t all[kLanes];
  collect("vote", mask, value, all);
  uint32_t votes = 0;
  for (int lane = 0; lane < kLanes; ++lane) votes |= uint32_t(all[lane] != 0) << lane;
  return votes;
}

uint32_t match(const char* name, uint32_t mask, uint64_t bits) {
  uint64_t all[kLanes];
  const uint32_t present = collect(name, mask, bits, all);
  uint32_t same = 0;
  for (int lane = 0; lane < kLanes; ++lane) same |= uint32_t((present >> lane & 1) && all[lane] == bits) << lane;
  return same;
}

struct WarpVotes {
  std::vector<void*> call;  // The call stack of its lanes.
  uint32_t arrived = 0;
  uint32_t released = 0;  // Lanes that take the result.
  uint32_t mask = 0;
};

struct Gatherings {
  std::vector<WarpVotes> all;
};

// Lanes that come by the same calls count as active together once no other lane of the warp can run. PTX promises no
// more than the lane itself; GPUs give the lanes that have not diverged.
uint32_t active_lanes() {
  constexpr int kMostYields = 64;
  Warp& this_warp = warp();
  const uint32_t bit = 1u << self().lane;
  if (!this_warp.gatherings) this_warp.gatherings = std::make_shared<Gatherings>();
  auto& all = this_warp.gatherings->all;
  const std::vector<void*> call = trace();
  size_t which = 0;
  while (which < all.size() && (all[which].released || all[which].call != call)) ++which;
  if (which == all.size()) all.push_back({call});
  all[which].arrived |= bit;
  for (int yields = 0; yields < kMostYields; ++yields) {
    auto place = std::find_if(
        all.begin(), all.end(), [&](const WarpVotes& g) { return ((g.released ? g.released : g.arrived) & bit) != 0; });
    if (place->released) break;
    uint32_t gathering = 0;
    for (const WarpVotes& g : all) gathering |= g.arrived;
    if (!(this_warp.runnable & ~gathering)) break;
    yield();
  }
  const auto place = std::find_if(
      all.begin(), all.end(), [&](const WarpVotes& g) { return ((g.released ? g.released : g.arrived) & bit) != 0; });
  if (!place->released) {
    place->mask = place->released = place->arrived;
    place->arrived = 0;
  }
  const uint32_t mask = place->mask;
  place->released &= ~bit;
  if (!place->released) all.erase(place);
  return mask;
}

// ---- Instructions ---------------------------------------------------------------------------------------------

namespace {

bool is_named(const Call& call, size_t operand, size_t word) {
  return call.words(operand) > word && call.instruction.operands[operand][word].kind != Word::kLabel;
}

}  // namespace

// shfl.sync.mode.b32 d|p, a, b, c, mask: c holds the segment's mask in bits 8 to 12 and the clamp in bits 0 to 4.
void shuffle(const Call& call) {
  const int lane = self().lane, distance = int(call.get(2) & 31);
  const uint32_t c = call.get(3);
  const int segment = c >> 8 & 31, clamp = c & 31;
  const int last = (lane & segment) | (clamp & ~segment), first = lane & segment;
  int source;
  bool inside;
  const char* name;
  if (call.has("up")) {
    source = lane - distance, inside = source >= last, name = "shfl.up";
  } else if (call.has("down")) {
    source = lane + distance, inside = source <= last, name = "shfl.down";
  } else if (call.has("bfly")) {
    source = lane ^ distance, inside = source <= last, name = "shfl.bfly";
  } else {
    source = first | (distance & ~segment), inside = source <= last, name = "shfl.idx";
  }
  const uint32_t bits = uint32_t(exchange(name, call.get(4), uint32_t(call.get(1)), inside ? source : lane));
  if (is_named(call, 0, 0)) call.set(0, 0, bits);
  if (is_named(call, 0, 1)) call.set(0, 1, inside);
}

void vote(const Call& call) {
  const bool value = call.get(1) != 0;
  const uint32_t mask = call.get(2);
  if (call.has("ballot")) return call.set(0, ballot(mask, value));
  if (call.has("any")) return call.set(0, __any_sync(mask, value));
  if (call.has("all")) return call.set(0, __all_sync(mask, value));
  if (call.has("uni")) return call.set(0, __uni_sync(mask, value));
  fail_unknown(call);
}

void match(const Call& call) {
  const uint64_t bits = bits_of(call.instruction.type) == 64 ? call.get(1) : uint32_t(call.get(1));
  const uint32_t mask = call.get(2);
  if (call.has("any")) return call.set(0, match("match.any", mask, bits));
  int is_same;
  const uint32_t same = __match_all_sync(mask, bits, &is_same);
  if (is_named(call, 0, 0)) call.set(0, 0, same);
  if (is_named(call, 0, 1)) call.set(0, 1, is_same);
}

void reduce(const Call& call) {
  const uint32_t bits = call.get(1), mask = call.get(2);
  const bool is_signed_type = is_signed(call.instruction.type);
  if (call.instruction.type == Type::kF32) fail_unknown(call);
  if (call.has("add")) return call.set(0, __reduce_add_sync(mask, bits));
  if (call.has("and")) return call.set(0, __reduce_and_sync(mask, bits));
  if (call.has("or")) return call.set(0, __reduce_or_sync(mask, bits));
  if (call.has("xor")) return call.set(0, __reduce_xor_sync(mask, bits));
  if (call.has("min")) {
    return call.set(0, is_signed_type ? uint32_t(__reduce_min_sync(mask, int(bits))) : __reduce_min_sync(mask, bits));
  }
  if (call.has("max")) {
    return call.set(0, is_signed_type ? uint32_t(__reduce_max_sync(mask, int(bits))) : __reduce_max_sync(mask, bits));
  }
  fail_unknown(call);
}

void active_mask(const Call& call) {
  call.set(0, active_lanes());
}

// elect.sync d|p, mask: the lowest lane, which GPUs take, too.
void elect(const Call& call) {
  const uint32_t mask = call.get(1);
  uint64_t all[kLanes];
  const uint32_t present = collect("elect", mask, 0, all);
  const int leader = std::countr_zero(present);
  if (is_named(call, 0, 0)) call.set(0, 0, uint64_t(leader));
  if (is_named(call, 0, 1)) call.set(0, 1, leader == self().lane);
}

void warp_barrier(const Call& call) {
  synchronise_warp(call.get(0));
}

void pause_thread(const Call&) {
  yield();
}

// ---- Reductions at a barrier ----------------------------------------------------------------------------------

struct Votes {
  int arrived = 0, read = 0, count = 0;
};

struct BarrierVotes {
  std::map<std::pair<const Barrier*, uint64_t>, Votes> all;  // By barrier and phase.
};

int synchronise_block_and_vote(int number, int threads, Vote kind, bool value) {
  if (!block().votes) block().votes = std::make_shared<BarrierVotes>();
  auto& all = block().votes->all;
  if (number < 0 || number > 15) fail("there is no barrier %d", number);
  const Barrier& barrier = block().barriers[number];
  const auto key = std::pair(&barrier, barrier.phase);
  Votes& own = all[key];
  ++own.arrived;
  own.count += value;
  barrier_arrive(number, threads, true);
  Votes& votes = all[key];
  const int count = votes.count, arrived = votes.arrived;
  if (++votes.read == votes.arrived) all.erase(key);
  return kind == Vote::kCount ? count : kind == Vote::kAll ? count == arrived : count > 0;
}

void named_barrier_sync(int barrier, int threads) {
  barrier_arrive(barrier, threads, true);
}

// bar.red.op.type d, a{, b}, {!}c
void reduce_at_barrier(const Call& call) {
  const size_t last = call.operands() - 1;
  const int threads = last == 3 ? int(call.get(2)) : 0;
  const bool value = call.get(last) != 0;
  const Vote kind = call.has("popc") ? Vote::kCount : call.has("and") ? Vote::kAll : Vote::kAny;
  call.set(0, uint64_t(synchronise_block_and_vote(int(call.get(1)), threads, kind, value)));
}

}  // namespace emulator
