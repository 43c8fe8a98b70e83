// Which schedule of threads the next launch has, and how many multiprocessors the GPU has meanwhile.

#pragma once

#include <cstdint>
#include <string>

namespace emulator {

// Launches take schedules one after another from this one on; the number of multiprocessors follows from it as well.
void set_schedules(uint64_t first);
// The same with KERNELGEN_SCHEDULE, or 0, if nobody has set them.
void prepare_schedules();
void start_next_schedule();

// Which schedule the last launch had, and how to have it again.
std::string describe_schedule();

}  // namespace emulator
