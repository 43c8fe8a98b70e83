"""include/cpu/formula_row.h: maxima of rows are those of all elements, NaN before any number, and are vectorised."""

import re
import subprocess
from pathlib import Path

import pytest

from .conftest import REPOSITORY

(HEADER,) = (REPOSITORY / "template").glob("src/*/include/cpu/formula_row.h")

# Prints how many maxima are wrong: of rows of every length, with the largest element or a NaN at each place.
PROGRAM = """
#include "formula_row.h"
#include <cmath>
#include <cstdio>
#include <vector>

float largest_of(const std::vector<float>& x) {
  FormulaRow<float, 1, 0, 0, 1> row;
  row.n = x.size();
  row.inputs[0] = x.data();
  return row.max([](float value) { return value; });
}

int main() {
  int wrong = 0;
  for (size_t n = 1; n < 70; ++n) {
    for (size_t place = 0; place < n; ++place) {
      std::vector<float> x(n);
      for (size_t i = 0; i < n; ++i) x[i] = -1.0f - i % 7;
      x[place] = -0.5f;
      wrong += largest_of(x) != -0.5f;
      x[place] = NAN;
      wrong += !std::isnan(largest_of(x));
    }
  }
  std::printf("%d", wrong);
}
"""

LOOP = """
#include "formula_row.h"
float largest(FormulaRow<float, 1, 0, 0, 1>& row) { return row.max([](float value) { return value; }); }
"""


def compiled(folder: Path, source: str, *flags: str) -> str:
    (folder / "program.cpp").write_text(source, encoding="utf-8")
    # The flags of a release build.
    command = ["g++", "-std=c++17", "-O3", "-fno-math-errno", "-fno-trapping-math", f"-I{HEADER.parent}", *flags]
    done = subprocess.run([*command, "program.cpp", "-o", "program"], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stderr


@pytest.mark.parametrize("flags", [(), ("-march=x86-64-v3",)])
def test_the_largest_is_that_of_all_elements(tmp_path, flags):
    compiled(tmp_path, PROGRAM, *flags)
    try:
        assert subprocess.run([tmp_path / "program"], capture_output=True, text=True, check=True).stdout == "0"
    except subprocess.CalledProcessError as error:
        if error.returncode != -4 or not flags:  # SIGILL: this CPU has no such instructions.
            raise


def test_the_loop_is_vectorised(tmp_path):
    if "Free Software" not in subprocess.run(["g++", "--version"], capture_output=True, text=True).stdout:
        pytest.skip("this is no GCC")
    said = compiled(tmp_path, LOOP, "-c", "-march=x86-64-v3", "-fopt-info-vec")
    lines = HEADER.read_text(encoding="utf-8").splitlines()
    loop = next(i for i, line in enumerate(lines) if "lanes[lane] = math::maximum(lanes[lane], call(" in line)
    vectorised = {int(line) for line in re.findall(r"formula_row\.h:(\d+):\d+: optimized: *loop vectorized", said)}
    assert loop in vectorised, said  # The line before, counted from 1.
