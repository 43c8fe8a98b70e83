"""The errors that kernelgen raises on purpose. Each class carries the exit code of the command that ends by it."""

from collections.abc import Mapping
from typing import Any


class KernelgenError(Exception):
    """kernelgen cannot do what it was asked to. `details` is what --json says beside the message."""

    exit_code = 1
    # Whether the exit code is a verdict on what was judged, and not for want of one.
    is_verdict = False

    def __init__(self, message: str = "", details: Mapping[str, Any] | None = None) -> None:
        super().__init__(message)
        self.details = dict(details or {})


class MachineError(KernelgenError):
    """The machine lacks what a build needs, which says nothing of the sources."""


class UsageError(KernelgenError):
    """The request itself is wrong: the message says what would be right."""

    exit_code = 2


class ConflictError(KernelgenError):
    """The request collides with what is already there."""

    exit_code = 3


class LabError(KernelgenError):
    """Nothing could be run, so there is no verdict; the message says what is missing."""

    exit_code = 2


class NoGpuError(LabError):
    """A GPU was asked for where there is none."""

    def __init__(self, device: str = "cuda") -> None:
        super().__init__(f"Nothing can run on {device}: torch sees no GPU here; run it with --device cpu.")
