"""A process of the op, seen from the judge: started, given orders, stopped while no clock runs, and read."""

import ctypes
import json
import os
import pickle
import re
import resource
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from multiprocessing.connection import Pipe
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from kernelgen.errors import LabError
from kernelgen.protocol import SCRATCH
from kernelgen.worker import op_host
from kernelgen.worker.judge import answers
from kernelgen.worker.judge.arena import CpuArena

# kernelgen alone is imported from its own environment; `src` comes first, as in the project's own processes.
_BOOT = (
    "import sys; sys.path[0] = sys.argv[1]; import kernelgen; sys.path[0] = 'src'; "
    "from kernelgen.worker.op_host import main; main(int(sys.argv[2]), int(sys.argv[3]), sys.argv[4])"
)
# What is trusted imports nothing from the project by chance.
_BOOT_APART = (
    "import sys; sys.path[0] = sys.argv[1]; from kernelgen.worker import apart; del sys.path[0]; "
    "apart.start(sys.argv[5:]); "
    "from kernelgen.worker.op_host import main; main(int(sys.argv[2]), int(sys.argv[3]), sys.argv[4])"
)
_PACKAGE_PARENT = Path(__file__).resolve().parents[3]
# What the op has no business with: credentials, and what would tell it that a test of kernelgen runs it.
_SECRET = re.compile(r"TOKEN|SECRET|PASSW|CREDENTIAL|API_?KEY|^KERNELGEN_|^PYTEST_|^TORCH_DEVICE_BACKEND_AUTOLOAD$")
# Variables by which a user has libraries pin their threads.
_PINNING = {"OMP_PROC_BIND", "OMP_PLACES", "GOMP_CPU_AFFINITY", "KMP_AFFINITY"}
# By which PyTorch allocates memory on a GPU that CUDA does not share with another process.
_ALLOCATORS = ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF")
# What would move the cursor of a terminal that shows it.
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
# How long processes are followed that start others as fast as they are stopped.
_CHASE_S = 2.0
# How long a process that is told to stop may wait for a core to do so on.
_STOPPING_S = 0.1
# Listings without another process that end this, where there was none, and after others.
_QUIET_LISTINGS, _QUIET_AFTER_OTHERS = 2, 30
NOT_ASKED_FOR = "TypeError: the op's process gave an answer that the judge did not ask for"
_PR_SET_DUMPABLE, _PR_SET_CHILD_SUBREAPER = 4, 36


class CallError(Exception):
    """The op raised, or returned what is no result; `str()` says it in a line."""


