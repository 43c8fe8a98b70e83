"""Runs compilers, to learn their versions and whether they can read the headers that kernels include."""

import re
import shlex
import subprocess
import tempfile

_LINKER_FAILED = re.compile("collect2: error|clang.*: error: linker command failed")


def output(command: list[str]) -> str:
    """What a command prints, or "" if it cannot run."""
    try:
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=30).stdout
    except (OSError, subprocess.SubprocessError):
        return ""


def preprocess(command: list[str], source: str) -> str:
    """The first error of preprocessing some source text, or "": a tenth of the time that compiling it takes."""
    return _first_error([*command, "-E", "-o", "/dev/null", "-"], source)


def link(compiler: list[str], flags: list[str]) -> str:
    """The first error of linking a library of an empty source with these flags, or ""."""
    with tempfile.TemporaryDirectory() as scratch:
        line = [*compiler, "-shared", "-fPIC", *flags, "-xc++", "-", "-xnone", "-o", f"{scratch}/empty.so"]
        return _first_error(line, "")


def _first_error(line: list[str], source: str) -> str:
    try:
        done = subprocess.run(line, input=source, capture_output=True, text=True, check=False, timeout=60)
    except (OSError, subprocess.SubprocessError) as problem:
        return str(problem)
    # What a linker says comes before the compiler driver's word that it failed.
    lines = [text for text in done.stderr.splitlines() if not _LINKER_FAILED.match(text)]
    first = next((line for line in lines if "error" in line.lower()), lines[0] if lines else "no message")
    return "" if done.returncode == 0 else first.strip()


def identify(compiler: str) -> tuple[str, str]:
    """Which C++ compiler a command is, g++ or clang++, and its version."""
    words = shlex.split(compiler)
    kind = "clang++" if "clang" in output([*words, "--version"]) else "g++"
    version = output([*words, "-dumpversion" if kind == "clang++" else "-dumpfullversion"])
    return kind, version.strip() or "0"
