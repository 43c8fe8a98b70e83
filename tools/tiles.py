"""Calls the recipe linear_activation with every kind of tile that it has on Hopper; for compute-sanitizer.

compute-sanitizer --tool racecheck python tools/tiles.py PROJECT

The sizes are those of its tests. Only forwards run, without cuBLAS: after racecheck has been limited to some kernels, a
product of cuBLAS stops it with an internal error.
"""

import argparse
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from calls import load, make_importable


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("project", type=Path, help="a built project that holds linear_activation under that name")
    project = parser.parse_args().project.resolve()
    make_importable(project)
    (file,) = project.glob("src/*/ops/linear_activation/test_*.py")
    module = load(file)
    os.environ[module.PATH] = "hopper"
    for rows, columns, inner in module.TestLinearActivation.SIZES["hopper"]:
        call(module.TestLinearActivation.op, rows, columns, inner)
        print(f"{rows} x {inner} x {columns}", flush=True)


def call(op: Callable[..., Any], rows: int, columns: int, inner: int) -> None:
    """Call without an activation, and with one that saves its input for the backward."""
    import torch
    from op_tools import Make

    make = Make("cuda", torch.bfloat16, requires_grad=True)
    for activation in ("none", "gelu"):
        op(make((rows, inner)), make((columns, inner)), make((columns,)), activation)
    torch.cuda.synchronize()


if __name__ == "__main__":
    main()