class RaisedError(CallError):
    """The op raised: `kind` is the exception's type, `message` all that it said."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(f"{kind}: {message.partition(chr(10))[0][:1000]}")
        self.kind, self.message = kind, message


def become_judge() -> None:
    """Closes this process's memory to others, and has every process that an op leaves behind become its child.

    Raises:
        LabError: the system cannot do that.
    """
    if sys.platform != "linux":
        raise LabError("Times are taken by a process that the op cannot reach, which needs Linux; run this there.")
    system = ctypes.CDLL(None)
    system.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
    system.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


class OpProcess:
    """One process. Between orders it is stopped, with all that it started.

    A process may have itself continued, such as by a timer whose signal is SIGCONT. `ran_s` has the processor time that
    it took while it was stopped, in seconds: of one that stays so, none.

    Args:
        root: the project, where it runs.
        arena: the memory that it shares with the judge.
        confined: it may write to a scratch folder and to caches alone (worker/confinement.py).
        variables: what its environment has beside this process' own.
        apart: the projects that it imports nothing of by chance, if it is not confined.
    """

    ran_s = 0.0

    def __init__(
        self,
        root: Path,
        arena: CpuArena,
        *,
        confined: bool = False,
        variables: Mapping[str, str] | None = None,
        apart: Sequence[str] = (),
    ) -> None:
        self._connection, theirs = Pipe()
        os.set_inheritable(theirs.fileno(), True)
        self._scratch = tempfile.mkdtemp(prefix="kernelgen-op-", dir=os.environ.get(SCRATCH)) if confined else ""
        without = {name for name in os.environ if _SECRET.search(name) or name in _ALLOCATORS}
        environment = {name: value for name, value in os.environ.items() if name not in without}
        environment |= variables or {}
        arguments = [str(_PACKAGE_PARENT), str(theirs.fileno()), str(arena.fd), self._scratch]
        if confined:
            environment["TMPDIR"] = self._scratch
            command = [sys.executable, "-c", _BOOT, *arguments]
        else:
            command = [sys.executable, "-S", "-c", _BOOT_APART, *arguments, *apart]
        self._process = subprocess.Popen(
            command,
            cwd=root,
            stdin=subprocess.DEVNULL,
            stdout=2,
            pass_fds=(theirs.fileno(), arena.fd),
            env=environment,
            start_new_session=True,
        )
        theirs.close()
        self.pid = self._process.pid
        self._stopped = False
        self._ordered = "", ""
        self._children: list[int] = []
        # By process, the seconds that it had taken when it was stopped.
        self._taken_s: dict[int, float] = {}

    # ---- Orders -----------------------------------------------------------------------------------------------

    def order(self, do: str, **arguments: Any) -> None:
        """Gives an order without waiting for it."""
        self._ordered = do, arguments.get("call", "")
        self._see_what_ran()
        self._proceed()
        with suppress(OSError):  # Of a process that died; `answer` says so.
            self._connection.send_bytes(pickle.dumps({"do": do, **arguments}))

    def answer(self) -> dict[str, Any]:
        """The answer to the last order.

        Raises:
            CallError: it raised, or gave an answer that nobody asked for.
        """
        message = self._receive()
        self.stop()
        answer = self._unpacked(message, op_host.OK)
        if not answers.is_asked_for(answer, *self._ordered):
            raise CallError(NOT_ASKED_FOR)
        return answer

    def ask(self, do: str, **arguments: Any) -> dict[str, Any]:
        self.order(do, **arguments)
        return self.answer()

    def go(self, numbers: Sequence[int] = ()) -> tuple[float, float, list[int]]:
        """Runs what was armed, or the calls of these numbers: seconds by the judge's clock, by the process's own, and
        the results' addresses.

        The clock runs until the process is stopped: what it does behind its reply is in its time, too.
        """
        self._see_what_ran()
        start = time.perf_counter()
        self._send_go(numbers)
        message = self._receive()
        seconds = self.stop() - start
        payload = self._unpacked(message, op_host.TIMED)
        own, *addresses = struct.unpack(f"d{len(payload) // 8 - 1}q", payload)
        return seconds, own, addresses

    def _send_go(self, numbers: Sequence[int]) -> None:
        with suppress(OSError):
            self._connection.send_bytes(op_host.GO + struct.pack(f"{len(numbers)}i", *numbers))
        self._proceed()

    def _receive(self) -> bytes:
        try:
            return self._connection.recv_bytes()
        except (EOFError, OSError):
            self._end_alike()

    @staticmethod
    def _unpacked(message: bytes, kind: bytes) -> Any:
        """The message is the op's word: it is data, whatever it says."""
        head, payload = message[:1], message[1:]
        try:
            if head == op_host.FAILED:
                problem = json.loads(payload)
                raise RaisedError(*(_CONTROL.sub("", str(problem[name])) for name in ("type", "message")))
            if head == kind and kind == op_host.TIMED and len(payload) % 8 == 0 and payload:
                return payload
            if head == kind and kind == op_host.OK and isinstance(answer := json.loads(payload), dict):
                return answer
        except (ValueError, KeyError, TypeError, RecursionError):
            pass
        raise CallError(NOT_ASKED_FOR)

    # ---- Stopping ---------------------------------------------------------------------------------------------

    def stop(self) -> float:
        """Returns when neither the process nor any that it started runs; and when that was, by `time.perf_counter`."""
        if self._stopped:
            return time.perf_counter()
        os.kill(self.pid, signal.SIGSTOP)
        _, status = os.waitpid(self.pid, os.WUNTRACED)
        end = time.perf_counter()
        if not os.WIFSTOPPED(status):
            self._ended(status)
        self._stopped = True
        self._children = signal_all(signal.SIGSTOP, lambda: descendants(self.pid))
        end = time.perf_counter() if self._children else end
        stopped = (self.pid, *filter(_comes_to_a_stop, self._children))
        self._taken_s = {pid: taken for pid in stopped if (taken := _cpu_seconds(pid)) is not None}
        return end

    def _proceed(self) -> None:
        if self._stopped:
            for pid in (*self._children, self.pid):
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGCONT)
            self._stopped = False

    def _see_what_ran(self) -> None:
        for pid, before in self._taken_s.items():
            now = _cpu_seconds(pid)
            self.ran_s += now - before if now is not None else 1.0  # What is stopped does not end.
        self._taken_s = {}

    def settle(self, seconds: float) -> None:
        """Lets it run for a while, and stops it again."""
        self._see_what_ran()
        self._proceed()
        time.sleep(seconds)
        self.stop()

    def move(self, cores: set[int]) -> None:
        """Has all of its threads run on these cores; or the first alone, where the user has libraries pin theirs."""
        for thread in [self.pid] if _PINNING & os.environ.keys() else self._threads():
            with suppress(OSError):
                os.sched_setaffinity(thread, cores)

    def is_held_back(self) -> bool:
        """Whether a thread of it may run on fewer cores than the judge, or comes after it: any process of the same user
        can do that to it, such as a rival that it is compared with."""
        if _PINNING & os.environ.keys():
            return False
        cores, own = os.sched_getaffinity(0), (os.sched_getscheduler(0), os.getpriority(os.PRIO_PROCESS, 0))
        for thread in self._threads():
            with suppress(ProcessLookupError):
                theirs = os.sched_getscheduler(thread), os.getpriority(os.PRIO_PROCESS, thread)
                if theirs != own or not cores <= os.sched_getaffinity(thread):
                    return True
        return False

    def _threads(self) -> list[int]:
        return [*map(int, os.listdir(f"/proc/{self.pid}/task"))]

    def close(self) -> None:
        signal_all(signal.SIGKILL, lambda: descendants(self.pid))
        with suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)
        with suppress(ChildProcessError):
            os.waitpid(self.pid, 0)
        if self._scratch:
            shutil.rmtree(self._scratch, ignore_errors=True)

    def _end_alike(self) -> None:
        """The op's process died: so does this one, in the same way, since the host knows what to do then."""
        _, status = os.waitpid(self.pid, 0)
        while os.WIFSTOPPED(status):
            _, status = os.waitpid(self.pid, 0)
        self._ended(status)

    def _ended(self, status: int) -> None:
        sys.stderr.flush()
        shutil.rmtree(self._scratch, ignore_errors=True)
        if os.WIFSIGNALED(status):
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            number = os.WTERMSIG(status)
            if number != signal.SIGKILL:
                signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
        os._exit(os.WEXITSTATUS(status))

    # ---- Reading ----------------------------------------------------------------------------------------------

    def places_in(self, arena: CpuArena, addresses: Sequence[int]) -> list[int | None]:
        """Where in an arena these addresses lie, in bytes; None for one that lies elsewhere. The system says it, since
        the process may map the arena as often as it likes."""
        inode, mappings = str(os.fstat(arena.fd).st_ino), []
        for line in Path(f"/proc/{self.pid}/maps").read_text().splitlines():
            bounds, _, offset, _, file, *name = line.split()
            if file == inode and name[:1] == ["/memfd:inputs"]:
                begin, end = (int(bound, 16) for bound in bounds.split("-"))
                mappings.append((begin, end, int(offset, 16)))
        return [
            next((address - begin + offset for begin, end, offset in mappings if begin <= address < end), None)
            for address in addresses
        ]

    def read(self, address: int, nbytes: int) -> Tensor:
        """A copy of its memory, in bytes.

        Raises:
            CallError: there is no such memory.
        """
        copy = torch.empty(nbytes, dtype=torch.uint8)
        got = 0
        while got < nbytes:
            ours, theirs = _Span(copy.data_ptr() + got, nbytes - got), _Span(address + got, nbytes - got)
            count = _SYSTEM.process_vm_readv(self.pid, ctypes.byref(ours), 1, ctypes.byref(theirs), 1, 0)
            if count <= 0:
                reason = os.strerror(ctypes.get_errno())
                raise CallError(
                    f"RuntimeError: its result's memory cannot be read ({reason}): it should be a plain tensor"
                )
            got += count
        return copy


