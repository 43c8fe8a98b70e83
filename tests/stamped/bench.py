"""Ways to make a project's build fail, and which row of docs/troubleshooting.md each failure belongs to."""

import os
import re
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

from .conftest import REPOSITORY, run

PAGE = REPOSITORY / "docs" / "troubleshooting.md"
UNSET = ("USE_CUDA", "CUDA_HOME", "TORCH_CUDA_ARCH_LIST", "CXX", "MAX_JOBS", "DEBUG", "SANITIZE", "VIRTUAL_ENV")


class Bench:
    """A copy of a project, and ways to change it and to run commands in it."""

    def __init__(self, project: Path, scratch: Path) -> None:
        self.project, self.scratch = project, scratch

    def run(self, *command: object, **variables: str | None) -> str:
        """All that a command prints, with these variables and none of the others that steer a build."""
        done = run([str(word) for word in command], self.project, **{**dict.fromkeys(UNSET), **variables})
        return done.stdout + done.stderr

    def build(self, **variables: str | None) -> str:
        return self.run(sys.executable, "setup.py", "build_ext", "--inplace", **variables)

    def kernelgen(self, verb: str, *arguments: object, **variables: str | None) -> str:
        command = (sys.executable, "-m", "kernelgen", verb, *arguments, "--python", sys.executable)
        return self.run(*command, PYTHONPATH=str(REPOSITORY), **variables)

    def doctor(self, **variables: str | None) -> str:
        """Of the project without its library: doctor would load it, and torch with it."""
        (self.project / "src" / "demo_kernels" / "_cpu.so").unlink()
        return self.kernelgen("doctor", **variables)

    def python(self, code: str, **variables: str | None) -> str:
        """Runs code that raises, and returns the error's message without the traceback."""
        handler = "except Exception as error:\n    print(f'{type(error).__name__}: {error}')"
        wrapped = f"import torch\ntry:\n    exec({code!r})\n{handler}"
        return self.run(sys.executable, "-c", wrapped, PYTHONPATH="src", **variables)

    def edit(self, path: Path, old: str, new: str) -> None:
        text = (self.project / path).read_text()
        assert old in text
        (self.project / path).write_text(text.replace(old, new))

    def append(self, path: Path, text: str) -> None:
        with (self.project / path).open("a") as file:
            file.write(f"{text}\n")

    def script(self, name: str, text: str) -> Path:
        path = self.scratch / "bin" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)
        return path

    def module(self, name: str, text: str) -> Path:
        """A folder to put on PYTHONPATH, with a package in it that stands in for a real one."""
        folder = self.scratch / "modules"
        (folder / name).mkdir(parents=True, exist_ok=True)
        (folder / name / "__init__.py").write_text(text)
        return folder

    def hide_cuda(self) -> str:
        """A PATH with a compiler and without nvcc; the build does not look in the usual place either."""
        self.edit(Path("build_tools/toolkit.py"), "/usr/local/cuda", "/nowhere")
        for name in ("g++", "ld", "as", "mv", "sh"):
            self.script(name, f'exec {shutil.which(name)} "$@"')
        return str(self.scratch / "bin")

    def toolkit(self, version: int) -> str:
        """A CUDA toolkit of that version, with hardly anything in it."""
        home = self.script("nvcc", "exit 1").parents[1]
        (home / "include").mkdir()
        (home / "include" / "cuda_runtime_api.h").write_text(f"#define CUDART_VERSION  {version}\n")
        return str(home)

    def gpu(self) -> str:
        """A PATH with an nvidia-smi that reports an older GPU and a much older driver."""
        text = 'case "$*" in *name*) echo "NVIDIA A100, 8.0, 470.82.01";; *) echo 8.0;; esac'
        return f"{self.script('nvidia-smi', text).parent}{os.pathsep}{os.environ['PATH']}"


FAILURES: dict[str, Callable[[Bench], str]] = {}


def row(symptom: str) -> Callable[[Callable[[Bench], str]], Callable[[Bench], str]]:
    """Registers a function as what causes the failure of a row of the page."""

    def register(function: Callable[[Bench], str]) -> Callable[[Bench], str]:
        FAILURES[symptom] = function
        return function

    return register


def symptoms() -> list[str]:
    """The first cell of each row, without its backticks."""
    return re.findall(r"^\| `(.+?)` \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE)


def pattern(symptom: str) -> str:
    """`…` stands for anything on the same line."""
    return ".*".join(map(re.escape, symptom.split("…")))
