"""include/cpu/numbers.h and torch/block_sums.h: buffers lie apart in their pages; vectors that rows share are converted
once; sums of blocks of rows are those of all rows."""

import subprocess

from .conftest import REPOSITORY

(CPU,) = (REPOSITORY / "template").glob("src/*/include/cpu")

INCLUDE = [f"-I{CPU.parent / room}" for room in ("cpu", "cuda", "torch")]

# Prints how many buffers that are read lie too close behind one that is written, or before it; whether a
# vector is converted again, and by a copy; and how many sums of rows are wrong.
PROGRAM = """
#include "block_sums.h"
#include "half.h"
#include "numbers.h"
#include <cstdio>
#include <vector>

using dtypes::Half;

int main() {
  struct { Numbers<Half> inputs[6], results[6]; } buffers;
  std::vector<Half> elements(3000, Half(1.0f));
  int near = 0;
  for (int n : {10, 1024, 3000}) {
    for (auto& input : buffers.inputs) {
      const auto read = reinterpret_cast<uintptr_t>(input.load(elements.data(), n)) % 4096;
      for (auto& result : buffers.results) {
        const auto written = reinterpret_cast<uintptr_t>(result.room(nullptr, n)) % 4096;
        near += read < written + 64 || read - written > 4096 - 768;
      }
    }
  }
  Numbers<Half> vector;
  vector.load_once(elements.data(), 1, 100);
  elements[7] = Half(5.0f);
  const bool is_kept = vector.load_once(elements.data(), 1, 100)[7] == 1.0f;
  Numbers<Half> copy = vector;
  copy.load_once(elements.data(), 1, 100);
  const bool is_own = copy.data() != vector.data() && copy.data()[7] == 5.0f;
  const bool is_new = vector.load_once(elements.data(), 1, 99)[7] == 5.0f;

  int wrong = 0;
  for (int64_t count : {2, 15, 16, 33, 1000, 5000}) {
    Rows rows;
    rows.count = count;
    rows.n = 3;
    std::vector<float> sums(blocks_of_rows(count) * 3, -1.0f);
    Gradient<float> gradient;
    gradient.partial = sums.data();
    gradient.partial_stride = 3;
    for (int64_t row = 0; row < count; ++row) {
      const float values[] = {1.0f, float(row)};
      add_to_block(gradient, rows, row, 1, values, 2);
    }
    float totals[2];
    add_rows(sums.data() + 1, blocks_of_rows(count), 3, 2, totals);
    for (int64_t block = 0; block < blocks_of_rows(count); ++block) wrong += sums[3 * block] != -1.0f;
    wrong += totals[0] != count || totals[1] != count * (count - 1) / 2;
  }
  std::printf("%d %d %d %d %d", near, is_kept, is_own, is_new, wrong);
}
"""


def test_buffers_lie_apart_vectors_are_converted_once_and_blocks_add_up(tmp_path):
    (tmp_path / "program.cpp").write_text(PROGRAM, encoding="utf-8")
    command = ["g++", "-std=c++17", "-O1", *INCLUDE, "program.cpp", "-o", "program"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    said = subprocess.run([tmp_path / "program"], capture_output=True, text=True, check=True).stdout
    assert said == "0 1 1 1 0"
