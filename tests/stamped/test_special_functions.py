"""include/cpu/special_functions.h: functions of statistics are PyTorch's, at poles and in both widths."""

import json
import subprocess

import pytest

from .test_functions import FOLDER, compiled

torch = pytest.importorskip("torch")

FUNCTIONS = ("lgamma", "digamma", "trigamma", "erfinv")
# Poles, what lies close to them and to a zero of digamma, ends of erfinv's domain, and numbers outside.
POINTS = (
    0.0,
    -0.0,
    -1.0,
    -2.0,
    -1.0001,
    -0.9999,
    1e-6,
    0.3,
    -0.3,
    0.5,
    0.9,
    -0.99,
    0.99999,
    1.0,
    -3.7,
    1.5,
    7.25,
    250.0,
)
PROGRAM = r"""
#include "functions.h"
#include "special_functions.h"
#include <cstdio>
#include <initializer_list>

template <typename Number>
void print(Number x) {
  std::printf("%.17g %.17g %.17g %.17g\n", double(math::lgamma(x)), double(math::digamma(x)), double(math::trigamma(x)),
              double(math::erfinv(x)));
}

int main() {
  for (double x : {POINTS}) print(static_cast<NUMBER>(x));
}
"""


@pytest.mark.parametrize(("number", "dtype", "tolerance"), [("float", "float32", 3e-6), ("double", "float64", 2e-9)])
def test_functions_of_statistics_are_those_of_pytorch(tmp_path, number, dtype, tolerance):
    (tmp_path / "special_functions.h").write_text((FOLDER / "special_functions.h").read_text())
    compiled(tmp_path, PROGRAM.replace("POINTS", ", ".join(map(repr, POINTS))).replace("NUMBER", number))
    lines = subprocess.check_output(tmp_path / "program", text=True).splitlines()
    texts = [line.replace("-nan", "NaN").replace("nan", "NaN").replace("inf", "Infinity").split() for line in lines]
    ours = torch.tensor([[json.loads(text) for text in row] for row in texts], dtype=torch.float64)
    x = torch.tensor(POINTS, dtype=getattr(torch, dtype)).double()
    theirs = [torch.lgamma(x), torch.digamma(x), torch.polygamma(1, x), torch.erfinv(x)]
    for column, (name, expected) in enumerate(zip(FUNCTIONS, theirs, strict=True)):
        expected = torch.where(expected > 1e30, torch.inf, expected)  # PyTorch's trigamma of a pole.
        torch.testing.assert_close(ours[:, column], expected, rtol=tolerance, atol=1e-6, equal_nan=True, msg=name)
