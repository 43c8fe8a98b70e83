"""How the system schedules a thread: its priority, the clock speeds it asks for, and whom it shares a core with."""

import ctypes
import os
import platform
import struct

_SYSTEM = ctypes.CDLL(None, use_errno=True)
# sched_getattr(2), which glibc has no function for; struct sched_attr: size, policy, flags, nice, priority, runtime,
# deadline, period, and between which shares of a core's speed its clock is chosen (uclamp).
_GETATTR = {"x86_64": 315, "aarch64": 275}.get(platform.machine())
_ATTRIBUTES = struct.Struct("IIQiIQQQII")
_PR_SCHED_CORE, _PR_SCHED_CORE_GET = 62, 0

Scheduling = tuple[int, ...]


def scheduling(thread: int) -> Scheduling:
    """What has to be equal of two threads that are compared; 0 is the calling thread. What a system does not know is
    equal.

    Raises:
        ProcessLookupError: there is no such thread.
    """
    return os.sched_getscheduler(thread), os.getpriority(os.PRIO_PROCESS, thread), *_speeds(thread), _cookie(thread)


def _speeds(thread: int) -> tuple[int, int]:
    attributes = ctypes.create_string_buffer(_ATTRIBUTES.size)
    if not _GETATTR or _SYSTEM.syscall(_GETATTR, thread, attributes, _ATTRIBUTES.size, 0):
        return 0, 0
    *_, least, most = _ATTRIBUTES.unpack(attributes.raw)
    return least, most


def _cookie(thread: int) -> int:
    """Beside a thread with a cookie none without it runs on the same core; that of the calling thread, where the system
    does not say."""
    cookie = ctypes.c_uint64()
    arguments = *map(ctypes.c_ulong, (_PR_SCHED_CORE_GET, thread, 0)), ctypes.byref(cookie)
    return _cookie(0) if _SYSTEM.prctl(_PR_SCHED_CORE, *arguments) and thread else cookie.value
