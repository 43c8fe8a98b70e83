// Which kernels an op of attention uses: those of its sm80/, for every GPU, or those of its sm90/, for Hopper.

#pragma once

#include <cstdlib>
#include <stdexcept>
#include <string>
#include <string_view>

#include "attention_options.h"
#include "compute_capability.h"

namespace attention {

// Tests and benchmarks force one of them with an environment variable of the op's.
enum class Path { kBest, kSm90, kSm80 };

inline Path forced_path(const char* variable) {
  const char* value = std::getenv(variable);
  const std::string_view name = value ? value : "";
  if (name.empty()) return Path::kBest;
  if (name == "sm90") return Path::kSm90;
  if (name == "sm80") return Path::kSm80;
  throw std::runtime_error(std::string(variable) + " is '" + std::string(name) + "'; it takes sm90, sm80 or nothing");
}

// Whether the current device runs the kernels of sm90/ for a problem that they do or do not support: they take `rows`,
// such as "rows that do not alias each other". `are_compiled` says whether code for sm_90a was built, which runs on 9.0
// alone.
inline bool uses_sm90(const char* op, const char* variable, const char* rows, bool are_compiled, bool supported) {
  const Path forced = forced_path(variable);
  if (forced == Path::kSm80) return false;
  supported = supported && are_compiled && compute_capability() == 90;
  if (forced == Path::kSm90 && !supported) {
    refuse(
        op,
        std::string(variable) + "=sm90 needs " + rows +
            ", fewer than 2^31 tiles, a GPU of compute capability 9.0 and code for 9.0a; unset it to use the kernels "
            "for every GPU");
  }
  return supported;
}

}  // namespace attention
