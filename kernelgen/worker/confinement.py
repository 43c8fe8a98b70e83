"""What the process of an op may not do, where Linux can refuse it.

It has no capabilities. By Landlock (https://docs.kernel.org/userspace-api/landlock.html) it writes to its scratch
folder, to a cache of its own, to devices but for terminals, where verdicts are shown, and to what /proc has of itself
alone, and neither sends signals to processes outside nor reads or writes their memory. The user's caches are none that
it may write to: the judge, the peers, another version of the op and later builds read those.
"""

import ctypes
import os
import re
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
_WRITES_OF_FILES = 1 << 1 | 1 << 14  # Of these, what a rule for a single file may allow.
_SIGNALS, _SIGNALS_ABI = 2, 6
_TERMINALS = re.compile(r"(console|kmsg|ptmx|pts|tty|vcs)")
# Where libraries keep the kernels that they compile, by the variables that they look at, in the op's own cache. It lies
# in the project, so that each version of an op, checked out aside, has another.
_CACHE = Path("build") / "op-cache"
_CACHES = {
    "XDG_CACHE_HOME": "",
    "CUDA_CACHE_PATH": "cuda",
    "TORCHINDUCTOR_CACHE_DIR": "inductor",
    "TRITON_CACHE_DIR": "triton",
}


class _Ruleset(ctypes.Structure):
    _fields_ = (("files", ctypes.c_uint64), ("network", ctypes.c_uint64), ("scoped", ctypes.c_uint64))


class _PathBeneath(ctypes.Structure):
    _pack_ = 1
    _fields_ = (("allowed", ctypes.c_uint64), ("folder", ctypes.c_int32))


def end_with_parent() -> None:
    """Has this process killed when the process that started it ends: stopped, it would never notice."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def confine(scratch: Path) -> None:
    """Confines this process, which runs in the project's folder, and all that it will start."""
    system = ctypes.CDLL(None)
    system.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    system.capset((ctypes.c_uint32 * 2)(_CAPABILITY_VERSION_3, 0), (ctypes.c_uint32 * 6)())
    _allow_writes(system, [scratch, _own_cache(scratch), *_devices(), Path("/proc/self")])


def _devices() -> list[Path]:
    """The devices that are no terminals and no disks; all where those of a GPU are made when it is first used."""
    folder = Path("/dev")
    if Path("/proc/driver/nvidia").exists() and not (folder / "nvidia-uvm").exists():
        return [folder]
    others = (path for path in folder.iterdir() if not _TERMINALS.match(path.name))
    return [path for path in others if not path.is_symlink() and not path.is_block_device()]


def _own_cache(scratch: Path) -> Path:
    """The cache that libraries of this process use from now on; the scratch folder where the project is read-only."""
    cache = Path.cwd() / _CACHE
    with suppress(OSError):
        cache.mkdir(parents=True, exist_ok=True)
    if cache.is_symlink() or not os.access(cache, os.W_OK):  # A link would lead to what is not the op's.
        cache = scratch
    os.environ |= {variable: str(cache / name) for variable, name in _CACHES.items()}
    return cache


def _allow_writes(system: ctypes.CDLL, paths: Iterable[Path]) -> None:
    """To these folders and files alone; where the kernel has no Landlock, nothing is refused."""
    version = system.syscall(_CREATE_RULESET, None, ctypes.c_size_t(0), 1)
    if version < 1:
        return
    writes = sum(rights for since, rights in _WRITES.items() if since <= version)
    rules = _Ruleset(writes, 0, _SIGNALS if version >= _SIGNALS_ABI else 0)
    size = ctypes.c_size_t(24 if version >= _SIGNALS_ABI else 8)
    ruleset = system.syscall(_CREATE_RULESET, ctypes.byref(rules), size, 0)
    if ruleset < 0:
        return
    for path in paths:
        with suppress(OSError):
            fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
            rule = _PathBeneath(writes if path.is_dir() else writes & _WRITES_OF_FILES, fd)
            system.syscall(_ADD_RULE, ruleset, _PATH_BENEATH, ctypes.byref(rule), 0)
            os.close(fd)
    system.syscall(_RESTRICT_SELF, ruleset, 0)
    os.close(ruleset)
