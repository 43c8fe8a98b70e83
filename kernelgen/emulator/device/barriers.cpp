// Barriers: those of a block by number, those of a cluster, and those in shared memory (mbarrier).

#include "accesses.h"
#include "ptx.h"
#include "reports.h"

namespace emulator {

void named_barrier(const Call& call) {
  const bool waits = call.has("sync");
  if (!waits && !call.has("arrive")) fail("the emulator does not know '%s'", call.instruction.text.c_str());
  barrier_arrive(call.get(0), call.operands() > 1 ? call.get(1) : 0, waits);
}

// ---- Clusters -------------------------------------------------------------------------------------------------

void complete_cluster_barrier(Cluster& cluster) {
  cluster.barrier.arrived = 0;
  ++cluster.barrier.phase;
  cluster.phases.complete(*cluster.blocks[0]);
  wake(&cluster.barrier);
}

void cluster_arrive(const Call& call) {
  Thread& thread = self();
  Cluster& cluster = *block().cluster;
  if (thread.has_arrived) fail("a thread arrives twice at the cluster's barrier without waiting");
  thread.has_arrived = true;
  thread.cluster_arrival = cluster.barrier.phase;
  if (call.has("relaxed")) {
    release_fenced(thread, Scope::kCluster, cluster.phases.arriving);
  } else {
    release(thread, cluster.phases.arriving);
    show_mbarriers(block(), PhaseClock::Shown::kCluster);
  }
  if (++cluster.barrier.arrived == cluster.live) complete_cluster_barrier(cluster);
}

void cluster_wait(const Call&) {
  Thread& thread = self();
  const Barrier& barrier = block().cluster->barrier;
  if (!thread.has_arrived) fail("a thread waits at the cluster's barrier without having arrived");
  while (barrier.phase == thread.cluster_arrival) {
    sleep(&barrier, 0, [](const Thread& thread) {
      const Cluster& cluster = *thread.warp->block->cluster;
      return text("the cluster's barrier, where %d of %d threads are", cluster.barrier.arrived, cluster.live);
    });
  }
  thread.has_arrived = false;
  learn(thread, block().cluster->phases.completed);
}

// ---- Registers ------------------------------------------------------------------------------------------------

// A warp's first lane releases or claims registers for all. What a warp claims must have been released before, by any
// warp of the block. How many a thread starts with is up to the compiler; here it is as many as the register file has
// for it.
void set_registers(const Call& call) {
  const int count = call.get(0);
  if (count < 24 || count > 256 || count % 8) fail("setmaxnreg to %d", count);
  execute_together(kAllLanes, "setmaxnreg", nullptr, [](Warp&, void* const*) {});
  if (self().lane == 0) {
    Warp& this_warp = warp();
    const int more = (count - this_warp.registers) * kLanes;
    while (more > block().free_registers) {
      sleep(&block().free_registers, count, [](const Thread& thread) {
        return text("%d registers, of which a thread has %d", int(thread.detail), thread.warp->registers);
      });
    }
    block().free_registers -= more;
    this_warp.registers = count;
    if (more < 0) wake(&block().free_registers);
  }
  execute_together(kAllLanes, "setmaxnreg", nullptr, [](Warp&, void* const*) {});
}

// ---- mbarrier -------------------------------------------------------------------------------------------------

namespace {

// The 8 bytes of an mbarrier. Poison has another mark.
struct State {
  uint64_t pending : 20, arrivals : 20;
  int64_t bytes : 21;
  uint64_t phase : 1, mark : 2;
};
static_assert(sizeof(State) == 8);
constexpr uint64_t kMark = 1;

State& mbarrier_at(SharedAddress address) {
  State& state = *reinterpret_cast<State*>(address.pointer());
  if (state.mark != kMark) {
    fail("there is no mbarrier at %#x of the shared memory", address.offset);
  }
  return state;
}

PhaseClock& clock_at(SharedAddress address) {
  return address.block->mbarriers[address.offset];
}

void complete_phase_if_due(SharedAddress address, State& state) {
  if (state.pending || state.bytes) return;
  state.pending = state.arrivals;
  state.phase ^= 1;
  clock_at(address).complete(*address.block);
  wake(address.pointer());
}

void arrive(const Call& call, SharedAddress address, int64_t bytes, uint64_t count) {
  State& state = mbarrier_at(address);
  if (state.pending < count) fail("more arrivals at the mbarrier at %#x than it was initialised for", address.offset);
  note_mbarrier(address.pointer(), true);
  if (call.has("relaxed")) {
    release_fenced(self(), Scope::kCluster, clock_at(address).arriving);
  } else {
    release(self(), clock_at(address).arriving);
  }
  if (call.has("noComplete") && state.pending == count && !state.bytes) fail("an arrival with .noComplete is the last");
  if (call.has("arrive_drop")) state.arrivals -= count;
  state.bytes += bytes;
  state.pending -= count;
  complete_phase_if_due(address, state);
}

}  // namespace

// A copy of the own block relies on a barrier of the block, as libcu++ does: its documentation of memcpy_async_tx has
// no fence between init and __syncthreads. Otherwise it takes a fence, and so do other blocks.
void check_known(SharedAddress barrier) {
  mbarrier_at(barrier);
  const bool is_own = barrier.block == &block();
  if (clock_at(barrier).shown >= (is_own ? PhaseClock::Shown::kBlock : PhaseClock::Shown::kCluster)) return;
  fail("the mbarrier at %#x was initialised without a fence after it", barrier.offset);
}

void fence_mbarriers(const Call&) {
  note_fence(Scope::kCluster);
  show_mbarriers(block(), PhaseClock::Shown::kCluster);
}

void show_mbarriers(Block& block, PhaseClock::Shown to) {
  for (auto& [offset, clock] : block.mbarriers) clock.shown = std::max(clock.shown, to);
}

void complete_bytes(SharedAddress barrier, int64_t bytes) {
  State& state = mbarrier_at(barrier);
  state.bytes -= bytes;
  complete_phase_if_due(barrier, state);
}

void expect_copies(SharedAddress barrier, bool increments) {
  State& state = mbarrier_at(barrier);
  state.pending += increments;
  if (!state.pending) fail("more arrivals at the mbarrier at %#x than it was initialised for", barrier.offset);
}

void arrive_for_copies(SharedAddress barrier) {
  State& state = mbarrier_at(barrier);
  if (!state.pending) fail("more arrivals at the mbarrier at %#x than it was initialised for", barrier.offset);
  --state.pending;
  complete_phase_if_due(barrier, state);
}

void mbarrier_init(const Call& call) {
  const SharedAddress address = shared_address(call.get(0), 8, 8);
  const uint64_t arrivals = call.get(1);
  if (arrivals == 0 || arrivals >= 1 << 20) fail("mbarrier.init for %d arrivals", int(arrivals));
  note_write(address.pointer(), 8);
  *reinterpret_cast<State*>(address.pointer()) = {arrivals, arrivals, 0, 0, kMark};
  clock_at(address).shown = PhaseClock::Shown::kNobody;
}

// mbarrier.arrive{_drop}{.expect_tx} _, [barrier]{, count or bytes}
void mbarrier_arrive(const Call& call) {
  const SharedAddress address = shared_address(call.get(1), 8, 8);
  if (address.block != &block()) check_known(address);
  const uint64_t last = call.operands() > 2 ? call.get(2) : 0;
  if (!call.instruction.operands[0].empty()) call.set(0, mbarrier_at(address).phase);  // The state: the phase's parity.
  if (call.has("expect_tx")) return arrive(call, address, last, 1);
  arrive(call, address, 0, call.operands() > 2 ? last : 1);
}

// mbarrier.expect_tx or complete_tx [barrier], bytes
void mbarrier_expect(const Call& call) {
  const SharedAddress address = shared_address(call.get(0), 8, 8);
  State& state = mbarrier_at(address);
  note_mbarrier(address.pointer(), true);
  if (call.has("complete_tx")) return complete_bytes(address, int64_t(call.get(1)));
  state.bytes += call.get(1);
}

void mbarrier_wait(const Call& call) {
  const SharedAddress address = shared_address(call.get(1), 8, 8);
  const uint64_t parity = call.get(2);  // Or the state that an arrival returned, which is the parity here.
  if (parity > 1) fail("an mbarrier's phase has parity %d", int(parity));
  // A wait may return early, and then tells the kernel so, which tries again.
  const bool returns_early = call.has("test_wait") || machine.one_in(8);
  if (returns_early && mbarrier_at(address).phase == parity) {
    yield();
  } else {
    while (mbarrier_at(address).phase == parity) {
      sleep(address.pointer(), parity, [](const Thread& thread) {
        const State& state = *static_cast<const State*>(thread.channel);
        return text(
            "the end of parity %d at the mbarrier at %#x, which lacks %d of %d arrivals and %lld bytes",
            int(thread.detail),
            unsigned(static_cast<const char*>(thread.channel) - thread.warp->block->shared),
            int(state.pending),
            int(state.arrivals),
            static_cast<long long>(state.bytes));
      });
    }
  }
  note_mbarrier(address.pointer(), false);
  const bool has_ended = mbarrier_at(address).phase != parity;
  if (has_ended && !call.has("relaxed")) learn(self(), clock_at(address).completed);
  call.set(0, has_ended);
}

void mbarrier_invalidate(const Call& call) {
  const SharedAddress address = shared_address(call.get(0), 8, 8);
  mbarrier_at(address);
  note_mbarrier(address.pointer(), true);
  memset(address.pointer(), 0xff, 8);
}

std::pair<uint32_t, Stamp> engine_of(SharedAddress barrier) {
  PhaseClock& clock = clock_at(barrier);
  if (clock.engine == PhaseClock::kNone) clock.engine = barrier.block->engines++;
  return {clock.engine, clock.phase};
}

// Bytes that an mbarrier still waits for, or that came unannounced.
void check_mbarriers_at_end(const Block& block) {
  for (const auto& [offset, clock] : block.mbarriers) {
    const State& state = *reinterpret_cast<const State*>(block.shared + offset);
    if (state.mark != kMark || state.bytes == 0) continue;
    fail(
        "block %u ends while its mbarrier at %#x (%s) %s %lld bytes",
        block.index.x,
        offset,
        name_of_shared(block, block.shared + offset).c_str(),
        state.bytes > 0 ? "still waits for" : "has got, without having been told to expect them,",
        static_cast<long long>(state.bytes > 0 ? state.bytes : -state.bytes));
  }
}

}  // namespace emulator
