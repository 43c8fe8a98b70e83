"""The project's Python and what it must hold: torch, Ninja, setuptools."""

import re
from collections.abc import Iterator

from kernelgen.toolchain import packages
from kernelgen.toolchain.facts import Facts
from kernelgen.toolchain.finding import Finding, error, ok, warning

OLDEST_PYTHON = (3, 10)
OLDEST_SETUPTOOLS = 77


def check(facts: Facts) -> Iterator[Finding]:
    yield _python(facts)
    if facts["setup"].error:
        cure = "git checkout setup.py, or kernelgen update"
        yield error("setup.py", facts["setup"].error, cure, stops="cpu")
        return
    yield from _torch(facts)
    yield _ninja(facts)
    yield _setuptools(facts)


def _python(facts: Facts) -> Finding:
    version = facts["python"].value
    if numbers(version) < OLDEST_PYTHON:
        text = f"Python {version} ({facts.python}) is too old; 3.10 is the oldest that works."
        return error("python", text, "uv venv --python 3.12, or name another with --python", stops="cpu")
    return ok("python", f"{version}, {facts.python}")


def _torch(facts: Facts) -> Iterator[Finding]:
    answer, install = facts["torch"], packages.command(facts.python)
    if answer.error:
        yield error("torch", answer.error, f"{install} --upgrade torch", stops="cpu")
        return
    version, cuda = answer.value["version"], answer.value["cuda"]
    if cuda is None:
        yield warning(
            "torch",
            f"torch {version} is built without CUDA: a CUDA library may compile, and cannot be loaded here.",
            f"{install} --force-reinstall torch (on machines with an NVIDIA GPU)",
        )
    else:
        yield ok("torch", f"{version}, built with CUDA {cuda}; the stable ABI needs 2.10 or newer")


def _ninja(facts: Facts) -> Finding:
    if facts["ninja"].error:
        cure = f"{packages.command(facts.python)} ninja"
        return error("ninja", facts["ninja"].error, cure, stops="cpu", packages=["ninja"])
    return ok("ninja", f"{facts.installed('ninja') or ''} {facts['ninja'].value}".strip())


def _setuptools(facts: Facts) -> Finding:
    version, wanted = facts.installed("setuptools"), f"setuptools>={OLDEST_SETUPTOOLS}"
    if version and numbers(version) >= (OLDEST_SETUPTOOLS,):
        return ok("setuptools", version)
    text = f"setuptools {version} is too old; it must be" if version else "setuptools is not installed; it must be"
    cure = f"{packages.command(facts.python)} '{wanted}'"
    return error("setuptools", f"{text} {OLDEST_SETUPTOOLS} or newer.", cure, stops="cpu", packages=[wanted])


def numbers(version: str) -> tuple[int, ...]:
    """The leading numbers of a version: "2.11.0+cu130" is (2, 11, 0)."""
    return tuple(map(int, re.match(r"[\d.]*", version)[0].strip(".").split("."))) if version[:1].isdigit() else ()
