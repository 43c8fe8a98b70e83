"""Runs the ten kernels, or faulty copies of them, on a GPU: nvcc compiles them, and a process of its own calls them.

    python -m tests.emulator.styles.hardware LIBRARY STYLE [--calls 60] [--save RESULTS]

exits with 0 if all results are right. A fault may hang the process or break its CUDA context, but no other's.
"""

import argparse
import ctypes
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import torch

from tests.emulator.styles import STYLES, Problem, Style

TEMPLATE = Path(__file__).parents[3] / "template"


def compile_for_gpu(text: str, architecture: str, target: Path, perturb: int | None = None) -> None:
    """Compiles a style's text for a GPU; with a seed, as `kernelgen fuzz --perturb SEED` compiles an op.

    Raises:
        subprocess.CalledProcessError: nvcc refuses it.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    source = target.with_suffix(".cu")
    source.write_text(text)
    compiler = ["nvcc"] if perturb is None else [sys.executable, "-m", "build_tools.perturb", str(perturb), "nvcc"]
    flags = ["-std=c++17", f"-arch={architecture}", "-lineinfo", "-Xcompiler", "-fPIC"]
    environment = {**os.environ, "PYTHONPATH": str(TEMPLATE)}
    built = target.with_suffix(".o")
    for command in ([*compiler, *flags, "-c", "-o", built, source], ["nvcc", "-shared", "-o", target, built]):
        subprocess.run(command, check=True, capture_output=True, text=True, env=environment)


class GpuMemory:
    """Allocates a problem's tensors on the GPU."""

    def copy(self, tensor: torch.Tensor, shift: int = 0) -> torch.Tensor:
        return self.empty(*tensor.shape, dtype=tensor.dtype, shift=shift).copy_(tensor)

    def empty(self, *shape: int, dtype: torch.dtype = torch.float32, shift: int = 0) -> torch.Tensor:
        size = torch.Size(shape).numel()
        # NaN or a large number, so that what the kernel does not write shows.
        storage = torch.full(((size + shift) * dtype.itemsize,), 0x7F, dtype=torch.uint8, device="cuda").view(dtype)
        return storage[shift:].view(shape)


class GpuLibrary:
    def __init__(self, path: Path) -> None:
        self._library = ctypes.CDLL(str(path))

    def __call__(self, name: str, *arguments: Any) -> None:
        """Calls a launcher, and waits for its kernel."""
        torch.cuda.synchronize()  # The launcher's stream is not torch's.
        code = getattr(self._library, name)(*map(_argument, arguments))
        if code:
            raise RuntimeError(f"cudaError {code}")
        torch.cuda.synchronize()


def _argument(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return ctypes.c_void_p(value.data_ptr())
    return ctypes.c_double(value) if isinstance(value, float) else ctypes.c_int64(value)


def solved(library: GpuLibrary, style: Style) -> list[Problem]:
    """The style's problems, after one call of each on the GPU."""
    problems = style.problems(GpuMemory())
    for problem in problems:
        library(style.function, *problem.arguments)
    return problems


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("library", type=Path)
    parser.add_argument("style", choices=STYLES)
    parser.add_argument("--calls", type=int, default=1, help="of each problem (1)")
    parser.add_argument("--save", type=Path, help="keep the results of the last call of each problem")
    options = parser.parse_args()
    library, style = GpuLibrary(options.library), STYLES[options.style]
    problems: list[Problem] = []
    try:
        for _ in range(options.calls):
            problems = solved(library, style)
            for problem in problems:
                problem.check()
    except (AssertionError, RuntimeError) as error:
        print(str(error).splitlines()[0] if str(error) else type(error).__name__)
        return 1
    if options.save:
        torch.save(
            [{name: result.cpu() for name, result in problem.results.items()} for problem in problems], options.save
        )
    print("right")
    return 0


if __name__ == "__main__":
    sys.exit(main())
