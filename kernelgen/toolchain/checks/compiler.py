"""The C++ compiler: present, new enough, and able to read torch's headers."""

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
        yield _version(facts) or _headers(facts)


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
    include = f"{facts['torch'].value['home']}/include"
    if problem := trial.preprocess([*shlex.split(command), "-std=c++17", "-isystem", include, "-xc++"], _SOURCE):
        cure = f"{packages.command(facts.python)} --force-reinstall torch, or another compiler in CXX"
        return error("compiler", f"{name} cannot read torch's headers: {problem}", cure, stops="cpu")
    return ok("compiler", f"{name} reads torch's headers")
