"""Runs a project's own build_tools, in the project's Python, and reads what they report."""

import json
import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from kernelgen.errors import KernelgenError, MachineError


class OlderLayoutError(KernelgenError):
    """The project was stamped before there were build_tools."""


class NoPythonError(KernelgenError):
    """What was named as the project's Python is none."""


def command(root: Path, python: Path, *arguments: str) -> list[str]:
    """The command line that runs build_tools; it has to be run in `root`.

    Raises:
        OlderLayoutError: there are none.
    """
    if not (root / "build_tools" / "__main__.py").is_file():
        raise OlderLayoutError(
            f"{root} has no build_tools: it is of an older layout; bring it up to date: kernelgen update"
        )
    return [str(python), "-m", "build_tools", "--speaker", "kernelgen", *arguments]


def ask(root: Path, python: Path, *arguments: str, timeout_s: float | None = None) -> Any:
    """What a command of build_tools prints, which is JSON.

    Raises:
        OlderLayoutError: there are no build_tools.
        NoPythonError: what runs is none.
        KernelgenError: they refuse, in their own sentence.
        OSError, subprocess.TimeoutExpired: that Python does not run.
    """
    line = command(root, python, *arguments)
    done = subprocess.run(line, cwd=root, capture_output=True, text=True, check=False, timeout=timeout_s)
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise KernelgenError(last.removeprefix("kernelgen: "))
    try:
        return json.loads(done.stdout)
    except ValueError:
        raise NoPythonError(f"{python} does not run as a Python; name another with --python.") from None


def build(root: Path, python: Path, options: Sequence[str], environment: Mapping[str, str]) -> dict[str, Any]:
    """Builds, with the compilers' output on this process's own, and returns the report.

    Raises:
        OlderLayoutError: there are no build_tools.
        KernelgenError: such a build is impossible here, or a compiler refused a source.
    """
    reader, writer = os.pipe()
    try:
        line = command(root, python, "--report", f"/dev/fd/{writer}", "build", *options)
        process = subprocess.Popen(line, cwd=root, env=environment, pass_fds=[writer])
    except BaseException:
        os.close(reader)
        raise
    finally:
        os.close(writer)
    try:
        with open(reader, encoding="utf-8") as pipe:
            text = pipe.read()
        process.wait()
    except KeyboardInterrupt:
        process.terminate()  # build_tools ends its compilers and removes half-written files.
        process.wait()
        raise
    report = json.loads(text) if text else {"error": f"{python} could not run build_tools; its messages are above."}
    if "error" in report:
        kind = MachineError if report.get("of_machine") else KernelgenError
        raise kind(report["error"], {"errors": report.get("errors", [])})
    return report


def tuning_header(root: Path, python: Path, op: str, entry: Mapping[str, Any]) -> str:
    """The header that this entry of an op's tuned.json makes, for whichever device it is compiled for."""
    return ask(root, python, "tuning", op, json.dumps(entry))["header"]
