"""The errors of `kernelgen tune`. All of them end it with exit code 3: nothing could be tuned."""

import errno
from pathlib import Path

from kernelgen.errors import KernelgenError


class TuningError(KernelgenError):
    """Nothing could be tuned; the message says why."""

    exit_code = 3


class CompileError(TuningError):
    """One candidate does not compile, which costs that candidate alone."""


class DiskFullError(TuningError):
    """Nothing can be written any more."""

    def __init__(self, path: Path | str) -> None:
        super().__init__(
            f"The disk is full at {path}: make room and go on with --resume. All trials up to here are kept."
        )


def is_disk_full(error: OSError) -> bool:
    return error.errno in (errno.ENOSPC, errno.EDQUOT)
