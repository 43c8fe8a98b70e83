"""Ops for tests of the measuring, described as a lab.py would."""

from types import SimpleNamespace
from typing import Any

import torch

from kernelgen.worker.op import Op, read


def double_plus_one(x: torch.Tensor) -> torch.Tensor:
    return x * 2 + 1


def described(function: Any, **names: Any) -> Op:
    """An op whose reference is `double_plus_one`."""
    facts = {
        "OP": function,
        "REFERENCE": double_plus_one,
        "DTYPES": (torch.float32, torch.float64),
        "BENCH_DTYPES": (torch.float32,),
        "DOMAIN": {"n": (1, 10_000)},
        "CASES": {"small": {"n": 1000}, "odd": {"n": 1021}},
        "inputs": lambda make, n: (make((n,)),),
        "bytes_moved": lambda dtype, n: 2 * n * dtype.itemsize,
        "flops": lambda n: 2 * n,
        "PEERS": {"torch": double_plus_one},
    }
    return read("tested", SimpleNamespace(**(facts | names)))


PROJECT_LAB = """
import os
import torch

COUNT = 0


def op(x):
    {body}
    return x * 2 + 1


OP, REFERENCE = op, lambda x: x * 2 + 1
DTYPES = (torch.float32,)
DOMAIN = {{"n": (1, 10000)}}
CASES = {{"small": {{"n": 1000}}, "odd": {{"n": 1021}}}}
PEERS = {{"torch": REFERENCE}}


def inputs(make, n):
    return (make((n,)),)
"""


def interpreted_project(root: Any, body: str = "pass") -> Any:
    """A project of one op in Python, `pkg.ops.tested`, that needs no compiler."""
    folder = root / "src" / "pkg" / "ops" / "tested"
    folder.mkdir(parents=True)
    for package in (folder, folder.parent, folder.parent.parent):
        (package / "__init__.py").touch()
    (folder / "lab.py").write_text(PROJECT_LAB.format(body=body))
    return root
