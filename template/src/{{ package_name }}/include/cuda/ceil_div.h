// Integer division that rounds up.

#pragma once

#include <cstdint>

constexpr int64_t ceil_div(int64_t a, int b) {
  return (a + b - 1) / b;
}
