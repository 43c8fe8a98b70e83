"""A process of the op, seen from the judge: started, given orders, stopped while no clock runs, and read."""

import ctypes
import errno
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
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from multiprocessing.connection import Pipe
from pathlib import Path
from typing import Any

from torch import Tensor

from kernelgen.errors import LabError
from kernelgen.process_tree import descendants, signal_all
from kernelgen.protocol import ALLOCATORS, SCRATCH
from kernelgen.worker import op_host
from kernelgen.worker.judge import answers, process_memory
from kernelgen.worker.judge.arena import CpuArena
from kernelgen.worker.judge.errors import NOT_ASKED_FOR, CallError, RaisedError
from kernelgen.worker.judge.scheduling import scheduling
from kernelgen.worker.judge.stopping import cpu_seconds, that_come_to_a_stop, times_at_rest, told_to_stop

# kernelgen alone is imported from its own environment; `src` comes first, as in the project's own processes. With
# `-S` `main` confines the process and starts Python again, without: a `sitecustomize` may be the project's.
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
# What moves a terminal's cursor or turns its text around, and the halves of characters, which nothing can print.
_UNPRINTABLE = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
# What an op's process says of the system that it runs on, by signs in the message, and what to do then.
_SIGNS_OF_THE_SYSTEM = {
    os.strerror(errno.ENOSPC): "The op's process found a disk full: make room, and try again",
    "busy or unavailable": "The GPU takes no process beside the judge's: set its compute mode by nvidia-smi -c DEFAULT",
}
# The bytes of an answer, and how long a process may take to end that has closed its connection.
MOST_OF_AN_ANSWER, _ENDING_S = 2**26, 10.0
# Each of an op's processes is looked at whenever it is stopped.
MOST_CHILDREN = 200
# Processor time that a process may take until it is at rest, and afterwards: a thread that wakes takes more.
LATE_S, AT_REST_S = 2e-5, 1e-6
# It goes on in so many samples before it counts, and in this share of them: of fewer, no median tells.
FEW_SAMPLES, SHARE_OF_SAMPLES = 3, 0.25
UNTIMED = "this system does not say whether its process went on while it was stopped"
ENDED = "a process that it had started ended while it was stopped, so nobody knows what that did meanwhile"
_PR_SET_DUMPABLE, _PR_SET_CHILD_SUBREAPER = 4, 36


def become_judge() -> None:
    """Closes this process's memory to others, and has every process that an op leaves behind become its child.

    Raises:
        LabError: the system cannot do that.
    """
    if sys.platform != "linux":
        raise LabError("Times are taken by a process that the op cannot reach, which needs Linux; run this there.")
    system = ctypes.CDLL(None)
    settings = (_PR_SET_DUMPABLE, 0), (_PR_SET_CHILD_SUBREAPER, 1)
    if any(system.prctl(setting, value, 0, 0, 0) for setting, value in settings) or not os.path.isdir(
        "/proc/self/task"
    ):
        raise LabError("The judge has to see what an op starts, for which this system lacks /proc or prctl(2).")


