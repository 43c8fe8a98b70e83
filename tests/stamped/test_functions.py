"""include/cpu/functions.h: float32 functions are as accurate as documented, and loops of them are vectorised."""

import re
import shutil
import subprocess

import pytest

from .conftest import REPOSITORY

(FOLDER,) = (REPOSITORY / "template").glob("src/*/include/cpu")
HEADERS = ("angles.h", "common_functions.h", "exponential.h", "float_bits.h", "functions.h")
FUNCTIONS = ("exp", "tanh", "erf", "log", "log2", "log10", "log1p", "expm1", "exp2", "sinh", "cosh", "atan", "asin")
FUNCTIONS += ("sin", "cos", "tan")
# Functions of functions, and choices of them, as formulas have them.
FORMULAS = {
    "softplus": "x > 20 ? x : math::log1p(math::exp(x))",
    "mish": "x * math::tanh(x > 20 ? x : math::log1p(math::exp(x)))",
    "cross_entropy": "math::minimum(0.0f, x) - math::log1p(math::exp(-math::abs(x)))",
    "gelu": "0.5f * x * (1 + math::erf(x * 0.707106781f))",
    "power": "math::pow(x, y)",
    "scalar_power": "math::scalar_power(x, y)",
    "snake": "x + math::sin(y * x) * math::sin(y * x) / (y + 1e-9f)",
    "focal": "math::pow(1 - math::exp(-x), y) * x",
}

# Prints for each function the largest error in units of the last place, and the special cases that are wrong.
ACCURACY = r"""
#include "functions.h"
#include <cstdio>

struct Errors {
  double worst = 0;
  int special = 0;

  void note(float result, double exact) {
    const float nearest = exact;
    if (std::isnan(nearest) || std::isinf(nearest) || nearest == 0) {
      const bool is_same = result == nearest && std::signbit(result) == std::signbit(nearest);
      special += std::isnan(nearest) ? !std::isnan(result) : !is_same;
      return;
    }
    const float size = std::fabs(nearest);
    const double unit = size < 1.18e-38f ? 1.4012985e-45 : std::nextafterf(size, INFINITY) - double(size);
    worst = std::fmax(worst, std::isnan(result) ? INFINITY : std::fabs(result - exact) / unit);
  }
};

template <typename F, typename Exact>
void print(const char* name, F f, Exact exact) {
  Errors errors;
  const float numbers[] = {0, -0.0f, 1, -1, INFINITY, -INFINITY};
  for (float x : numbers) errors.note(f(x), exact(double(x)));
  for (uint64_t bits = 0; bits < (1ull << 32); bits += 1597) {
    const float x = float_of(static_cast<int32_t>(bits));
    errors.note(f(x), exact(double(x)));
  }
  std::printf("%s %g %d\n", name, errors.worst, errors.special);
}

void print_powers() {
  Errors errors;
  const float numbers[] = {
      0, 1, 2, 3, 0.5, 2.5, INFINITY, NAN, 1e-40f, 3e38f, 16777215, 16777216, 3e7f, 1.0000001f};
  for (float x : numbers) {
    for (float y : numbers) {
      for (int signs = 0; signs < 4; ++signs) {
        const float base = signs & 1 ? -x : x, exponent = signs & 2 ? -y : y;
        errors.note(math::pow(base, exponent), std::pow(double(base), double(exponent)));
      }
    }
  }
  for (float x : numbers) {
    for (int sign = 0; sign < 2; ++sign) {
      const float base = sign ? -x : x;
      errors.note(math::scalar_power(base, 0.5f), std::sqrt(double(base)));
      errors.note(math::scalar_power(base, -0.5f), 1 / std::sqrt(double(base)));
    }
  }
  uint64_t state = 88172645463325252ull;  // Xorshift (Marsaglia, 2003).
  for (int i = 0; i < 3000000; ++i) {
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    const int32_t first = static_cast<int32_t>(state), second = static_cast<int32_t>(state >> 32);
    // Any base; or, in turn, one near 1 with any exponent, or an integer exponent.
    const float base = i % 3 == 1 ? 1 + std::ldexp(float(first), -33) : float_of(first);
    const float exponent = i % 3 == 0 ? std::ldexp(float(second), -27) : i % 3 == 1 ? float_of(second) : second % 20;
    errors.note(math::pow(base, exponent), std::pow(double(base), double(exponent)));
  }
  std::printf("pow %g %d\n", errors.worst, errors.special);
}

int main() {
#define PRINT(name) \
  print(#name, [](float x) { return math::name(x); }, [](double x) { return std::name(x); });
FUNCTIONS
  print_powers();
}
"""

LOOP = """
void NAME(const float* __restrict__ in, const float* __restrict__ other, float* __restrict__ out, long n) {
  for (long i = 0; i < n; ++i) {
    const float x = in[i], y = other[i];
    out[i] = EXPRESSION;
  }
}
"""


def compiled(folder, source: str, *flags: str) -> str:
    """What the compiler says of a program with the flags of a release build."""
    for header in HEADERS:
        shutil.copy(FOLDER / header, folder)
    (folder / "program.cpp").write_text(source)
    command = ["g++", "-std=c++17", "-O3", "-fno-math-errno", "-fno-trapping-math", *flags]
    command += ["program.cpp", "-o", "program"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True).stderr


def test_functions_are_as_accurate_as_documented(tmp_path):
    calls = "\n".join(f"  PRINT({name})" for name in FUNCTIONS)
    compiled(tmp_path, ACCURACY.replace("FUNCTIONS", calls))
    lines = subprocess.check_output(tmp_path / "program", text=True).splitlines()
    assert [line.split()[0] for line in lines] == [*FUNCTIONS, "pow"]
    for line in lines:
        _, worst, special = line.split()
        assert 0.4 <= float(worst) < 4, line
        assert special == "0", line


def test_loops_of_them_are_vectorised(tmp_path):
    if "Free Software" not in subprocess.run(["g++", "--version"], capture_output=True, text=True).stdout:
        pytest.skip("this is no GCC")
    loops = {name: f"math::{name}(x)" for name in FUNCTIONS} | FORMULAS
    source = '#include "functions.h"\n'
    first_lines = {}
    for name, expression in loops.items():
        first_lines[source.count("\n") + 3] = name
        source += LOOP.replace("NAME", f"loop_of_{name}").replace("EXPRESSION", expression)
    said = compiled(tmp_path, source, "-c", "-march=x86-64-v3", "-fopt-info-vec")
    lines = {int(line) for line in re.findall(r"program\.cpp:(\d+):\d+: optimized: *loop vectorized using 32", said)}
    assert {name for line, name in first_lines.items() if line not in lines} == set(), said
