"""Fixtures: a project with every recipe, its kernels compiled for the emulated GPU, and guarded memory."""

import importlib.util
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType

import pytest
import torch

from kernelgen.emulator import library
from kernelgen.emulator.library import EmulatedLibrary, has_toolkit
from tests.emulator.standalone import flags_for
from tests.stamped.conftest import REPOSITORY, stamp

ENTRIES = Path(__file__).parent / "entries"
RECIPES = (
    *("elementwise", "flash_attention", "flash_attention_varlen", "layer_norm", "linear_activation", "rms_norm"),
    "swiglu",
)
# SEEDS have every order of warps and every pace of asynchronous operations, ALL_SCHEDULES every pair: see runtime.cpp.
SEEDS = (0, 4, 8, 10)
ALL_SCHEDULES = range(12)


def half(seeds: Sequence[int], case: int) -> Sequence[int]:
    """Those of a case: of cases that follow each other, all of them."""
    return seeds[case % 2 :: 2]


def build(op: Path, entry: str, sources: Sequence[str] = (), capability: int = 90) -> EmulatedLibrary:
    """A library that is kept from one run to the next."""
    defines = [flag.removeprefix("-D") for flag in flags_for(capability)]
    return library.build(op, entry, sources, defines, headers=[ENTRIES], cache=REPOSITORY / "build" / "emulator")


def pytest_collection_modifyitems(items):
    if not has_toolkit():
        for item in items:
            if Path(__file__).parent in item.path.parents and item.path.name != "test_rewrite.py":
                item.add_marker(pytest.mark.skip(reason="needs the headers of a CUDA toolkit, and g++"))


@pytest.fixture(scope="session")
def ops(made_once) -> Path:
    """The folder of a project's ops, which are named for their recipes."""
    folder = made_once("emulated", lambda folder: stamp(folder / "p", ops=[{"name": n, "recipe": n} for n in RECIPES]))
    return folder / "p" / "src" / "demo_kernels" / "ops"


@pytest.fixture(scope="session")
def compiled(ops: Path) -> Callable[..., EmulatedLibrary]:
    """Compiles an entry of an op in entries/ (its name, unless said), with some .cu files of the op."""

    def compile_op(
        name: str, sources: Sequence[str] = (), capability: int = 90, entry: str | None = None
    ) -> EmulatedLibrary:
        return build(ops / name, (ENTRIES / f"{entry or name}.cu").read_text(), sources, capability)

    return compile_op


def copy_op(ops: Path, name: str, project: Path) -> Path:
    """Copies an op into a project of its own, where a test may change it."""
    package = ops.parent.relative_to(ops.parents[2])
    for part in (package / "include", package / "ops" / name, Path("setup.py"), Path("build_tools")):
        source = ops.parents[2] / part
        (project / part).parent.mkdir(parents=True, exist_ok=True)
        shutil.copytree(source, project / part) if source.is_dir() else shutil.copy(source, project / part)
    return project / package / "ops" / name


@pytest.fixture(scope="session")
def reference(ops: Path) -> Callable[[str], ModuleType]:
    def load(name: str) -> ModuleType:
        spec = importlib.util.spec_from_file_location(f"{name}_reference", ops / name / "reference.py")
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module

    return load


class Memory:
    """Allocates tensors between margins, which a kernel must not write and whose values it must not use.

    A margin is NaN in every floating-point dtype. Its bits differ from those of most other margins, and from the NaN
    that kernels compute, so that a NaN written to a margin shows, too.
    """

    # Bytes. A tensor is as aligned as its margins, and few faults reach malloc's own data, where they would crash or
    # hang the process.
    MARGIN = 2**14
    # Two bytes that are NaN in every dtype when repeated; without -1, a NaN that kernels may compute.
    _NANS = range(-16, -1)

    def __init__(self) -> None:
        self._margins: list[tuple[torch.Tensor, int]] = []

    def copy(self, tensor: torch.Tensor | None, shift: int = 0) -> torch.Tensor | None:
        """A copy that begins `shift` elements after an aligned address."""
        return None if tensor is None else self.empty(*tensor.shape, dtype=tensor.dtype, shift=shift).copy_(tensor)

    def empty(self, *shape: int, dtype: torch.dtype = torch.float32, shift: int = 0) -> torch.Tensor:
        nan = self._NANS[len(self._margins) // 2 % len(self._NANS)]
        size, margin = torch.Size(shape).numel(), self.MARGIN // dtype.itemsize
        storage = torch.full(((size + 2 * margin) * dtype.itemsize // 2,), nan, dtype=torch.int16)
        begin = margin + shift
        elements = storage.view(dtype)
        self._margins += [(part.view(torch.int16), nan) for part in (elements[:begin], elements[begin + size :])]
        return elements[begin : begin + size].view(shape)

    def check(self) -> None:
        assert all((margin == nan).all() for margin, nan in self._margins), "a kernel wrote beside a tensor"


@pytest.fixture
def memory():
    """Guarded memory, whose margins are checked at the end of the test."""
    memory = Memory()
    yield memory
    memory.check()
