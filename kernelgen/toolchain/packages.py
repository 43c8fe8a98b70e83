"""Installs packages into a project's Python; among them a CUDA toolkit, which is a set of packages too."""

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from kernelgen.errors import KernelgenError
from kernelgen.toolchain.facts import Facts

# nvcc, its headers and its code generator have to be of one version, the one that torch was built with.
_COMPILER = ("nvidia-cuda-nvcc", "nvidia-cuda-crt", "nvidia-nvvm")
# Headers and libraries that newer builds of torch bring, in versions that torch pins: installed ones are kept.
_LIBRARIES = ("nvidia-cuda-runtime", "nvidia-cuda-cccl")
# The packages for CUDA 12 (nvidia-cuda-nvcc-cu12) hold ptxas and no nvcc: nothing compiles with them.
OLDEST_PACKAGED_CUDA = 13

# Its file descriptor: other programs print there, so that standard output holds kernelgen's results alone.
STDERR = 2


def toolkit(facts: Facts) -> list[str]:
    """The packages that make a CUDA toolkit fit for the project's torch; empty where there are none."""
    cuda = (facts["torch"].value or {}).get("cuda")
    if cuda is None or int(cuda.split(".")[0]) < OLDEST_PACKAGED_CUDA:
        return []
    missing = [name for name in _LIBRARIES if facts.installed(name) is None]
    return [f"{name}=={cuda}.*" for name in (*_COMPILER, *missing)]


def command(python: Path | None) -> str:
    """The command that installs packages into that Python, without their names."""
    return shlex.join(_installer(python)) if python else "pip install"


def uv_instead(python: Path) -> str | None:
    """uv, where that Python is an environment without pip, as uv makes them."""
    holds_pip = any(python.parent.glob("pip*")) or not (python.parents[1] / "pyvenv.cfg").is_file()
    return None if holds_pip else shutil.which("uv")


def _installer(python: Path) -> list[str]:
    if uv := uv_instead(python):
        return [uv, "pip", "install", "--python", str(python)]
    return [str(python), "-m", "pip", "install"]


def install(python: Path, wanted: Sequence[str]) -> None:
    """Says what it runs and runs it; the installer's output goes to standard error.

    Raises:
        KernelgenError: it failed.
    """
    line = [*_installer(python), *wanted]
    print(f"kernelgen: running {shlex.join(line)}", file=sys.stderr, flush=True)
    environment = os.environ | {"PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    if subprocess.run(line, stdout=STDERR, env=environment, check=False).returncode:
        raise KernelgenError(
            f"`{shlex.join(line)}` failed; its messages are above. "
            f"If that Python has no pip, `{shlex.quote(str(python))} -m ensurepip` gives it one."
        )
