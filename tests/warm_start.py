"""Starts Python processes that need torch as forks of a process that has imported it, which takes a tenth of the time.

`activate` lets `subprocess` start kernelgen's workers, the processes of ops, and a project's build, tests and programs
from a warm process: a child of this one that imported torch and packages that take long, and nothing else. The new
process is a child of this one like any other, with the pipes, the session, the folder, the variables and the exit code
that were asked for. One that starts such processes in its turn, as a worker of pytest does, has a warm process of its
own, forked before any other code ran in it. What a fork cannot have (variables that Python, the linker or a library
reads when it is loaded) starts as always, as does all where the system is not Linux.
`cold` turns it off.
"""

from __future__ import annotations

import atexit
import ctypes
import fcntl
import gc
import importlib
import inspect
import json
import os
import re
import runpy
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import traceback
import types
import weakref
from collections.abc import Mapping, Sequence
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

# The commands that import torch sooner or later: kernelgen's own, its workers and the ops' processes; what a test has
# Python run that imports torch or a project; and a project's build and tests.
_HOSTS = re.compile(r"from kernelgen\.worker\.protocol import main")
_LEAVES = re.compile(
    r"from kernelgen\.worker\.(op_host import main|tune import|confinement import confine)|^from tests\.tune\."
    r"|^(.*; *)?(import|from) [\w., ]*\b(torch|\w+_kernels)\b",
    re.MULTILINE,
)
# What a warm process imports: torch, and what `torch.compile` imports when it is first called, which takes longer.
# Verbs import the other packages; a process that starts verbs alone takes no part of that.
_TORCH = ("torch",)
_MODULES = (*_TORCH, "torch._inductor.compile_fx", "torch.export", "torch.testing._internal.optests")
_MODULES += ("optuna", "scipy.stats", "sklearn.gaussian_process")
# Where PYTHONPATH holds another in the place of one of these packages, a process starts cold.
_IMPORTED = ("ninja", "numpy", "optuna", "scipy", "setuptools", "sklearn", "torch")
_PROGRAMS = (["setup.py"], ["-m", "build_tools"], ["-m", "pytest"])
# A worker of pytest-xdist, which imports torch to collect tests, and starts all others.
_TEST_WORKER = ["-u", "-c", "import sys;exec(eval(sys.stdin.readline()))"]
# Verbs that start such workers.
_STARTERS = {"bench", "compare", "fuzz", "tune", "verdict"}
# Read once, by Python or the dynamic linker, when a process starts; but for those that `_become` heeds.
_READ_AT_START = re.compile(r"^(LD_|PYTHON|ATEN_|MKL_|OMP_|GOMP_|KMP_|OPENBLAS_|MALLOC_|TORCH_(?!CUDA_ARCH|EXT))")
_HEEDED = {"PYTHONPATH", "PYTHONUNBUFFERED", "PYTHONDONTWRITEBYTECODE", "OMP_NUM_THREADS", "TORCH_CPP_LOG_LEVEL"}
# Set by scikit-learn for Intel's OpenMP, which torch does not use on Linux: they change nothing.
_HEEDED |= {"KMP_DUPLICATE_LIB_OK", "KMP_INIT_AT_FORK"}
# Parameters of mallopt(3) by the variables that set them when a process starts.
_MALLOC = {
    "MALLOC_TRIM_THRESHOLD_": -1,
    "MALLOC_TOP_PAD_": -2,
    "MALLOC_MMAP_THRESHOLD_": -3,
    "MALLOC_PERTURB_": -6,
}
_HEEDED |= _MALLOC.keys()
_PR_SET_CHILD_SUBREAPER, _PR_GET_CHILD_SUBREAPER = 36, 37
_HUGE_PAGE = 1 << 21
_MADV_COLLAPSE = 25
_PIPES = ("p2cread", "p2cwrite", "c2pread", "c2pwrite", "errread", "errwrite")

# A process inherits which of these are ignored; its handlers are Python's own, whatever the warm process began with.
_SIGNALS = {signal.SIGINT: signal.default_int_handler, signal.SIGHUP: signal.SIG_DFL}

# For a process that ends within minutes: searching for garbage took a sixth of its time.
RARE_COLLECTIONS = 50_000, 20, 20

_execute_child = subprocess.Popen._execute_child
_getmodule = inspect.getmodule
_lock = threading.RLock()
# The socket to the warm process, where there is one, and whether this process may start one.
_warm: socket.socket | None = None
_may_start_one = True
_enabled = False
_forks_programs = True
# The variables that this process had at first.
_environment: dict[str, str] = {}


