"""What the process of an op may not do, where Linux can refuse it.

It has no capabilities. By Landlock (https://docs.kernel.org/userspace-api/landlock.html) it writes to its scratch
folder, to caches of kernels and to devices alone, and neither sends signals to processes outside nor reads or writes
their memory. kernelgen's own cache and those of compilers are none that it may write to: a judge and later builds read
them.
"""

import ctypes
import os
import signal
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

_PR_SET_PDEATHSIG, _PR_SET_NO_NEW_PRIVS = 1, 38
_CAPABILITY_VERSION_3 = 0x20080522
_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_PATH_BENEATH = 1
# Landlock's access rights that change files, by the version of its ABI that brought them: to write and to remove files,
# to make any kind of them; to move them between folders; to truncate them. Version 6 brought the scope of signals.
_WRITES = {1: 1 << 1 | sum(1 << bit for bit in range(4, 13)), 2: 1 << 13, 3: 1 << 14}
_SIGNALS, _SIGNALS_ABI = 2, 6
# Caches that are read by others than ops.
_KEPT = ("kernelgen", "ccache", "sccache", "pip", "uv")


class _Ruleset(ctypes.Structure):
    _fields_ = (("files", ctypes.c_uint64), ("network", ctypes.c_uint64), ("scoped", ctypes.c_uint64))


class _PathBeneath(ctypes.Structure):
    _pack_ = 1
    _fields_ = (("allowed", ctypes.c_uint64), ("folder", ctypes.c_int32))


def end_with_parent() -> None:
    """Has this process killed when the process that started it ends: stopped, it would never notice."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def confine(scratch: Path) -> None:
    """Confines this process and all that it will start."""
    system = ctypes.CDLL(None)
    system.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    system.capset((ctypes.c_uint32 * 2)(_CAPABILITY_VERSION_3, 0), (ctypes.c_uint32 * 6)())
    _allow_writes(system, [scratch, *_caches(), Path("/dev"), Path("/proc")])


def _caches() -> list[Path]:
    variables = ("TRITON_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR", "CUDA_CACHE_PATH")
    named = [Path(os.environ[name]) for name in variables if os.environ.get(name)]
    shared = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    (shared / "torch").mkdir(parents=True, exist_ok=True)
    others = [folder for folder in shared.iterdir() if folder.is_dir() and folder.name not in _KEPT]
    of_kernels = [Path.home() / name for name in (".triton", ".nv")]
    for folder in (*named, *of_kernels):
        with suppress(OSError):
            folder.mkdir(parents=True, exist_ok=True)  # Nobody could make it later.
    return [*named, *others, *of_kernels]


def _allow_writes(system: ctypes.CDLL, folders: Iterable[Path]) -> None:
    """In these folders alone; where the kernel has no Landlock, nothing is refused."""
    version = system.syscall(_CREATE_RULESET, None, ctypes.c_size_t(0), 1)
    if version < 1:
        return
    writes = sum(rights for since, rights in _WRITES.items() if since <= version)
    rules = _Ruleset(writes, 0, _SIGNALS if version >= _SIGNALS_ABI else 0)
    size = ctypes.c_size_t(24 if version >= _SIGNALS_ABI else 8)
    ruleset = system.syscall(_CREATE_RULESET, ctypes.byref(rules), size, 0)
    if ruleset < 0:
        return
    for folder in folders:
        with suppress(OSError):
            fd = os.open(folder, os.O_PATH | os.O_CLOEXEC)
            rule = _PathBeneath(writes, fd)
            system.syscall(_ADD_RULE, ruleset, _PATH_BENEATH, ctypes.byref(rule), 0)
            os.close(fd)
    system.syscall(_RESTRICT_SELF, ruleset, 0)
    os.close(ruleset)
