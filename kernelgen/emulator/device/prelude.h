// CUDA C++ as ordinary C++, included before all else in each source: the compiler's macros and keywords, its built-in
// functions (language/, by topic) and the toolkit's headers as device code sees them. rewrite.py turns launches, shared
// variables and inline assembly into calls of the functions declared here, in the toolkit's headers too, so that
// libcu++, CUB and cooperative groups are the toolkit's own.

#pragma once

// What many sources include, parsed once for all. <string>, <memory> and <atomic> are not among it: g++ instantiates
// parts of them in each source that has them.
#include <algorithm>
#include <functional>
#include <limits>
#include <optional>
#include <vector>

#include "language/core.h"
#include "language/heap.h"
#include "language/half.h"
#include "language/half_atomics.h"
#include "language/runtime_templates.h"
