"""The C++ compiler: present, new enough, able to read torch's headers, and content with the flags that are set."""

import os
import shlex
from collections.abc import Iterator

from kernelgen.toolchain import packages
from kernelgen.toolchain.checks import trial
from kernelgen.toolchain.checks.python import numbers
from kernelgen.toolchain.facts import Facts
from kernelgen.toolchain.finding import Finding, error, ok

OLDEST = {"g++": 9, "clang++": 10}
_SOURCE = "#include <torch/csrc/stable/library.h>\n#include <torch/csrc/stable/tensor.h>\n"


def check(facts: Facts) -> Iterator[Finding]:
    if facts["compiler"].error:
        cure = "apt-get install g++ (or: dnf install gcc-c++; conda install gxx), or set CXX"
        if os.environ.get("CXX"):
            cure = "unset CXX, or set it to a compiler that is installed"
        yield error("compiler", facts["compiler"].error, cure, stops="cpu")
    elif facts["compiler"].value:
        reads = _version(facts) or _headers(facts)
        yield reads
        if reads.state == "ok":
            yield from _flags(facts)


def _version(facts: Facts) -> Finding | None:
    command = facts["compiler"].value
    kind, version = trial.identify(command)
    if numbers(version) >= (OLDEST[kind],):
        return None
    text = f"'{command}' is {kind} {version}, too old for torch's headers; {OLDEST[kind]} or newer works."
    return error("compiler", text, "apt-get install g++-12 && export CXX=g++-12", stops="cpu")


def _headers(facts: Facts) -> Finding:
    command = facts["compiler"].value
    name = "{} {} ({})".format(*trial.identify(command), command)
    if facts["torch"].value is None:
        return ok("compiler", name)
    if problem := _preprocess(facts, []):
        cure = f"{packages.command(facts.python)} --force-reinstall torch, or another compiler in CXX"
        return error("compiler", f"{name} cannot read torch's headers: {problem}", cure, stops="cpu")
    return ok("compiler", f"{name} reads torch's headers")


def _preprocess(facts: Facts, flags: list[str]) -> str:
    """The first error of preprocessing torch's headers with these flags, or ""; of an empty source without torch."""
    command, torch = [*shlex.split(facts["compiler"].value), "-std=c++17"], facts["torch"].value
    if torch is None:
        return trial.preprocess([*command, *flags, "-xc++"], "")
    return trial.preprocess([*command, "-isystem", f"{torch['home']}/include", *flags, "-xc++"], _SOURCE)


def _flags(facts: Facts) -> Iterator[Finding]:
    """The variables whose flags a build adds, where they break it."""
    compiler = shlex.split(facts["compiler"].value)
    for variable, problem_of in (
        ("CXXFLAGS", lambda flags: _preprocess(facts, flags)),
        ("LDFLAGS", lambda flags: trial.link(compiler, flags)),
    ):
        value = os.environ.get(variable, "")
        try:
            flags = shlex.split(value)
        except ValueError as refusal:
            problem = f"it is no list of words ({refusal})"
        else:
            problem = flags and problem_of(flags)
        if problem:
            text = f"{variable}={shlex.quote(value)} breaks every build: {problem}"
            yield error("compiler", text, f"unset {variable}, or leave out what is wrong there", stops="cpu")
