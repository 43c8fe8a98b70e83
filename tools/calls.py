"""Calls every op of a project on the GPU, forward and backward, on the cases of its tests; for compute-sanitizer.

compute-sanitizer --tool memcheck python tools/calls.py PROJECT [OP ...]
"""

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any


def main() -> None:
    project, only = Path(sys.argv[1]).resolve(), sys.argv[2:]
    # The tests' own helpers know how to draw an op's inputs, and in which layouts.
    sys.path[:0] = [str(project / "src"), str(project / "tests")]
    calls = 0
    for file in sorted(project.glob("src/*/ops/*/test_*.py")):
        if not only or file.parent.name in only:
            calls += sum(call_all(suite) for suite in suites(load(file)))
    if calls == 0:
        sys.exit("no op was called: none has a CUDA kernel, or none has that name")
    print(f"{calls} calls")


def load(file: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec
    assert spec.loader
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def suites(module: ModuleType) -> list[Any]:
    from op_suite import OpSuite

    classes = [it for it in vars(module).values() if isinstance(it, type) and issubclass(it, OpSuite)]
    return [suite for suite in classes if suite is not OpSuite and "cuda" not in suite.lacks]


def draws(suite: Any) -> Iterator[tuple[Any, Any, str]]:
    """Every dtype with every case; and every layout, in one dtype, with the first few cases."""
    from op_tools import LAYOUTS

    yield from ((dtype, case, "contiguous") for dtype in suite.dtypes for case in suite.cases)
    yield from ((suite.dtypes[0], case, layout) for case in suite.cases[:3] for layout in LAYOUTS)


def call_all(suite: Any) -> int:
    import torch
    from op_tools import Make, tensors

    drawn = list(draws(suite))
    for dtype, case, layout in drawn:
        make = Make("cuda", dtype, layout, requires_grad="gradient" not in suite.lacks)
        outputs = [it for it in tensors(suite.op(*suite().inputs(case, make))) if it.requires_grad]
        if outputs:
            torch.autograd.backward(outputs, [torch.randn_like(output) for output in outputs])
    torch.cuda.synchronize()
    return len(drawn)


if __name__ == "__main__":
    main()
