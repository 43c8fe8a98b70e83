"""Runs compilers, to learn their versions and whether they can read the headers that kernels include."""

import shlex
import subprocess


def output(command: list[str]) -> str:
    """What a command prints, or "" if it cannot run."""
    try:
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=30).stdout
    except (OSError, subprocess.SubprocessError):
        return ""


def preprocess(command: list[str], source: str) -> str:
    """The first error of preprocessing some source text, or "": a tenth of the time that compiling it takes."""
    try:
        line = [*command, "-E", "-o", "/dev/null", "-"]
        done = subprocess.run(line, input=source, capture_output=True, text=True, check=False, timeout=60)
    except (OSError, subprocess.SubprocessError) as problem:
        return str(problem)
    lines = done.stderr.splitlines()
    first = next((line for line in lines if "error" in line.lower()), lines[0] if lines else "no message")
    return "" if done.returncode == 0 else first.strip()


def identify(compiler: str) -> tuple[str, str]:
    """Which C++ compiler a command is, g++ or clang++, and its version."""
    words = shlex.split(compiler)
    kind = "clang++" if "clang" in output([*words, "--version"]) else "g++"
    version = output([*words, "-dumpversion" if kind == "clang++" else "-dumpfullversion"])
    return kind, version.strip() or "0"