def activate(programs: bool = True) -> None:
    """Has `subprocess` start what it can from a warm process, which begins when the first such process does.

    Without `programs`, a project's build and tests start as always: a single one gains nothing by a warm process, which
    has imported torch alone then.
    """
    global _enabled, _forks_programs, _may_start_one
    if sys.platform == "linux":
        _enabled, _forks_programs, _may_start_one = True, programs, True
        _environment.update(os.environ)
        subprocess.Popen._execute_child = _execute_child_warmly


def kernelgen() -> list[str]:
    """Python's arguments that run `kernelgen`, whose verbs start several processes each, from a shell or a script."""
    here = os.path.dirname(os.path.abspath(__file__))
    code = (
        f"import runpy, sys; sys.path.insert(0, {here!r}); import warm_start; del sys.path[0]; "
        "warm_start.activate(programs=False); runpy.run_module('kernelgen', run_name='__main__', alter_sys=True)"
    )
    return ["-c", code]


@contextmanager
def cold():
    """Every process starts as always meanwhile."""
    global _enabled
    before, _enabled = _enabled, False
    try:
        yield
    finally:
        _enabled = before


# ---- The process that starts others ---------------------------------------------------------------------------------


def _execute_child_warmly(self: subprocess.Popen, *arguments: Any) -> None:
    call = inspect.signature(_execute_child).bind(self, *arguments).arguments
    if not _enabled or not _can_be_forked(call):
        _execute_child(self, *arguments)
        return
    given = (call[name] for name in ("p2cread", "c2pwrite", "errwrite"))
    streams = [number if fd == -1 else fd for number, fd in enumerate(given)]
    order = {
        "arguments": _arguments(call["args"]),
        "folder": os.path.abspath(os.fsdecode(call["cwd"] or ".")),
        "environment": dict(os.environ if call["env"] is None else call["env"]),
        "session": bool(call["start_new_session"]),
        "ignored": [number for number in _SIGNALS if signal.getsignal(number) is signal.SIG_IGN],
        "fds": sorted(call["pass_fds"]),
    }
    with _lock:
        self.pid = _ask(order, [*streams, *order["fds"]])
    self._child_created = True
    self._close_pipe_fds(*(call[name] for name in _PIPES))


def _can_be_forked(call: dict[str, Any]) -> bool:
    args = call["args"]
    if isinstance(args, (str, bytes, os.PathLike)) or call["shell"] or call["preexec_fn"] or call["executable"]:
        return False
    arguments = _arguments(args)
    if os.fsdecode(args[0]) != sys.executable or len(arguments) < 2 or _kind(arguments) is None:
        return False
    environment = os.environ if call["env"] is None else call["env"]
    if any(name in _environment and name not in environment for name in ("OMP_NUM_THREADS", *_MALLOC)):
        return False  # The fork has it already.
    if _is_shadowed(environment) or _read_at_start(environment) != _read_at_start(_environment):
        return False
    return _warm is not None or _may_start_one


def _arguments(args: Sequence[str | bytes | os.PathLike]) -> list[str]:
    """Python's arguments, without what it reads when it starts: a fork has the site's modules already."""
    arguments = [os.fsdecode(part) for part in args[1:]]
    return arguments[arguments[:1] == ["-S"] :]


def _is_shadowed(environment: Mapping[str, str]) -> bool:
    """Whether PYTHONPATH holds another package in place of one that a warm process has imported."""
    folders = environment.get("PYTHONPATH", "").split(os.pathsep)
    return any(os.path.exists(os.path.join(folder, name)) for folder in folders if folder for name in _IMPORTED)


def _read_at_start(variables: Mapping[str, str]) -> frozenset[tuple[str, str]]:
    return frozenset(
        (name, value) for name, value in variables.items() if _READ_AT_START.match(name) and name not in _HEEDED
    )


def _kind(arguments: Sequence[str]) -> str | None:
    """Whether a command starts others in its turn ("host"), or none ("leaf")."""
    if arguments == _TEST_WORKER:
        return "host"
    if arguments[0] == "-c":
        return "host" if _HOSTS.search(arguments[1]) else "leaf" if _LEAVES.search(arguments[1]) else None
    if _forks_programs and any(arguments[: len(program)] == program for program in _PROGRAMS):
        return "leaf"
    return "host" if arguments[:2] == ["-m", "kernelgen"] and set(arguments) & _STARTERS else None


