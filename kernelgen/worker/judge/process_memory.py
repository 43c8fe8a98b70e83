"""Reads from the memory of another process of this user, which is stopped."""

import ctypes
import errno
import os
import subprocess
import sys
from pathlib import Path

import torch
from torch import Tensor

from kernelgen.errors import LabError
from kernelgen.worker.judge.errors import CallError

# What a system answers that lets no process do this; a process that hides itself gets the first, too.
_REFUSALS = (errno.EPERM, errno.EACCES, errno.ENOSYS)
CLOSED_SYSTEM = (
    "This system lets no process read another's memory, from which results are read (kernel.yama.ptrace_scope is 2 or "
    "more, or a container's seccomp profile refuses process_vm_readv): allow it, or run on another machine."
)


class _Span(ctypes.Structure):
    _fields_ = (("base", ctypes.c_void_p), ("length", ctypes.c_size_t))


_SYSTEM = ctypes.CDLL(None, use_errno=True)
if hasattr(_SYSTEM, "process_vm_readv"):
    _SYSTEM.process_vm_readv.restype = ctypes.c_ssize_t
    _SYSTEM.process_vm_readv.argtypes = (
        *(ctypes.c_int, ctypes.c_void_p, ctypes.c_ulong),
        *(ctypes.c_void_p, ctypes.c_ulong, ctypes.c_ulong),
    )


def read(pid: int, address: int, nbytes: int) -> Tensor:
    """A copy of a process's memory, in bytes.

    Raises:
        CallError: there is no such memory.
        LabError: the system allows nobody to read it.
    """
    copy = torch.empty(nbytes, dtype=torch.uint8)
    got = 0
    while got < nbytes:
        count, number = _readv(pid, copy.data_ptr() + got, address + got, nbytes - got)
        if count <= 0:
            if number in _REFUSALS:
                raise refusal(number)
            reason = os.strerror(number)
            raise CallError(f"RuntimeError: its result's memory cannot be read ({reason}): it should be a plain tensor")
        got += count
    return copy


def mapped_files(pid: int) -> list[tuple[int, int, int, str, str]]:
    """Where a process has files in its memory: begin, end, offset in the file, inode and path.

    Raises:
        CallError, LabError: as `read`.
    """
    try:
        lines = Path(f"/proc/{pid}/maps").read_text().splitlines()
    except OSError as error:
        raise refusal(error.errno) from None
    mappings = []
    for line in lines:
        bounds, _, offset, _, inode, *name = line.split()
        begin, end = (int(bound, 16) for bound in bounds.split("-"))
        mappings.append((begin, end, int(offset, 16), inode, name[0] if name else ""))
    return mappings


def refusal(number: int) -> Exception:
    """The exception for an error of the system that one process hides by, and another system answers to all."""
    if _is_refused_to_all():
        return LabError(CLOSED_SYSTEM)
    return CallError(f"RuntimeError: its memory cannot be read ({os.strerror(number)}): its process hides it")


def _is_refused_to_all() -> bool:
    """Whether the memory of a new child cannot be read either."""
    child = subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", "input()"], stdin=subprocess.PIPE, start_new_session=True
    )
    try:
        target = ctypes.create_string_buffer(1)
        count, number = _readv(child.pid, ctypes.addressof(target), 0, 1)
        return count <= 0 and number in _REFUSALS
    finally:
        child.kill()
        child.communicate()


def _readv(pid: int, here: int, there: int, nbytes: int) -> tuple[int, int]:
    """The bytes that were read, below 1 if none, and the number of the error then."""
    ours, theirs = _Span(here, nbytes), _Span(there, nbytes)
    count = _SYSTEM.process_vm_readv(pid, ctypes.byref(ours), 1, ctypes.byref(theirs), 1, 0)
    return count, ctypes.get_errno()