class OpProcess:
    """One process. Between orders it is stopped, with all that it started.

    A process may have itself continued, such as by a timer whose signal is SIGCONT: then it takes processor time while
    it is stopped. `doubt` says so where that cannot be told.

    Args:
        root: the project, where it runs.
        arena: the memory that it shares with the judge.
        confined: it may write to a scratch folder and to caches alone (worker/confinement.py).
        variables: what its environment has beside this process' own.
        apart: the projects that it imports nothing of by chance, if it is not confined.
    """

    doubt: str | None = None
    _samples = _samples_ahead = 0
    _ran = False

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
        without = {name for name in os.environ if _SECRET.search(name) or name in ALLOCATORS}
        environment = {name: value for name, value in os.environ.items() if name not in without}
        environment |= variables or {}
        arguments = [str(_PACKAGE_PARENT), str(theirs.fileno()), str(arena.fd), self._scratch]
        if confined:
            environment["TMPDIR"] = self._scratch
            command = [sys.executable, "-S", "-c", _BOOT, *arguments]
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
        self._late_s = 0.0

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
        self._samples += 1
        self._samples_ahead += self._ran
        self._ran = False
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
            return self._connection.recv_bytes(MOST_OF_AN_ANSWER)
        except (EOFError, OSError):
            self._end_alike()

    @staticmethod
    def _unpacked(message: bytes, kind: bytes) -> Any:
        """The message is the op's word: it is data, whatever it says."""
        head, payload = message[:1], message[1:]
        try:
            if head == op_host.FAILED:
                problem = _printable(json.loads(payload))
                error = RaisedError(*(str(problem[name]) for name in ("type", "message")))
                for sign, advice in _SIGNS_OF_THE_SYSTEM.items():
                    if sign in error.message:
                        raise LabError(f"{advice} ({error}).")
                raise error
            if head == kind and kind == op_host.TIMED and len(payload) % 8 == 0 and payload:
                return payload
            if head == kind and kind == op_host.OK and isinstance(answer := _printable(json.loads(payload)), dict):
                return answer
        except (ValueError, KeyError, TypeError, RecursionError):
            pass
        raise CallError(NOT_ASKED_FOR)

    # ---- Stopping ---------------------------------------------------------------------------------------------

    def stop(self) -> float:
        """Returns when neither the process nor any that it started runs; and when that was, by `time.perf_counter`.

        Raises:
            CallError: it does not stop, or has more processes than can be followed.
        """
        if self._stopped:
            return time.perf_counter()
        with told_to_stop(self.pid):
            _, status = os.waitpid(self.pid, os.WUNTRACED)
            end = time.perf_counter()
        if not os.WIFSTOPPED(status):
            self._ended(status)
        self._stopped = True
        self._children = signal_all(signal.SIGSTOP, lambda: descendants(self.pid))
        end = time.perf_counter() if self._children else end
        if len(self._children) > MOST_CHILDREN:
            raise CallError(f"it has {len(self._children)} processes that it never waited for, beside its own")
        stopped = (self.pid, *that_come_to_a_stop(self._children))
        self._taken_s, self._late_s = times_at_rest(stopped)
        if self.pid not in self._taken_s:
            self.doubt = UNTIMED
        return end

    def _proceed(self) -> None:
        if self._stopped:
            for pid in (*self._children, self.pid):
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGCONT)
            self._stopped = False

    def _see_what_ran(self) -> None:
        self._ran |= self._late_s > LATE_S
        for pid, before in self._taken_s.items():
            if (now := cpu_seconds(pid)) is not None:
                self._ran |= now - before > AT_REST_S
            else:
                self.doubt = ENDED
        self._taken_s, self._late_s = {}, 0.0

    def count_anew(self) -> None:
        """The samples, and those before which it goes on; nothing is in doubt."""
        self._samples = self._samples_ahead = 0
        self._ran, self.doubt = False, None

    def goes_on(self) -> bool:
        """Whether it runs while it is stopped, before so many of its samples that it could gain by that."""
        return self._samples_ahead > max(FEW_SAMPLES, SHARE_OF_SAMPLES * self._samples)

    def settle(self, seconds: float) -> None:
        """Lets it run for a while, and stops it again."""
        self._see_what_ran()
        self._proceed()
        time.sleep(seconds)
        self.stop()

    def move(self, cores: Collection[int]) -> None:
        """Has all of its threads run on these cores; or the first alone, where the user has libraries pin theirs."""
        for thread in [self.pid] if _PINNING & os.environ.keys() else self._threads():
            with suppress(OSError):
                os.sched_setaffinity(thread, cores)

    def is_held_back(self) -> bool:
        """Whether a thread of it may run on fewer cores than the judge, or comes after it: any process of the same user
        can do that to it, such as a rival that it is compared with.

        Raises:
            CallError: it hides its threads.
        """
        if _PINNING & os.environ.keys():
            return False
        cores, own = os.sched_getaffinity(0), scheduling(0)
        for thread in self._threads():
            with suppress(ProcessLookupError):
                if scheduling(thread) != own or not cores <= os.sched_getaffinity(thread):
                    return True
        return False

    def _threads(self) -> list[int]:
        try:
            return [*map(int, os.listdir(f"/proc/{self.pid}/task"))]
        except OSError as error:
            raise process_memory.refusal(error.errno) from None

    def close(self) -> None:
        signal_all(signal.SIGKILL, lambda: descendants(self.pid))
        with suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)
        with suppress(ChildProcessError):
            os.waitpid(self.pid, 0)
        if self._scratch:
            shutil.rmtree(self._scratch, ignore_errors=True)

    def _end_alike(self) -> None:
        """The op's process died: so does this one, in the same way, since the host knows what to do then. One that goes
        on is killed: nobody hears what it says any more."""
        end = time.monotonic() + _ENDING_S
        while not (ended := os.waitpid(self.pid, os.WNOHANG))[0]:
            if time.monotonic() > end:
                print("it closed its connection to the judge, or sent no answer", file=sys.stderr)
                os.kill(self.pid, signal.SIGKILL)
                end = float("inf")
            time.sleep(0.01)
        self._ended(ended[1])

    def _ended(self, status: int) -> None:
        sys.stderr.flush()
        signal_all(signal.SIGKILL, lambda: descendants(os.getpid()))  # What it left has this process for a parent now.
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
        inode = str(os.fstat(arena.fd).st_ino)
        mappings = [
            (begin, end, offset)
            for begin, end, offset, file, path in process_memory.mapped_files(self.pid)
            if file == inode and path == "/memfd:inputs"
        ]
        return [
            next((address - begin + offset for begin, end, offset in mappings if begin <= address < end), None)
            for address in addresses
        ]

    def read(self, address: int, nbytes: int) -> Tensor:
        """A copy of its memory, in bytes.

        Raises:
            CallError, LabError: as `process_memory.read`.
        """
        return process_memory.read(self.pid, address, nbytes)


def _printable(value: Any) -> Any:
    """What JSON holds, with the text in it as a terminal or a file may show it."""
    if isinstance(value, str):
        return _UNPRINTABLE.sub("", value)
    if isinstance(value, list):
        return [_printable(item) for item in value]
    if isinstance(value, dict):
        return {_printable(key): _printable(item) for key, item in value.items()}
    return value