def _ask(order: dict[str, Any], fds: list[int]) -> int:
    """Has the warm process fork one that becomes a child of this one; returns its pid."""
    global _warm
    if _warm is None:
        _warm = _start_warm_process()
    system = ctypes.CDLL(None)
    before = ctypes.c_int()
    system.prctl(_PR_GET_CHILD_SUBREAPER, ctypes.byref(before))
    # The new process's parent ends at once; then this one is its parent.
    system.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    try:
        socket.send_fds(_warm, [json.dumps(order).encode() + b"\n"], fds)
        answer = b""
        while not answer.endswith(b"\n"):
            part = _warm.recv(100)
            if not part:
                raise RuntimeError("The warm process ended.")
            answer += part
    except BaseException:  # Such as Ctrl-C: the answer that is still to come would be taken for the next one's.
        _warm.close()
        _warm = None
        raise
    finally:
        system.prctl(_PR_SET_CHILD_SUBREAPER, before.value, 0, 0, 0)
    return int(answer)


def _start_warm_process() -> socket.socket:
    ours, theirs = socket.socketpair()
    code = "import sys; sys.path.insert(0, sys.argv[1]); import warm_start; warm_start.serve_first(*sys.argv[2:])"
    modules = _MODULES if _forks_programs else _TORCH
    here = os.path.dirname(os.path.abspath(__file__))
    environment = {name: value for name, value in _environment.items() if name != "PYTHONPATH"}
    with cold():
        subprocess.Popen(
            [sys.executable, "-c", code, here, str(theirs.fileno()), *modules],
            pass_fds=[theirs.fileno()],
            cwd="/",  # Not in the folder of a test that looks for the processes that are left there.
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        ).returncode = 0  # It ends when this process does: nobody waits for it.
    theirs.close()
    return ours


# ---- The warm process -----------------------------------------------------------------------------------------------


def serve_first(fd: str, *modules: str) -> None:
    _environment.update(os.environ)
    gc.disable()
    for module in modules:
        if find_spec(module.partition(".")[0]):  # A machine that only runs kernels may lack what tunes them.
            importlib.import_module(module)
    gc.freeze()
    gc.enable()
    inspect.getmodule = _module_of
    _forget_finalizers()
    _take_huge_pages()
    del sys.path[:2]  # The folder of this file, and where it was started: each fork has its own.
    serve(socket.socket(fileno=int(fd)))


def _module_of(thing: Any, filename: str | None = None) -> types.ModuleType | None:
    """`inspect.getmodule`, which looks for a frame's module among the files of all 3,700 that a fork begins with.

    PyTorch asks it when Python registers an operator's shapes: 0.1 s in each process that imports a project.
    """
    if isinstance(thing, types.FrameType):
        module = sys.modules.get(thing.f_globals.get("__name__", ""))
        if module is not None and getattr(module, "__file__", None) == thing.f_code.co_filename:
            return module
    return _getmodule(thing, filename)


def _forget_finalizers() -> None:
    """Lets forks end without what imported modules clean up at the end of a process.

    PyTorch's takes its Python operators out of its tables, table by table: 40 ms a process, most of them for pages that
    it writes to.
    """
    for finalizer in list(weakref.finalize._registry):
        finalizer.atexit = False


