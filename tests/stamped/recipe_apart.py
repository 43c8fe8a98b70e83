"""What a recipe is held to that is no part of the project of every recipe: its own tests, and faults in its kernels.

Used by test_fp8.py and test_serving.py.
"""

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from .conftest import QUICK_NVCC, build, edit, has_cuda_13, own_tests, quickly, run, stamp


def assert_passes_its_tests(op: str, folder: Path, architecture: str) -> None:
    """In a project of its own, compiled for the CPU and, where nvcc is, for this GPU."""
    project = stamp(folder / "demo", ops=[{"name": op, "recipe": op}])
    if has_cuda_13():
        edit(project / "setup.py", ("NVCC_FLAGS: dict[str, list[str]] = {}", QUICK_NVCC))
    result = build(project, TORCH_CUDA_ARCH_LIST=architecture, **quickly())
    assert result.returncode == 0, result.stdout + result.stderr
    assert "missing-field-initializers" not in result.stdout + result.stderr
    outcomes = own_tests(project, f"src/demo_kernels/ops/{op}")
    assert [outcome for outcome in outcomes if outcome.status == "failed"] == []
    assert sum(outcome.status == "passed" for outcome in outcomes) > 40


@dataclass(frozen=True)
class Emulated:
    """Recipes on emulated GPUs: the GPU of each, which of its own tests see its values, and cases for fuzz."""

    gpus: dict[str, str]
    chosen: str
    count: int

    def fill(self, folder: Path, *, count: int) -> None:
        """Stamps and builds the project `demo`, in which fuzz finds nothing."""
        project = stamp(folder / "demo", ops=[{"name": op, "recipe": op} for op in self.gpus])
        for op in self.gpus:
            self.fuzz(project, op, count).check_returncode()

    def fuzz(self, project: Path, op: str, count: int) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "kernelgen", "fuzz", op, "--count", str(count), "--seed", "1"]
        return run([*command, *self._device(op)], project)

    def own_values(self, project: Path, op: str) -> subprocess.CompletedProcess[str]:
        """The op's own tests of values, up to the first failure."""
        command = [sys.executable, "-m", "pytest", "-q", "-x", "--seed=1", *self._device(op)]
        return run([*command, f"src/demo_kernels/ops/{op}", "-k", self.chosen], project)

    def assert_found(self, project: Path, op: str, file: str, fault: tuple[str, str]) -> None:
        """A line becomes another: the op's own tests, which have special numbers and sizes, or fuzz fail."""
        sources = project / "src" / "demo_kernels"
        (path,) = (path for part in ("include", f"ops/{op}") for path in (sources / part).glob(f"**/{file}"))
        edit(path, fault)
        tested = self.own_values(project, op)
        result = tested if tested.returncode else self.fuzz(project, op, self.count)
        assert result.returncode == 1, result.stdout + result.stderr

    def _device(self, op: str) -> list[str]:
        return ["--device", "emulated", "--gpu", self.gpus[op]]
