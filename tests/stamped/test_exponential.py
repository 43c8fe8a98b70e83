"""include/cpu/exponential.h: as accurate as documented, over every exponent; a loop of it is vectorised."""

import shutil
import subprocess
from pathlib import Path

import pytest

from .conftest import REPOSITORY

(HEADER,) = (REPOSITORY / "template").glob("src/*/include/cpu/exponential.h")

# Prints the largest error of normal results in units of the last place, and the number of special cases that are wrong.
PROGRAM = """
#include "exponential.h"
#include <cstdio>

int main() {
  double worst = 0;
  int special = 0;
  for (uint64_t i = 0; i < (1ull << 32); i += 997) {
    const uint32_t bits = i;
    float x;
    std::memcpy(&x, &bits, 4);
    const double exact = std::exp(double(x));
    const float result = exponential(x), nearest = exact;
    if (std::isnan(x) || std::isinf(nearest)) {
      special += std::isnan(x) ? !std::isnan(result) : result < 3.4e38f;
    } else if (nearest < 1.2e-38f) {
      special += !(std::fabs(result - exact) <= 1.5e-45);
    } else {
      worst = std::fmax(worst, std::fabs(result - exact) / (std::nextafterf(nearest, INFINITY) - nearest));
    }
  }
  std::printf("%g %d", worst, special);
}
"""

LOOP = """
#include "exponential.h"
void exponentials(const float* x, float* y, long n) { for (long i = 0; i < n; ++i) y[i] = exponential(x[i]); }
"""


@pytest.fixture
def compile_with(tmp_path):
    for header in ("exponential.h", "float_bits.h"):
        shutil.copy(HEADER.with_name(header), tmp_path)

    def compile_with(source: str, *flags: str) -> str:
        (tmp_path / "program.cpp").write_text(source)
        # The flags of a release build.
        command = ["g++", "-std=c++17", "-O3", "-fno-math-errno", "-fno-trapping-math", *flags]
        command += ["program.cpp", "-o", "program"]
        result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
        return result.stdout + result.stderr

    return compile_with


@pytest.mark.parametrize("flags", [(), ("-mfma",)], ids=["plain", "fused multiply-add"])
def test_the_exponential_is_as_accurate_as_documented(compile_with, tmp_path, flags):
    if flags and "fma" not in Path("/proc/cpuinfo").read_text():
        pytest.skip("this CPU has no such instruction")
    compile_with(PROGRAM, *flags)
    worst, special = subprocess.check_output(tmp_path / "program", text=True).split()
    assert 0.5 <= float(worst) <= 1.1
    assert special == "0"


def test_a_loop_of_the_exponential_is_vectorised(compile_with):
    if "Free Software" not in subprocess.run(["g++", "--version"], capture_output=True, text=True).stdout:
        pytest.skip("this is no GCC")
    assert "loop vectorized" in compile_with(LOOP, "-c", "-fopt-info-vec")