class _Span(ctypes.Structure):
    _fields_ = (("base", ctypes.c_void_p), ("length", ctypes.c_size_t))


_SYSTEM = ctypes.CDLL(None, use_errno=True)
if hasattr(_SYSTEM, "process_vm_readv"):
    _SYSTEM.process_vm_readv.restype = ctypes.c_ssize_t
    _SYSTEM.process_vm_readv.argtypes = (
        *(ctypes.c_int, ctypes.c_void_p, ctypes.c_ulong),
        *(ctypes.c_void_p, ctypes.c_ulong, ctypes.c_ulong),
    )


def _cpu_seconds(pid: int) -> float | None:
    """The processor time that a process took, all of its threads together; None if there is none."""
    try:
        # A clock's number as Linux makes it of a process: CPUCLOCK_SCHED, or clock_getcpuclockid(3).
        return time.clock_gettime(~pid << 3 | 2)
    except OSError:
        return None


def _comes_to_a_stop(pid: int) -> bool:
    """Whether a process that was told to stop does so soon: it takes some processor time to, later on a busy machine.
    One that was about to end ends."""
    end = time.monotonic() + _STOPPING_S
    with suppress(OSError, IndexError):
        while (state := Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]) not in "TZX":
            if time.monotonic() > end:
                return True  # So its time says that it goes on.
        return state == "T"
    return False


