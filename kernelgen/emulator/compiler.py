"""What compiles CUDA sources for the CPU: g++, CUDA's headers, and the flags of the objects."""

import os
import re
import shlex
import shutil
import subprocess
import sysconfig
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from kernelgen.errors import KernelgenError

HERE = Path(__file__).resolve().parent
DEVICE = HERE / "device"
TORCH_GLUE = HERE / "torch_glue"
OLDEST_GCC = 12

# As nvcc compiles: any type may be read as another, and integers wrap around.
FLAGS = ["-std=c++20", "-g1", "-fPIC", "-w", "-fno-strict-aliasing", "-fwrapv", "-ffp-contract=off"]
FLAGS.append("-fno-gnu-unique")  # Otherwise libraries share the static variables of templates.
# An access that is not aligned raises a signal: see failures.cpp.
KERNEL_FLAGS = ["-O1", "-ftrivial-auto-var-init=pattern", "-fsanitize=alignment", "-fsanitize-undefined-trap-on-error"]
# CUB's classes declare names that change the meaning of others, which nvcc accepts.
KERNEL_FLAGS.append("-fpermissive")
# Without this, no function may be inlined that another library could replace: see __global__ in prelude.h.
KERNEL_FLAGS.append("-fno-semantic-interposition")
# Every access calls a function of the emulator: see accesses.h. No library of the sanitizer is linked.
HOOK_PARAMETERS = ("tsan-distinguish-volatile=1", "tsan-instrument-func-entry-exit=0")
KERNEL_FLAGS += ["-fsanitize=thread", *(part for hook in HOOK_PARAMETERS for part in ("--param", hook))]
# Passes that take g++ a fifth of its time and leave the hooks as many as they were. The rest is small beside those.
SLOW_PASSES = ("combine-stack-adjustments", "compare-elim", "cprop-registers", "dce", "dse", "forward-propagate")
SLOW_PASSES += ("if-conversion", "if-conversion2", "ivopts", "move-loop-invariants", "reorder-blocks", "shrink-wrap")
SLOW_PASSES += ("split-wide-types", "tree-dominator-opts", "tree-slsr")
KERNEL_FLAGS += [f"-fno-{name}" for name in SLOW_PASSES]
# No collecting of garbage before it is half a GiB.
KERNEL_FLAGS += ["--param", "ggc-min-expand=1000", "--param", "ggc-min-heapsize=500000"]
RUNTIME_FLAGS = ["-O3", "-U_FORTIFY_SOURCE"]


class EmulatorError(KernelgenError):
    """A kernel's fault, an instruction that the emulator does not know, or a source that cannot be compiled."""


@dataclass(frozen=True)
class Compiler:
    """g++ and the folder of CUDA's headers. The toolkit's compilers and libraries are not used."""

    command: str
    headers: Path

    def kernel_flags(self) -> list[str]:
        """Those of every CUDA source, whose text is preprocessed and rewritten first; include folders follow."""
        return [*FLAGS, *KERNEL_FLAGS, *self._include_flags()]

    def command_for_preprocessed(self) -> list[str]:
        """What compiles such a source then: macros and include folders have done their work."""
        return [self.command, *FLAGS, *KERNEL_FLAGS, "-fpreprocessed"]

    def preprocessor_flags(self, prelude: Path) -> list[str]:
        return ["-E", "-fpch-preprocess", "-x", "c++", "-include", str(prelude)]

    def runtime_flags(self) -> list[str]:
        """Those of the emulated device's own sources."""
        return [*FLAGS, *RUNTIME_FLAGS, *self._include_flags()]

    def _include_flags(self) -> list[str]:
        """The device's headers, some of which stand for the toolkit's of the same names."""
        toolkit = [self.headers, self.headers / "cccl"]
        return [f"-I{DEVICE}", f"-I{DEVICE / 'include'}", *(f"-isystem{folder}" for folder in toolkit)]


def find(site_packages: Path | None = None) -> Compiler:
    """The compiler, and CUDA's headers of a toolkit or of the pip packages in this folder (by default this Python's).

    Raises:
        EmulatorError: g++ or a header is missing; the message says what to install.
    """
    packages = site_packages or Path(sysconfig.get_path("purelib"))
    return Compiler(_find_gcc(), _find_headers(packages))


def run(command: Sequence[str]) -> str:
    """What a command prints.

    Raises:
        EmulatorError: it failed; the message holds its errors.
    """
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode:
        raise EmulatorError(f"{shlex.join(command)}\n{result.stderr}")
    return result.stdout


def _find_gcc() -> str:
    newer = [f"g++-{version}" for version in range(16, OLDEST_GCC - 1, -1)]
    try:
        named = shlex.split(os.environ.get("CXX", ""))
    except ValueError as error:
        text = f"CXX={os.environ['CXX']} is no list of words ({error}); close the quotation."
        raise EmulatorError(text) from error
    for name in (*named[-1:], "g++", *newer):
        if (path := shutil.which(name)) and _is_gcc(path):
            return path
    raise EmulatorError(
        f"The emulated GPU needs g++ {OLDEST_GCC} or newer, and there is none on PATH; install it with "
        f"`apt-get install g++-{OLDEST_GCC}` or `conda install -c conda-forge gxx`, or set CXX to yours."
    )


def _is_gcc(path: str) -> bool:
    macros = subprocess.run([path, "-dM", "-E", "-x", "c++", "/dev/null"], capture_output=True, text=True, check=False)
    version = re.search(r"^#define __GNUC__ (\d+)$", macros.stdout, re.MULTILINE)
    return version is not None and int(version[1]) >= OLDEST_GCC and "__clang__" not in macros.stdout


def _find_headers(site_packages: Path) -> Path:
    folders = list(_header_folders(site_packages))
    for folder in folders:
        # The second is of another package than the first.
        if (folder / "cuda_fp16.h").is_file() and (folder / "crt" / "host_defines.h").is_file():
            return folder
    pin = next((f"=={version}.*" for folder in folders if (version := _cuda_version(folder))), "")
    packages = " ".join(f"'nvidia-cuda-{part}{pin}'" if pin else f"nvidia-cuda-{part}" for part in ("runtime", "crt"))
    raise EmulatorError(
        "The emulated GPU needs CUDA's headers (not its compiler), and neither CUDA_HOME, /usr/local/cuda nor the "
        f"project's Python has them; install them there with `pip install {packages} nvidia-cuda-cccl`."
    )


def _header_folders(site_packages: Path) -> Iterator[Path]:
    homes = [os.environ.get("CUDA_HOME", ""), "/usr/local/cuda"]
    if nvcc := shutil.which("nvcc"):
        homes.insert(1, str(Path(nvcc).resolve().parents[1]))
    for home in filter(None, homes):
        yield from (Path(home, part, "include") for part in ("", "targets/x86_64-linux", "targets/sbsa-linux"))
    yield site_packages / "nvidia" / "cu13" / "include"


def _cuda_version(folder: Path) -> str | None:
    """Such as "13.2", of the headers in a folder that lacks the rest of them."""
    header = folder / "cuda_runtime_api.h"
    text = header.read_text(errors="replace") if header.is_file() else ""
    version = re.search(r"^#define CUDART_VERSION\s+(\d+)", text, re.MULTILINE)
    return f"{int(version[1]) // 1000}.{int(version[1]) // 10 % 100}" if version else None
