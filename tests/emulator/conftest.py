"""A project with every recipe, its kernels compiled for the emulated GPU, and memory that is watched."""

import functools
import importlib.util
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType

import pytest
import torch

from kernelgen.emulator import library
from kernelgen.emulator.library import Library, has_toolkit
from tests.stamped.conftest import REPOSITORY, stamp

ENTRIES = Path(__file__).parent / "entries"
# Kept from one run to the next.
build = functools.partial(library.build, headers=[ENTRIES], cache=REPOSITORY / "build" / "emulator")
RECIPES = ("elementwise", "flash_attention", "layer_norm", "linear_activation", "rms_norm", "swiglu")
# These name between them every order and every pace, and the others all their pairs: see runtime.cpp.
SEEDS = (0, 4, 8, 10)
EVERY_PAIR = range(12)


def pytest_collection_modifyitems(items):
    if not has_toolkit():
        for item in items:
            if Path(__file__).parent in item.path.parents and item.path.name != "test_rewrite.py":
                item.add_marker(pytest.mark.skip(reason="needs the headers of a CUDA toolkit, and g++"))


@pytest.fixture(scope="session")
def ops(made_once) -> Path:
    """The folder of a project's ops, each named as its recipe."""
    folder = made_once("emulated", lambda folder: stamp(folder / "p", ops=[{"name": n, "recipe": n} for n in RECIPES]))
    return folder / "p" / "src" / "demo_kernels" / "ops"


@pytest.fixture(scope="session")
def compiled(ops: Path) -> Callable[..., Library]:
    """The kernels of an op, as entries/ has them, and some of its own .cu files."""

    def compile_op(name: str, sources: Sequence[str] = ()) -> Library:
        return build(ops / name, (ENTRIES / f"{name}.cu").read_text(), sources)

    return compile_op


def copy_op(ops: Path, name: str, project: Path) -> Path:
    """A copy of one op's folder, in a project of its own, to change."""
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
    """Tensors between margins, which nobody may write to and whose values nobody may use.

    A margin is NaN in each floating-point dtype, by bits that the margins of other tensors mostly do not have: so NaN
    that is written there shows as well, whether it was computed or read from beside another tensor.
    """

    # Bytes, so many that a tensor is as aligned as its margins, and that few faults reach what is malloc's own: a
    # process that writes there crashes or hangs.
    MARGIN = 2**14
    # Two bytes: repeated, NaN in every dtype. All bits set is left out, since it is a NaN that kernels may compute.
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
        assert all((margin == nan).all() for margin, nan in self._margins), "memory beside a tensor was written to"


@pytest.fixture
def memory():
    """Checked at the end of a test."""
    memory = Memory()
    yield memory
    memory.check()