def descendants(pid: int) -> list[int]:
    """The processes that a process started, and those that they did."""
    children = _children(pid)
    return children + [grandchild for child in children for grandchild in descendants(child)]


def signal_all(number: int, processes: Callable[[], list[int]]) -> list[int]:
    """Sends a signal that ends or stops to processes that are listed again and again, until several listings in turn
    have no other among them: one that has it starts none any more, but it may have before, and have ended; and a list
    may lack a process whose parent ends meanwhile. Returns those that got it."""
    reached: set[int] = set()
    end, quiet, needed = time.monotonic() + _CHASE_S, 0, _QUIET_LISTINGS
    while time.monotonic() < end and quiet < needed:
        new = [pid for pid in processes() if pid not in reached]
        if new:
            quiet, needed = 0, _QUIET_AFTER_OTHERS
        else:
            quiet += 1
        for pid in new:
            with suppress(ProcessLookupError):
                os.kill(pid, number)
                reached.add(pid)
    return list(reached)


def _children(pid: int | str) -> list[int]:
    children: list[int] = []
    with suppress(OSError):
        for thread in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{thread}/children", "rb") as file:
                children += map(int, file.read().split())
    return children


def end_orphans(known: Sequence[int]) -> int:
    """Ends the processes that ops left behind, which lost their parent; returns how many there were.

    They are children of this process that it did not start, and as unprivileged as only an op's are.
    """

    def left_behind() -> list[int]:
        orphans = [pid for pid in _children("self") if pid not in known and _is_unprivileged(pid)]
        return orphans + [pid for orphan in orphans for pid in descendants(orphan)]

    ended = signal_all(signal.SIGKILL, left_behind)
    for pid in ended:
        with suppress(OSError):  # One that ended already, too: it is a child of this process until somebody waits.
            os.waitpid(pid, 0)
    return len(ended)


def _is_unprivileged(pid: int) -> bool:
    with suppress(OSError):
        return "NoNewPrivs:\t1" in Path(f"/proc/{pid}/status").read_text()
    return False
