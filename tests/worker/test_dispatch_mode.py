"""Modes that see operators run: no import of torch.compile for them, and none of them is compiled."""

import subprocess
import sys

import pytest

torch = pytest.importorskip("torch")

from kernelgen.worker.dispatch_mode import DispatchMode  # noqa: E402
from tests.conftest import ROOT  # noqa: E402

CHECK = """
import sys, torch
from kernelgen.worker.exact_constants import ExactConstants
from kernelgen.worker.random_rounding import RandomRounding
for mode in (ExactConstants(), RandomRounding(0, torch.float32)):
    with mode:
        torch.ones(3, dtype=torch.float64).exp().sum()
print("torch._dynamo" in sys.modules)
"""


def test_a_worker_that_compiles_nothing_imports_no_compiler(cold_start):
    printed = subprocess.check_output([sys.executable, "-c", CHECK], cwd=ROOT, text=True)
    assert printed == "False\n"


def test_a_mode_is_left_alone_by_the_compiler():
    class Noted(DispatchMode):
        def __init__(self):
            super().__init__()
            self.names = []

        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            self.names.append(func.name())
            return func(*args, **(kwargs or {}))

    compiled = torch.compile(lambda x: x.sin() + 1, backend="eager")
    for _ in range(2):
        with Noted() as noted:
            result = compiled(torch.zeros(3))
        assert torch.equal(result, torch.ones(3))
        assert {"aten::sin", "aten::add.Tensor"} <= set(noted.names)
