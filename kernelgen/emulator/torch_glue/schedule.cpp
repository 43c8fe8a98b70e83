#include "schedule.h"

#include <cstdlib>

#include "gpus.h"
#include "machine.h"
#include "project.h"

namespace emulator {
namespace {

uint64_t first = 0, launches = 0, last = 0;
bool is_set = false;

}  // namespace

void set_schedules(uint64_t number) {
  first = number;
  launches = 0;
  is_set = true;
  machine.capability = emulated_project::kCapability;
  // A persistent kernel takes several tiles only where there are more tiles than multiprocessors.
  machine.multiprocessors = number % 2 ? 4 : gpu_of(machine.capability).multiprocessors;
}

void prepare_schedules() {
  if (is_set) return;
  const char* const text = getenv("KERNELGEN_SCHEDULE");
  set_schedules(text ? strtoull(text, nullptr, 10) : 0);
}

void start_next_schedule() {
  last = first + launches++;
  use_schedule(last);
}

std::string describe_schedule() {
  return "schedule " + std::to_string(last) + ", on " + std::to_string(machine.multiprocessors) +
         " multiprocessors: the same calls with KERNELGEN_SCHEDULE=" + std::to_string(first) + " repeat it";
}

}  // namespace emulator

// Called through ctypes, before a test or a case.
extern "C" __attribute__((visibility("default"))) void emulator_set_schedules(uint64_t first) {
  emulator::set_schedules(first);
}
