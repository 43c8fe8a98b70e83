"""The ways to compile everything: for use, for a debugger, for a sanitizer, with random waits."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from . import environment
from .messages import BuildError

SANITIZERS = {"address": "asan", "undefined": "ubsan"}


@dataclass(frozen=True)
class Variant:
    """Flags for the C++ compiler, for nvcc and for the linker."""

    name: str
    cxx: Sequence[str]
    nvcc: Sequence[str]
    link: Sequence[str] = ()
    perturbation: str | None = None  # A seed, for random waits in kernels: see perturb.py.

    @property
    def folder(self) -> Path:
        return Path("build") / self.name


# Nobody reads errno after a square root, or traps a division: loops without them become vector instructions.
RELEASE = Variant("release", ["-O3", "-fno-math-errno", "-fno-trapping-math"], ["-O3", "-lineinfo"])
DEBUG = Variant("debug", ["-O0", "-g"], ["-O0", "-g", "-G"])
PERTURBED = "perturbed"
NAMES = (RELEASE.name, DEBUG.name, *SANITIZERS.values(), PERTURBED)


def find_variant() -> Variant:
    """The variant that SANITIZE, PERTURB or DEBUG asks for."""
    if seed := os.environ.get("PERTURB"):
        return Variant(PERTURBED, RELEASE.cxx, RELEASE.nvcc, perturbation=seed)
    sanitizer = os.environ.get("SANITIZE", "")
    if sanitizer in SANITIZERS:
        return _sanitized(sanitizer)
    if sanitizer:
        raise BuildError(f"SANITIZE={sanitizer} is not known; write SANITIZE=address or SANITIZE=undefined.")
    return DEBUG if environment.is_on("DEBUG") else RELEASE


def _sanitized(sanitizer: str) -> Variant:
    flag = f"-fsanitize={sanitizer}"
    flags = ["-O1", "-g", "-fno-omit-frame-pointer", flag]
    nvcc = ["-O1", "-lineinfo", f"-Xcompiler={','.join(flags[1:])}"]
    return Variant(SANITIZERS[sanitizer], flags, nvcc, [flag])
