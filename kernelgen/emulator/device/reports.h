// What an access did wrong, in words: the threads, the memory and the places in the sources.

#pragma once

#include <string>

#include "shadow.h"

namespace emulator {

[[noreturn]] void report_bounds(const Entry& access, const char* address, size_t bytes, bool is_global);
// These return where the thread goes on to its next barrier, which shows whether it has skipped one.
void report_unwritten(const Entry& access, const char* address, size_t bytes, bool is_global);
void report_race(const Entry& earlier, const Entry& access, const char* address, bool is_global);
[[noreturn]] void report_unfenced(const Entry& access, const Entry& write, const char* address);
[[noreturn]] void report_use_after_end(const Block& block, const Entry& access);

// Places are kept relative to an address in the library, which makes them half as long.
int32_t relative_place(const void* pc);
const void* place_in_memory(int32_t relative);
// The mark that source_lines.cpp replaces by the line.
std::string place_of(const Entry& access);
// "element 3 of shared variable buffer".
std::string name_of_shared(const Block& block, const char* address);

}  // namespace emulator
