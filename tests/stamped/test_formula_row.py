"""include/cpu/formula_row.h: sums and maxima of rows are those of all elements, NaN before any number, and are
vectorised; running sums go tile by tile both ways; what is kept of elements is computed once."""

import re
import subprocess
from pathlib import Path

import pytest

from .conftest import REPOSITORY

(HEADER,) = (REPOSITORY / "template").glob("src/*/include/cpu/formula_row.h")

INCLUDE = [f"-I{HEADER.parent}", f"-I{HEADER.parents[1] / 'cuda'}"]

# Elements that are numbers already, and lie where a test says.
ELEMENTS = """
#include "formula_row.h"

template <int kInputs_, int kResults_>
struct PlainElements {
  using Number = float;
  static constexpr int kInputs = kInputs_, kResults = kResults_;

  const float* inputs[kInputs + 1] = {};
  float* results[kResults + 1] = {};
  bool repeated[kInputs + 1] = {};

  bool is_repeated(int k) const { return repeated[k]; }
  const float* load(int k, int64_t first, int64_t) const { return inputs[k] + first; }
  float* room(int k, int64_t first, int64_t) const { return results[k] + first; }
  void store(int, int64_t, int64_t, const float*) const {}
  void prefetch(int64_t, int64_t) const {}
};
"""

# Prints how many maxima are wrong: of rows of every length, with the largest element or a NaN at each place.
PROGRAM = """
#include <cmath>
#include <cstdio>
#include <vector>

float largest_of(const std::vector<float>& x) {
  FormulaRow<PlainElements<1, 0>, 0, 1> row;
  row.n = x.size();
  row.elements.inputs[0] = x.data();
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

# Prints how many sums, products, places of the largest and running sums are wrong: of rows of up to three tiles.
REDUCTIONS = """
#include <cmath>
#include <cstdio>
#include <vector>

int main() {
  int wrong = 0;
  for (int n : {1, 31, 32, 33, 255, 256, 257, 300, 511, 512, 513, 700}) {
    std::vector<float> x(n), out(n);
    for (int i = 0; i < n; ++i) x[i] = i % 5 + 1;
    x[n / 2] = 9;
    FormulaRow<PlainElements<1, 1>, 0, 1> row;
    row.n = row.total_size = n;
    row.elements.inputs[0] = x.data();
    row.elements.results[0] = out.data();
    float sum = 0, sum_of_places = 0;
    for (int i = 0; i < n; ++i) sum += x[i], sum_of_places += i;
    wrong += row.sum([](float value) { return value; }) != sum;
    float first, second;
    row.sums(first, second, [](int64_t place, float value, float& first_term, float& second_term) {
      first_term = value;
      second_term = place;
    });
    wrong += first != sum || second != sum_of_places;
    wrong += row.product([](int64_t place, float) { return place == 40 || place == 290 ? 3.0f : 1.0f; }) !=
             (n > 290 ? 9.0f : n > 40 ? 3.0f : 1.0f);
    wrong += row.argmax([](float value) { return value; }) != n / 2;
    const auto of_place = [](int64_t place, float value) { return 10 * place + value; };
    wrong += row.at(n - 1, -1, of_place) != 10 * (n - 1) + x[n - 1];
    wrong += row.at(n, -1, [](float value) { return value; }) != -1;
    for (bool back : {false, true}) {
      const auto term = [](float value) { return value; };
      const auto put = [](float, float running, float& result) { result = running; };
      back ? row.write_running_sums_back(term, put) : row.write_running_sums(term, put);
      float running = 0;
      for (int i = 0; i < n; ++i) {
        const int k = back ? n - 1 - i : i;
        wrong += out[k] != (running += x[k]);
      }
    }
  }
  std::printf("%d", wrong);
}
"""

# Prints how many results of rows that keep the root of each element are wrong, in one piece and in two parts; then how
# many roots were computed for four rows of the same ten elements: as what a row decides, and as what the inputs do.
KEPT_PROGRAM = """
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
  using Row = FormulaRow<PlainElements<2, 1>, 0, 0>;
  Row parts[2];
  PartialResult<float> partial[4];
  for (int pass = 0; pass < 3; ++pass) {
    for (int part = 0; part < 2; ++part) {
      Row& row = parts[part];
      row.begin = part * 6;
      row.n = part ? 4 : 6;
      row.total_size = n;
      row.elements.inputs[0] = weight.data() + row.begin;
      row.elements.inputs[1] = x.data() + row.begin;
      row.elements.results[0] = out.data() + row.begin;
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
      row.elements.inputs[0] = weight.data();
      row.elements.inputs[1] = x.data();
      row.elements.results[0] = out.data();
      row.elements.repeated[1] = i > 0;
      scaled_roots(row, for_rows);
      compare();
    }
    computed[for_rows] = roots;
  }
  std::printf("%d %d %d", wrong, computed[0], computed[1]);
}
"""

LOOP = """
float largest(FormulaRow<PlainElements<1, 0>, 0, 1>& row) { return row.max([](float value) { return value; }); }
"""


def compiled(folder: Path, source: str, *flags: str) -> str:
    (folder / "program.cpp").write_text(ELEMENTS + source, encoding="utf-8")
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


def test_reductions_are_of_all_tiles(tmp_path):
    compiled(tmp_path, REDUCTIONS)
    assert subprocess.run([tmp_path / "program"], capture_output=True, text=True, check=True).stdout == "0"


def test_what_passes_share_is_computed_once_for_a_row_and_once_for_rows_with_the_same_elements(tmp_path):
    compiled(tmp_path, KEPT_PROGRAM)
    said = subprocess.run([tmp_path / "program"], capture_output=True, text=True, check=True).stdout
    assert said == "0 40 10"


def test_the_loop_is_vectorised(tmp_path):
    if "Free Software" not in subprocess.run(["g++", "--version"], capture_output=True, text=True).stdout:
        pytest.skip("this is no GCC")
    said = compiled(tmp_path, LOOP, "-c", "-march=x86-64-v3", "-fopt-info-vec")
    lines = HEADER.read_text(encoding="utf-8").splitlines()
    loop = next(i for i, line in enumerate(lines) if "lanes[lane] = join(lanes[lane], term_of(" in line)
    vectorised = {int(line) for line in re.findall(r"formula_row\.h:(\d+):\d+: optimized: *loop vectorized", said)}
    assert loop + 1 in vectorised, said  # Lines are counted from 1.