def _take_huge_pages() -> None:
    """Moves memory to pages of 2 MiB where the kernel can (Linux 6.1): a fork copies tables of far fewer pages then.

    A fork, and the one before it that ends at once, take 35 ms less.
    """
    system = ctypes.CDLL(None)
    for line in Path("/proc/self/maps").read_text().splitlines():
        words = line.split()
        if words[1] == "rw-p" and words[5:] in ([], ["[heap]"]):
            begin, end = (int(address, 16) for address in words[0].split("-"))
            begin = -(-begin // _HUGE_PAGE) * _HUGE_PAGE
            length = end // _HUGE_PAGE * _HUGE_PAGE - begin
            if length > 0:
                system.madvise(ctypes.c_void_p(begin), ctypes.c_size_t(length), _MADV_COLLAPSE)


def serve(orders: socket.socket) -> None:
    """Forks a process for each order, until the process that gives orders ends."""
    unread = b""
    fds: list[int] = []
    while True:
        part, more, _, _ = socket.recv_fds(orders, 1 << 20, 50)
        if not part:
            os._exit(0)
        fds += more
        unread += part
        if not unread.endswith(b"\n"):
            continue
        order, unread = json.loads(unread), b""
        read, write = os.pipe()
        middle = os.fork()
        if middle == 0:
            parent = os.getpid()  # Asked here, since the child may run only after its parent has ended.
            pid = os.fork()
            if pid == 0:
                os.close(read)
                os.close(write)
                orders.close()
                _become(order, fds, parent)
            os.write(write, str(pid).encode())
            os._exit(0)
        os.close(write)
        os.waitpid(middle, 0)
        pid = os.read(read, 100)
        os.close(read)
        for fd in fds:
            os.close(fd)
        fds = []
        orders.sendall(pid + b"\n")


# ---- The new process ------------------------------------------------------------------------------------------------


def _become(order: dict[str, Any], fds: list[int], middle: int) -> None:
    """Does what the command does, and ends."""
    code = 1
    try:
        while os.getppid() == middle:
            time.sleep(0.0005)
        if order["session"]:
            os.setsid()
        arguments = order["arguments"]
        _keep_a_warm_process(_kind(arguments) == "host", fds)
        _take_fds(fds, [0, 1, 2, *order["fds"]])
        os.chdir(order["folder"])
        _take_environment(order["environment"])
        tempfile.tempdir = None  # What was imported may have asked for it, with other variables.
        gc.set_threshold(*RARE_COLLECTIONS)
        for number, handler in _SIGNALS.items():
            signal.signal(number, signal.SIG_IGN if number in order["ignored"] else handler)
        code = _run(arguments)
    except BaseException:
        traceback.print_exc()
    finally:
        with suppress(BaseException):
            threading._shutdown()
            atexit._run_exitfuncs()
        for stream in (sys.stdout, sys.stderr):
            with suppress(Exception):
                stream.flush()
        os._exit(code)


def _keep_a_warm_process(starts_others: bool, fds: list[int]) -> None:
    """Forks a warm process for this one, before anything of its own is here."""
    global _enabled, _may_start_one, _warm
    _enabled, _may_start_one = starts_others, False
    if not starts_others:
        return
    subprocess.Popen._execute_child = _execute_child_warmly
    ours, theirs = socket.socketpair()
    if os.fork() == 0:
        ours.close()
        for fd in fds:
            os.close(fd)
        serve(theirs)
    theirs.close()
    _warm = ours


def _take_fds(fds: list[int], numbers: list[int]) -> None:
    """Moves file descriptors to the numbers that the command expects."""
    global _warm
    busy = {*fds, *numbers}
    if _warm is not None and _warm.fileno() in numbers:
        moved = fcntl.fcntl(_warm.fileno(), fcntl.F_DUPFD_CLOEXEC, max(busy) + 1)
        _warm.close()
        _warm = socket.socket(fileno=moved)
        busy.add(moved)
    moved_up = []
    for fd in fds:
        moved_up.append(fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, max(busy) + 1))
        os.close(fd)
    for fd, number in zip(moved_up, numbers, strict=True):
        os.dup2(fd, number)
        os.close(fd)


def _take_environment(variables: dict[str, str]) -> None:
    os.environ.clear()
    os.environ.update(variables)
    sys.dont_write_bytecode = bool(variables.get("PYTHONDONTWRITEBYTECODE"))
    unbuffered = bool(variables.get("PYTHONUNBUFFERED"))
    for number, name in ((0, "stdin"), (1, "stdout"), (2, "stderr")):
        stream = open(number, "r" if number == 0 else "w", closefd=False)  # noqa: SIM115 - it lasts as long as we do
        if number:
            stream.reconfigure(line_buffering=number == 2 or unbuffered, write_through=unbuffered)
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)
    for name, parameter in _MALLOC.items():
        if name in variables:
            # Larger numbers than fit mean "never".
            ctypes.CDLL(None).mallopt(parameter, min(int(variables[name]), 2**31 - 1))
    # torch reads this one again.
    ctypes.CDLL("libc10.so")._ZN3c1011initLoggingEv()
    if variables.get("OMP_NUM_THREADS"):
        sys.modules["torch"].set_num_threads(int(variables["OMP_NUM_THREADS"]))


def _run(arguments: list[str]) -> int:
    """What the interpreter does with its arguments; returns its exit code."""
    added = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
    sys.path[:0] = added
    main = types.ModuleType("__main__")
    sys.modules["__main__"] = main
    if arguments == _TEST_WORKER:
        arguments = arguments[1:]
        sys.modules["tests.warm_start"] = sys.modules[__name__]  # Which holds the warm process.
    try:
        if arguments[0] == "-c":
            sys.path.insert(0, "")
            sys.argv = ["-c", *arguments[2:]]
            exec(compile(arguments[1], "<string>", "exec"), main.__dict__)
        elif arguments[0].endswith(".py"):
            sys.path.insert(0, os.path.dirname(os.path.abspath(arguments[0])))
            sys.argv = list(arguments)
            runpy.run_path(arguments[0], run_name="__main__")
        else:
            sys.path.insert(0, os.getcwd())
            sys.argv = ["-m", *arguments[2:]]
            runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
    except SystemExit as end:
        if end.code is None or isinstance(end.code, int):
            return end.code or 0
        print(end.code, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        traceback.print_exc()
        sys.stderr.flush()
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    except BaseException:
        traceback.print_exc()
        return 1
    return 0
