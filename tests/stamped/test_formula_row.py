"""include/cpu/formula_row.h: maxima of rows are those of all elements, NaN before any number, and are vectorised; what
is kept of elements is computed once."""

import re
import subprocess
from pathlib import Path

import pytest

from .conftest import REPOSITORY

(HEADER,) = (REPOSITORY / "template").glob("src/*/include/cpu/formula_row.h")

INCLUDE = [f"-I{HEADER.parent}", f"-I{HEADER.parents[1] / 'cuda'}"]

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

# Prints how many results of rows that keep the root of each element are wrong, in one piece and in two parts; then how
# many roots were computed for four rows of the same ten elements: as what a row decides, and as what the inputs do.
KEPT_PROGRAM = """
#include "formula_row.h"
#include "kept_row.h"
#include <cmath>
#include <cstdio>
#include <vector>

int roots = 0;

template <typename Row>
void scaled_roots(Row& row, bool for_rows) {
  const float largest = row.max([](float, float x) { return x; });
  const auto root = [&](float x) { ++roots; return std::sqrt(x) + (for_rows ? 0 : 0 * largest); };
  const auto passes = [&](auto kept) {
    const float sum = kept.sum([](float root, float, float) { return root; });
    kept.write([&](float root, float weight, float x, float& out) { out = weight * root / sum + x; });
  };
  if (for_rows) passes(row.keep_for_rows(Inputs<1>(), root));
  else passes(row.keep(Inputs<1>(), root));
}

int main() {
  const int n = 10;
  std::vector<float> weight(n, 2.0f), x(n), out(n);
  float sum = 0;
  for (int i = 0; i < n; ++i) sum += std::sqrt(x[i] = i);
  int wrong = 0;
  const auto compare = [&] {
    for (int i = 0; i < n; ++i) wrong += std::abs(out[i] - (2 * std::sqrt(x[i]) / sum + x[i])) > 1e-6f;
    out.assign(n, -1.0f);
  };
  using Row = FormulaRow<float, 2, 0, 1, 0>;
  Row parts[2];
  PartialResult<float> partial[4];
  for (int pass = 0; pass < 3; ++pass) {
    for (int part = 0; part < 2; ++part) {
      Row& row = parts[part];
      row.begin = part * 6;
      row.n = part ? 4 : 6;
      row.total_size = n;
      row.inputs[0] = weight.data() + row.begin;
      row.inputs[1] = x.data() + row.begin;
      row.results[0] = out.data() + row.begin;
      row.partial = partial;
      row.partial_stride = 2;
      row.parts = 2;
      row.part = part;
      row.pass = pass;
      row.reductions = 0;
      scaled_roots(row, false);
    }
  }
  compare();
  int computed[2];
  for (bool for_rows : {false, true}) {
    Row row;
    roots = 0;
    for (int i = 0; i < 4; ++i) {
      row.n = row.total_size = n;
      row.inputs[0] = weight.data();
      row.inputs[1] = x.data();
      row.results[0] = out.data();
      row.is_repeated[1] = i > 0;
      scaled_roots(row, for_rows);
      compare();
    }
    computed[for_rows] = roots;
  }
  std::printf("%d %d %d", wrong, computed[0], computed[1]);
}
"""

LOOP = """
#include "formula_row.h"
float largest(FormulaRow<float, 1, 0, 0, 1>& row) { return row.max([](float value) { return value; }); }
"""


def compiled(folder: Path, source: str, *flags: str) -> str:
    (folder / "program.cpp").write_text(source, encoding="utf-8")
    # The flags of a release build.
    command = ["g++", "-std=c++17", "-O3", "-fno-math-errno", "-fno-trapping-math", *INCLUDE, *flags]
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


def test_what_passes_share_is_computed_once_for_a_row_and_once_for_rows_with_the_same_elements(tmp_path):
    compiled(tmp_path, KEPT_PROGRAM)
    said = subprocess.run([tmp_path / "program"], capture_output=True, text=True, check=True).stdout
    assert said == "0 40 10"


def test_the_loop_is_vectorised(tmp_path):
    if "Free Software" not in subprocess.run(["g++", "--version"], capture_output=True, text=True).stdout:
        pytest.skip("this is no GCC")
    said = compiled(tmp_path, LOOP, "-c", "-march=x86-64-v3", "-fopt-info-vec")
    lines = HEADER.read_text(encoding="utf-8").splitlines()
    loop = next(i for i, line in enumerate(lines) if "lanes[lane] = math::maximum(lanes[lane], call(" in line)
    vectorised = {int(line) for line in re.findall(r"formula_row\.h:(\d+):\d+: optimized: *loop vectorized", said)}
    assert loop in vectorised, said  # The line before, counted from 1.
