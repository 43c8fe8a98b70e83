// Copies by cp.async, and those that an mbarrier counts.

#pragma once

#include <vector>

#include "machine.h"

namespace emulator {

struct Copy {
  char* to;
  const void* from;
  size_t bytes, read;  // Zeros are written for the bytes that are not read.
  const void* place;

  void arrive() const;
};

struct CountedCopies {
  SharedAddress barrier;
  uint32_t engine;
  Stamp stamp;
  std::vector<Copy> copies;
  bool is_done = false;

  void finish();
};

// The current thread's copies that have not arrived, which are no longer its own from then on.
std::vector<Copy> take_copies();
// Hands the current thread's copies to an mbarrier, whose phase waits for one arrival more if it `increments`.
void count_copies(SharedAddress barrier, bool increments, std::vector<Copy> copies);
// The current thread waits for its copies: those counted at an mbarrier are among them.
void wait_for_counted_copies();

}  // namespace emulator
