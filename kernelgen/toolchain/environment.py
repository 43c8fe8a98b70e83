"""The variables that make a shell or a container build what this machine builds."""

import os
import shlex
from collections.abc import Callable, Mapping
from pathlib import Path

from kernelgen.toolchain.facts import Facts


def leaves_cuda_out(environment: Mapping[str, str]) -> bool:
    """Whether USE_CUDA says so, in any of the words that a project's build takes for no."""
    return environment.get("USE_CUDA", "").lower() in ("0", "off", "no", "false")


def variables(facts: Facts, note: Callable[[str], None]) -> dict[str, str]:
    """Each variable's value; for PATH, the folders to put in front. A note says why a variable is left out."""
    toolkit, values = facts["toolkit"].value, {}
    if toolkit:
        values["CUDA_HOME"] = toolkit["home"]
        if facts["architectures"].value:
            values["TORCH_CUDA_ARCH_LIST"] = ";".join(facts["architectures"].value)
    for name in ("setup", "torch", "compiler", "toolkit", "architectures", "jobs"):
        note(facts[name].error or facts[name].notes)
    if facts["compiler"].value:
        values["CXX"] = facts["compiler"].value
    if facts["jobs"].value:
        values["MAX_JOBS"] = str(facts["jobs"].value)
    folders = [str(facts.python.parent)] if facts.python else []
    folders += [str(Path(toolkit["nvcc"]).parent)] if toolkit else []
    missing = [folder for folder in folders if folder not in os.environ.get("PATH", "").split(os.pathsep)]
    return values | ({"PATH": os.pathsep.join(missing)} if missing else {})


def in_syntax(values: dict[str, str], shell: str) -> list[str]:
    """The variables as that shell's commands, or as a Dockerfile's lines."""
    return [_WRITERS[shell](name, value) for name, value in values.items()]


def _sh(name: str, value: str) -> str:
    rest = ':"$PATH"' if name == "PATH" else ""
    return f"export {name}={shlex.quote(value)}{rest}"


def _fish(name: str, value: str) -> str:
    if name == "PATH":
        return f"set -gx PATH {' '.join(map(shlex.quote, value.split(os.pathsep)))} $PATH"
    return f"set -gx {name} {shlex.quote(value)}"


def _docker(name: str, value: str) -> str:
    return f'ENV {name}="{value}{":$PATH" if name == "PATH" else ""}"'


_WRITERS = {"sh": _sh, "fish": _fish, "docker": _docker}
