// Reports with places in the sources in place of addresses.

#pragma once

#include <string>

namespace emulator {

// Replaces each "[0x…]", an address that a call in this library returns to, by the lines of the sources that made it:
// several, where functions were inlined. Addresses elsewhere are left out, and the emulator's own lines are too.
std::string with_source_lines(const std::string& report);
// Whether such an address lies in a function of the toolkit's headers: CUB's, libcu++'s, Thrust's, cooperative groups'.
bool is_in_toolkit(const void* place);

}  // namespace emulator
