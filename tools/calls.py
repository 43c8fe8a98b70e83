"""Calls every op of a project on the GPU, forward and backward, with the cases of its tests; for compute-sanitizer.

compute-sanitizer --tool memcheck python tools/calls.py PROJECT [--only OP ...] [--forward-only OP ...] ...
"""

import argparse
import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any


def main() -> None:
    options = _options()
    project = options.project.resolve()
    make_importable(project)
    calls = 0
    for file in sorted(project.glob("src/*/ops/*/test_*.py")):
        op = file.parent.name
        if op not in options.without and (not options.only or op in options.only):
            backward = op not in options.forward_only
            calls += sum(call_all(suite, options.dtypes, backward) for suite in suites(load(file)))
    if calls == 0:
        sys.exit("No op was called: none of these names has a CUDA kernel.")
    print(f"{calls} calls")


def make_importable(project: Path) -> None:
    """Put the package on the path, and the helpers of its tests, which draw an op's inputs in every layout."""
    sys.path[:0] = [str(project / "src"), str(project / "tests")]


def load(file: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec
    assert spec.loader
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def suites(module: ModuleType) -> list[Any]:
    from suite import OpSuite

    classes = [value for value in vars(module).values() if isinstance(value, type) and issubclass(value, OpSuite)]
    # A base class that several suites share has no dtypes.
    return [suite for suite in classes if getattr(suite, "dtypes", ()) and "cuda" not in suite.lacks]


def draws(suite: Any, names: list[str]) -> Iterator[tuple[Any, Any, str]]:
    """Every dtype with every case, contiguous; then every layout with the first dtype and three cases."""
    from suite import LAYOUTS

    dtypes = [dtype for dtype in suite.dtypes if not names or str(dtype).removeprefix("torch.") in names]
    yield from ((dtype, case, "contiguous") for dtype in dtypes for case in suite.cases)
    yield from ((dtypes[0], case, layout) for case in suite.cases[:3] for layout in LAYOUTS)


def call_all(suite: Any, dtypes: list[str], backward: bool) -> int:
    import torch
    from suite import Make, tensors

    calls = list(draws(suite, dtypes))
    for dtype, case, layout in calls:
        make = Make("cuda", dtype, layout, requires_grad=backward and "gradient" not in suite.lacks)
        results = tensors(suite.op(*suite().inputs(case, make)))
        outputs = [tensor for tensor in results if tensor.requires_grad]
        if outputs:
            torch.autograd.backward(outputs, [torch.randn_like(output) for output in outputs])
    torch.cuda.synchronize()
    return len(calls)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("project", type=Path, help="a built project")
    parser.add_argument("--only", nargs="+", default=[], metavar="OP", help="these ops; default: all")
    parser.add_argument("--without", nargs="+", default=[], metavar="OP", help="not these")
    parser.add_argument("--forward-only", nargs="+", default=[], metavar="OP", help="no backward of these")
    parser.add_argument("--dtypes", nargs="+", default=[], help="such as float16; default: all that an op takes")
    return parser.parse_args()


if __name__ == "__main__":
    main()
