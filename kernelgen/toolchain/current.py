"""Whether a project's libraries are what its sources say now. What measures or tests an op looks first."""

import subprocess
from collections.abc import Callable
from pathlib import Path

from kernelgen.errors import KernelgenError, NoGpuError
from kernelgen.toolchain import build_tools
from kernelgen.toolchain.build import Build, environment
from kernelgen.toolchain.python import find_python


def backend(device: str | None) -> str | None:
    """The library that runs on a device; None for both. No device: CUDA where there is a GPU, and the CPU without."""
    if device is None:
        return None if has_gpu() else "cpu"
    return device


def has_gpu() -> bool:
    return any(Path("/dev").glob("nvidia[0-9]*")) or Path("/dev/dxg").exists()  # The second under Windows.


def require_gpu(python: Path) -> None:
    """Looks for a GPU before anything is compiled for one; where the system shows none, torch says.

    Raises:
        NoGpuError: there is none.
    """
    command = [python, "-c", "import sys, torch; sys.exit(not torch.cuda.is_available())"]
    if not has_gpu() and subprocess.run(command, capture_output=True, check=False).returncode:
        raise NoGpuError


def reason(root: Path, python: Path, device: str | None = None) -> str:
    """Why the library for a device is stale, in a clause; "" if it is not, or if the project builds in an older way.

    Raises:
        KernelgenError: build_tools refuse: an op's schema cannot be read, say.
    """
    chosen = backend(device)
    try:
        return build_tools.ask(root, python, "stale", *(["--backend", chosen] if chosen else []))["reason"]
    except build_tools.OlderLayoutError:
        return ""


def reason_if_known(root: Path) -> str:
    """The same for what runs here; "" also where no Python or no build_tools can tell."""
    try:
        return reason(root, find_python(root, None))
    except KernelgenError:
        return ""


def bring_up_to_date(
    root: Path, python: Path, device: str | None, note: Callable[[str], None], *, build: bool = True
) -> None:
    """Builds the library for a device if it is stale, and says so.

    Raises:
        KernelgenError: it is stale, and `build` is False; or it does not build.
    """
    stale = reason(root, python, device)
    if not stale:
        return
    if not build:
        raise KernelgenError(f"{stale}, and --no-build leaves it so; build it with `kernelgen build`.")
    note(f"{stale}: building …")
    Build(root, environment(), python).run(quiet=True, backend=backend(device))
