"""Runs the ten kernels, or faulty copies of them, on a GPU: nvcc compiles them, and a process of its own calls them.

    python -m tests.emulator.styles.hardware LIBRARY STYLE [--calls 60] [--save RESULTS]

exits with 0 if all results are right. A fault may hang the process or break its CUDA context, but no other's.
"""

import argparse
import ctypes
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import torch

from tests.emulator.styles import STYLES, Problem, Style

# Before this, synchronising operations wait for random times, which `perturb_seed` and the thread choose.
_PERTURBATION = """
#include <cuda_runtime.h>
static __device__ unsigned perturb_seed = 0;
// A warp in four waits up to 4 microseconds, so that a wait, and not luck, orders what comes before and after.
static __device__ __noinline__ bool perturbed(int place) {
  unsigned x = perturb_seed * 0x9e3779b9u ^ place * 0x85ebca6bu ^ blockIdx.x * 0xc2b2ae35u;
  x ^= threadIdx.x / 32 * 0x27d4eb2fu;
  x = (x ^ x >> 15) * 0x2c1b3c6du;
  x = (x ^ x >> 12) * 0x297a2d39u;
  if ((x ^ x >> 15) % 4 == 0) __nanosleep(x >> 20);
  return false;
}
extern "C" cudaError_t set_perturbation(int64_t seed) {
  const unsigned bits = static_cast<unsigned>(seed);
  return cudaMemcpyToSymbol(perturb_seed, &bits, sizeof(bits));
}
#line 1
"""
_SYNCHRONISING = re.compile(r"(?:\basm\b|\b__sync(?:threads|warp)\b|\b__threadfence\b|\b\w+\.sync\(\))(?=[^;]*;)")


def perturbed(text: str) -> str:
    """The source, in which barriers, fences and inline PTX wait for random times first."""
    places = iter(range(1_000_000))
    # An `if` whose `else` is the statement fits wherever the statement does.
    body = _SYNCHRONISING.sub(lambda match: f"if (perturbed({next(places)})) {{}} else {match[0]}", text)
    return "#include <cstdint>\n" + _PERTURBATION + body


def compile_for_gpu(text: str, architecture: str, target: Path) -> None:
    """Compiles a style's text for a GPU.

    Raises:
        subprocess.CalledProcessError: nvcc refuses it.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    source = target.with_suffix(".cu")
    source.write_text(text)
    flags = ["-std=c++17", f"-arch={architecture}", "-lineinfo", "-shared", "-Xcompiler", "-fPIC"]
    subprocess.run(["nvcc", *flags, "-o", str(target), str(source)], check=True, capture_output=True, text=True)


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

    def perturb(self, seed: int) -> None:
        if hasattr(self._library, "set_perturbation"):
            self._library.set_perturbation(ctypes.c_int64(seed))

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
        for call in range(options.calls):
            library.perturb(call)
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
