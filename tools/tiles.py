"""Calls the recipe linear_activation with every class of tile of its sm90 forward; for compute-sanitizer.

compute-sanitizer --tool racecheck python tools/tiles.py PROJECT

The sizes are those of the op's tests. Only the forward runs: racecheck fails with an internal error on the cuBLAS
products of the backward where it is told to look at some kernels only.
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
    os.environ[module.PATH] = "sm90"
    for rows, columns, inner in module.TestLinearActivation.SIZES["sm90"]:
        call(module.TestLinearActivation.op, rows, columns, inner)
        print(f"{rows} x {inner} x {columns}", flush=True)


def call(op: Callable[..., Any], rows: int, columns: int, inner: int) -> None:
    """Without an activation, and with one that saves the pre-activation."""
    import torch
    from suite import Make

    make = Make("cuda", torch.bfloat16, requires_grad=True)
    for activation in ("none", "gelu"):
        op(make((rows, inner)), make((columns, inner)), make((columns,)), activation)
    torch.cuda.synchronize()


if __name__ == "__main__":
    main()
