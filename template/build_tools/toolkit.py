"""What there is to build with: torch, Ninja, the C++ compiler, a compiler cache, a CUDA toolkit.

Nothing here imports torch, which takes a second and more, and nothing looks for a GPU: a toolkit is enough to build.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from . import environment
from .environment import COMPILER_CACHES
from .messages import MachineError, Note

# Where headers and libraries lie in the toolkits of conda, which have them nowhere else.
TARGETS = ("targets/x86_64-linux", "targets/sbsa-linux")
# The first CUDA whose nvcc comes as pip packages: those of CUDA 12 hold ptxas and no nvcc.
OLDEST_PACKAGED_CUDA = 13


@dataclass(frozen=True)
class Torch:
    """The installed torch: its folder, its version, and the CUDA version it was built with, if any."""

    home: Path
    version: str
    cuda: str | None


@dataclass(frozen=True)
class Toolkit:
    """A CUDA toolkit: its folder, its version such as (13, 0), and the folder of its headers."""

    home: Path
    version: tuple[int, int]
    include: Path

    @property
    def nvcc(self) -> Path:
        return self.home / "bin" / "nvcc"

    @property
    def static_runtime(self) -> Path | None:
        folders = ("lib64", "lib", *(f"{target}/lib" for target in TARGETS))
        libraries = (self.home / folder / "libcudart_static.a" for folder in folders)
        return next((library for library in libraries if library.is_file()), None)

    def __str__(self) -> str:
        return f"nvcc {self.version[0]}.{self.version[1]}"


def output_of(*command: object) -> str:
    """What a compiler prints.

    Raises:
        MachineError: it cannot be run, as a script of another machine or a file that is not executable.
    """
    words = [str(word) for word in command]
    try:
        return subprocess.run(words, capture_output=True, text=True, check=False).stdout
    except OSError as error:
        cure = "point CUDA_HOME at another toolkit" if Path(words[0]).name == "nvcc" else "set CXX to another compiler"
        raise MachineError(f"{words[0]} cannot be run ({error.strerror}); {cure}.") from error


# ---- torch and Ninja ------------------------------------------------------------------------------------------


def find_torch(oldest: tuple[int, int]) -> Torch:
    """The torch of this Python.

    Raises:
        MachineError: there is none, or it is older than `oldest`.
    """
    spec = importlib.util.find_spec("torch")
    if spec is None or not spec.submodule_search_locations:
        raise MachineError(
            f"torch is not installed in this environment ({sys.prefix}); install it, then build with "
            "`pip install --no-build-isolation -e .` (with build isolation pip hides the installed torch)."
        )
    home = Path(next(iter(spec.submodule_search_locations)))
    text = (home / "version.py").read_text()
    version = re.search(r"__version__ = '([^']+)'", text)
    cuda = re.search(r"^cuda(?:: Optional\[str\])? = '([^']+)'", text, re.MULTILINE)
    torch = Torch(home, version[1] if version else "0", cuda[1] if cuda else None)
    if tuple(int(part) for part in re.findall(r"\d+", torch.version)[:2]) < oldest:
        raise MachineError(
            f"torch {torch.version} is too old for the stable ABI; install torch {oldest[0]}.{oldest[1]} "
            "or newer with `pip install --upgrade torch`."
        )
    return torch


def find_ninja() -> str:
    # The package's own binary first: the launcher that pip puts on PATH starts a Python process before it.
    spec = importlib.util.find_spec("ninja")
    packaged = Path(spec.origin).parent / "data" / "bin" / "ninja" if spec and spec.origin else None
    if packaged and packaged.is_file():
        return str(packaged)
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    ninja = shutil.which("ninja", path=path)
    if not ninja:
        raise MachineError("ninja is not installed; install it with `pip install ninja`.")
    return ninja


# ---- The C++ compiler and its cache ---------------------------------------------------------------------------


def find_compiler() -> str:
    """The C++ compiler, as CXX gives it but without a compiler cache before it."""
    words = environment.words("CXX") or ["g++"]
    if len(words) > 1 and Path(words[0]).name in COMPILER_CACHES:
        words = words[1:]
    if not shutil.which(words[0]):
        raise MachineError(
            f"the C++ compiler '{words[0]}' was not found; install one (`apt-get install g++`) or set CXX to yours."
        )
    return shlex.join(words)


def find_cache() -> str | None:
    """ccache or sccache: the one that CXX names, else one on PATH; None where there is none or USE_CCACHE=0."""
    if environment.is_off("USE_CCACHE"):
        return None
    named = [word for word in environment.words("CXX")[:1] if Path(word).name in COMPILER_CACHES]
    return next((path for name in (*named, *COMPILER_CACHES) if (path := shutil.which(name))), None)


# ---- CUDA -----------------------------------------------------------------------------------------------------


def find_toolkit(torch: Torch, note: Note) -> Toolkit | None:
    """The CUDA toolkit to build with; where there is none, None and a note that says so.

    Raises:
        MachineError: CUDA is asked for, by USE_CUDA=1 or CUDA_HOME, and cannot be had.
    """
    if environment.is_off("USE_CUDA"):
        note("USE_CUDA=0: building the CPU library only.")
        return None
    cuda_home = os.environ.get("CUDA_HOME")
    toolkits = [toolkit for home in toolkit_homes(torch) if (toolkit := toolkit_at(home))]
    if cuda_home and not toolkits:
        raise MachineError(f"CUDA_HOME={cuda_home} holds no CUDA toolkit (bin/nvcc and include/cuda_runtime_api.h).")
    for toolkit in toolkits:
        # A torch without CUDA loads no CUDA library, and one can be built for other machines.
        if torch.cuda is None or toolkit.version[0] == _major(torch.cuda):
            return toolkit
    problem = "no CUDA toolkit (nvcc) was found"
    if toolkits:
        problem = f"{toolkits[0]} does not match torch's CUDA {torch.cuda}"
    cure = ("unset CUDA_HOME, or " if cuda_home else "") + toolkit_cure(torch)
    if os.environ.get("USE_CUDA") or cuda_home:
        raise MachineError(f"{problem}; {cure}.")
    note(f"{problem}: building the CPU library only ({cure}).")
    return None


def toolkit_at(home: Path) -> Toolkit | None:
    headers = (home / folder / "include" / "cuda_runtime_api.h" for folder in ("", *TARGETS))
    header = next((path for path in headers if path.is_file()), None)
    if not (home / "bin" / "nvcc").is_file() or header is None:
        return None
    version = re.search(r"^#define CUDART_VERSION\s+(\d+)", header.read_text(errors="replace"), re.MULTILINE)
    return Toolkit(home, divmod(int(version[1]) // 10, 100), header.parent) if version else None


def toolkit_homes(torch: Torch) -> list[Path]:
    """Where a CUDA toolkit may be, in the order of preference."""
    if cuda_home := os.environ.get("CUDA_HOME"):
        return [Path(cuda_home)]
    on_path = shutil.which("nvcc")
    return [
        *([Path(on_path).resolve().parents[1]] if on_path else []),
        Path("/usr/local/cuda"),
        torch.home.parent / "nvidia" / f"cu{_major(torch.cuda or '13')}",
    ]


def toolkit_cure(torch: Torch) -> str:
    """What gets a CUDA toolkit that this torch can use."""
    if torch.cuda is None:
        return (
            f"torch {torch.version} is built without CUDA: get one built with CUDA by `pip install --force-reinstall "
            "torch`, or point CUDA_HOME at a toolkit to build for other machines"
        )
    if _major(torch.cuda) < OLDEST_PACKAGED_CUDA:
        return f"install NVIDIA's toolkit {torch.cuda} and point CUDA_HOME at it (no pip package holds this nvcc)"
    # Newer builds of torch bring the last two, in versions of their own: pip then keeps those.
    pinned = [f"'{part}=={torch.cuda}.*'" for part in ("nvidia-cuda-nvcc", "nvidia-cuda-crt", "nvidia-nvvm")]
    packages = " ".join([*pinned, "nvidia-cuda-runtime", "nvidia-cuda-cccl"])
    return f"install one with `kernelgen doctor --fix` or `pip install {packages}`, or point CUDA_HOME at one"


def _major(version: str) -> int:
    return int(version.split(".")[0])
