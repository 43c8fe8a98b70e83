"""The CUDA architectures to compile for, and how people spell them."""

from __future__ import annotations

import os
import re
import subprocess

from . import environment
from .messages import BuildError, Note
from .project import Project
from .toolkit import Toolkit, output_of

# The capabilities that a name stands for, with the features that only these GPUs have.
NAMED = {
    "maxwell": "5.0 5.2",
    "pascal": "6.0 6.1",
    "volta": "7.0",
    "turing": "7.5",
    "ampere": "8.0 8.6",
    "ada": "8.9",
    "hopper": "9.0a",
    "blackwell": "10.0a 10.3a 12.0a 12.1a",
}

CHOOSE = "Choose with TORCH_CUDA_ARCH_LIST or CUDA_ARCHITECTURES in setup.py"


def choose_architectures(project: Project, toolkit: Toolkit | None, note: Note) -> list[str]:
    """Compute capabilities to compile for, such as ["8.0", "9.0a", "9.0+PTX"]: those of TORCH_CUDA_ARCH_LIST, else
    those that the project pins, else those of the GPUs present, else the portable ones, with a note.

    Raises:
        BuildError: a word is no architecture, or the toolkit's nvcc does not know it.
    """
    chosen = _words(os.environ.get("TORCH_CUDA_ARCH_LIST", "")) or _words(project.cuda_architectures) or [""]
    known = known_architectures(toolkit) if toolkit else []
    architectures: list[str] = []
    for word in chosen:
        architectures += expand(word, known) or _portable(project.portable_architectures, known, note)
    for architecture in architectures:
        if known and architecture.removesuffix("+PTX") not in known:
            raise BuildError(
                f"{toolkit} cannot compile for {architecture}; it can for {', '.join(known)}. {CHOOSE}, or use "
                "another CUDA toolkit."
            )
    return list(dict.fromkeys(architectures))


def _words(arch_list: str) -> list[str]:
    return [word for word in re.split(r"[;,\s]+", arch_list) if word]


def _portable(arch_list: str, known: list[str], note: Note) -> list[str]:
    """What is compiled for where there is no GPU."""
    note(f"no GPU here: compiling for {arch_list} (set TORCH_CUDA_ARCH_LIST to choose).")
    capabilities = [capability for word in _words(arch_list) for capability in expand(word, known)]
    if not capabilities:
        raise BuildError(
            f"PORTABLE_ARCHITECTURES in setup.py is {arch_list!r}, which names no GPU on a machine without one; write "
            "a list such as 8.0;9.0+PTX."
        )
    return capabilities


def expand(word: str, known: list[str]) -> list[str]:
    """The capabilities that a word of such a list means: "sm_90a" is ["9.0a"], "Ampere" is ["8.0", "8.6"], and "native"
    is [] on a machine without a GPU."""
    name, ptx = re.sub(r"\+ptx$", "", word.lower()), "+PTX" if word.lower().endswith("+ptx") else ""
    if name == "native":
        capabilities = present_architectures(known)
    elif name in ("all", "all-major"):
        capabilities, ptx = _all(known, major=name == "all-major"), "+PTX"
    elif name in NAMED:
        named = NAMED[name].split()
        capabilities = [capability for capability in named if capability in known] or named
    elif match := re.fullmatch(r"(?:sm_|compute_)?(\d{1,2})\.?(\d[af]?)", name):
        capabilities = [f"{match[1]}.{match[2]}"]
    else:
        names = ", ".join(name.capitalize() for name in NAMED)
        raise BuildError(
            f"'{word}' is no CUDA architecture; write compute capabilities such as 8.0;9.0a or 9.0+PTX, "
            f"a name ({names}), native, all or all-major. {CHOOSE}."
        )
    return [*capabilities[:-1], *(last + ptx for last in capabilities[-1:])]


def _all(known: list[str], *, major: bool) -> list[str]:
    """What nvcc means by them: every plain capability, or the oldest and the first of each generation."""
    plain = [capability for capability in known if capability[-1].isdecimal()] or ["8.0", "9.0"]
    return [capability for capability in plain if not major or capability.endswith(".0") or capability == plain[0]]


def known_architectures(toolkit: Toolkit) -> list[str]:
    """The capabilities that nvcc can compile for. Only its help lists those that end in a letter."""
    names = set(re.findall(r"'sm_(\d+)(\d)([af]?)'", output_of(toolkit.nvcc, "--help")))
    ordered = sorted(names, key=lambda name: (int(name[0]), name[1:]))
    return [f"{major}.{minor}{suffix}" for major, minor, suffix in ordered]


def present_architectures(known: list[str]) -> list[str]:
    """The compute capabilities of this machine's GPUs, with all their features where nvcc knows those."""
    command = ["nvidia-smi", "--query-gpu=compute_cap", "--format=csv,noheader"]
    try:
        output = subprocess.run(command, capture_output=True, text=True, check=True, timeout=30).stdout
    except (OSError, subprocess.SubprocessError):
        return []
    capabilities = sorted(set(re.findall(r"^\d+\.\d$", output, re.MULTILINE)), key=float)
    return [f"{capability}a" if f"{capability}a" in known else capability for capability in capabilities]


def number(architecture: str) -> int:
    """90 for "9.0a", "9.0+PTX" and "sm_90a"."""
    return int("".join(re.findall(r"\d+", architecture)))


def gencode(architecture: str) -> list[str]:
    """nvcc's flags for one architecture."""
    name = architecture.removesuffix("+PTX").replace(".", "")
    flags = [f"-gencode=arch=compute_{name},code=sm_{name}"]
    if architecture.endswith("+PTX"):
        # PTX with the features of one GPU runs on that one alone: newer ones need it plain.
        flags.append(f"-gencode=arch=compute_{number(name)},code=compute_{number(name)}")
    return flags


def refuse_architecture_flags(project: Project) -> None:
    """Raises BuildError if nvcc's further flags name an architecture: it would silently replace the chosen ones."""
    places = {variable: environment.words(variable) for variable in environment.READ_BY_NVCC}
    places["NVCC_FLAGS in setup.py"] = [flag for flags in project.nvcc_flags.values() for flag in flags]
    for place, flags in places.items():
        for flag in flags:
            if re.match(r"-(arch|gencode|code|-gpu-architecture|-gpu-code|-generate-code)\b", flag):
                raise BuildError(
                    f"{place} holds {flag}, which would replace the chosen architectures; take it out and set "
                    "TORCH_CUDA_ARCH_LIST instead."
                )
