// cp.async.mbarrier.arrive: an mbarrier counts a thread's copies by cp.async so far, and waits for them.
//
// From then on they belong to the mbarrier's engine (see clocks.h): who waits for its phase knows them. They arrive at
// some time, at the latest when the thread waits for its copies or ends.

#include "counted_copies.h"

#include "accesses.h"
#include "ptx.h"

namespace emulator {

void Copy::arrive() const {
  memset(to, 0, bytes);
  memcpy(to, from, read);
  bool is_window = false;
  if (Block* const block = block_of_window(to, is_window)) note_change(*block, to - block->shared, bytes);
}

void CountedCopies::finish() {
  if (is_done) return;
  is_done = true;
  for (const Copy& copy : copies) copy.arrive();
  arrive_for_copies(barrier);
}

void count_copies(SharedAddress barrier, bool increments, std::vector<Copy> copies) {
  note_mbarrier(barrier.pointer(), true);
  expect_copies(barrier, increments);
  const auto [engine, stamp] = engine_of(barrier);
  for (const Copy& copy : copies) {
    place = copy.place;
    note_counted_copy(engine, stamp, copy.to, copy.from, copy.bytes, copy.read);
  }
  auto counted = std::make_shared<CountedCopies>(CountedCopies{barrier, engine, stamp, std::move(copies)});
  auto& all = self().counted_copies;
  std::erase_if(all, [](const auto& earlier) { return earlier->is_done; });
  all.push_back(counted);
  later([counted] { counted->finish(); });
}

void wait_for_counted_copies() {
  Thread& thread = self();
  for (const auto& counted : thread.counted_copies) {
    counted->finish();
    learn(thread, view_of_engine(counted->barrier.block->id, counted->engine, counted->stamp));
  }
  thread.counted_copies.clear();
}

}  // namespace emulator
