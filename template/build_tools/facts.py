"""What a build would use here, found without building: for `kernelgen doctor` and `kernelgen env`."""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib import metadata
from typing import Any

from . import machine
from .architectures import choose_architectures, refuse_architecture_flags
from .messages import BuildError, Note
from .project import load
from .toolkit import Toolkit, Torch, find_compiler, find_ninja, find_toolkit, find_torch

# The packages whose versions a build depends on, by how their names begin.
PACKAGES = ("ninja", "pip", "setuptools", "torch", "nvidia-")


def facts() -> dict[str, dict[str, Any]]:
    """By subject: the `value`, the `notes` made on the way, and the `error` that ended the search for it, or ""."""
    answers = {"python": _ask(lambda note: ".".join(map(str, sys.version_info[:3]))), "installed": _ask(_installed)}
    project = _ask(lambda note: load())
    answers["setup"] = {**project, "value": None}
    if project["error"]:
        return answers
    pins = project["value"]
    torch = _ask(lambda note: find_torch(pins.oldest_torch))
    toolkit = _ask(lambda note: find_toolkit(torch["value"], note) if torch["value"] else None)
    answers["torch"] = {**torch, "value": torch["value"] and _torch(torch["value"])}
    answers["toolkit"] = {**toolkit, "value": toolkit["value"] and _toolkit(toolkit["value"])}
    answers["architectures"] = _ask(lambda note: choose_architectures(pins, toolkit["value"], note))
    answers["nvcc_flags"] = _ask(lambda note: refuse_architecture_flags(pins))
    answers["pinned"] = _ask(lambda note: pins.cuda_architectures)
    answers["ninja"] = _ask(lambda note: find_ninja())
    answers["compiler"] = _ask(lambda note: find_compiler())
    answers["jobs"] = _ask(lambda note: machine.jobs())
    answers["cpu"] = _ask(lambda note: machine.cpu_name())
    return answers


def _ask(question: Callable[[Note], Any]) -> dict[str, Any]:
    notes: list[str] = []
    try:
        return {"value": question(notes.append), "notes": notes, "error": ""}
    except BuildError as refusal:
        problem = str(refusal)
    except Exception as failure:
        problem = f"build_tools stopped with {type(failure).__name__}: {failure}"
    return {"value": None, "notes": notes, "error": problem}


def _torch(torch: Torch) -> dict[str, Any]:
    return {"home": str(torch.home), "version": torch.version, "cuda": torch.cuda}


def _toolkit(toolkit: Toolkit) -> dict[str, Any]:
    runtime = toolkit.static_runtime
    paths = {"home": str(toolkit.home), "nvcc": str(toolkit.nvcc), "static_runtime": runtime and str(runtime)}
    return {**paths, "version": list(toolkit.version)}


def _installed(note: Note) -> dict[str, str]:
    """The versions of the packages above in this Python."""
    names = ((package.metadata["Name"] or "").lower() for package in metadata.distributions())
    return {name: metadata.version(name) for name in names if name.startswith(PACKAGES)}
