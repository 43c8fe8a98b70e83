"""Compiles the CUDA sources of kernels/, which need no project: for the emulated GPU, and by nvcc for a real one."""

import hashlib
import os
from pathlib import Path

from kernelgen.emulator import compiler, gpus
from kernelgen.emulator.compile import RULES, compile_kernel
from kernelgen.emulator.library import EmulatedLibrary
from kernelgen.emulator.link import link
from kernelgen.emulator.lock import locked
from kernelgen.emulator.ninja_file import architecture_flags
from kernelgen.emulator.runtime import device_objects
from tests.stamped.conftest import REPOSITORY

KERNELS = Path(__file__).parent / "kernels"
CACHE = REPOSITORY / "build" / "emulator"


def flags_for(capability: int) -> list[str]:
    """As a project's kernels are compiled: the headers that all kernels share are compiled once for all tests then."""
    return architecture_flags(gpus.find("sm_90a" if capability == 90 else f"sm_{capability}"))


def build(source: Path | str, capability: int = 90, cache: Path = CACHE) -> EmulatedLibrary:
    """A source of kernels/ by its name, or any by its path, for a GPU of this compute capability."""
    path = KERNELS / f"{source}.cu" if isinstance(source, str) else source
    tools = compiler.find()
    flags = [*flags_for(capability), f"-I{KERNELS}"]
    objects = device_objects(tools, cache)
    digest = hashlib.sha256(repr((tools.kernel_flags(), flags, objects)).encode())
    for part in (path, *sorted(KERNELS.glob("*.cuh")), *RULES):
        digest.update(part.read_bytes())
    library = cache / f"kernels-{digest.hexdigest()[:20]}" / f"{path.stem}.so"
    with locked(cache / f"{library.parent.name}.lock"):
        if not library.exists():
            library.parent.mkdir(parents=True, exist_ok=True)
            target = library.with_suffix(".o")
            compile_kernel(tools, path, target, flags)
            link(tools.command, library, [str(target), *map(str, objects)])
            target.unlink()
        os.utime(library.parent)
    return EmulatedLibrary(library)
