"""A worker process, seen from the host: started in the project's Python, given orders, and replaced if it is lost.

kernelgen/protocol.py describes the messages between the two.
"""

import json
import os
import re
import selectors
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

from kernelgen import process_tree
from kernelgen.errors import KernelgenError, LabError
from kernelgen.protocol import ALLOCATORS, JUDGES, SCRATCH

Event = dict[str, Any]

# Importing torch from a cold disk takes its time.
START_LIMIT_S = 300.0
# After so many lost cases an op's remaining cases are left out: each costs a new process, or the whole limit.
MOST_LOST = 3

# kernelgen alone is imported from its own environment; the other packages there were built for another Python.
_BOOT = (
    "import sys; sys.path[0] = sys.argv[1]; import kernelgen; del sys.path[0]; "
    "from kernelgen.worker.protocol import main; main()"
)
_BOOT_OF_A_JUDGE = (
    "import sys; sys.path[0] = sys.argv[1]; from kernelgen.worker import apart; del sys.path[0]; "
    "apart.start(sys.argv[2:]); from kernelgen.worker.protocol import main; main()"
)
_PACKAGE_PARENT = Path(__file__).resolve().parents[2]
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


class LostError(LabError):
    """A worker crashed or hung; another can go on with the remaining cases. `reason` is a phrase that says how."""

    def __init__(self, worker: str, reason: str) -> None:
        super().__init__(f"{worker} {reason}.")
        self.worker, self.reason = worker, reason


class WorkerProcess:
    """One worker.

    Args:
        name: what messages call it.
        root: the project, where the worker runs.
        request: its first line, except for `project`, which is added; `environment` holds variables for the worker,
            `apart` further projects of which a judge imports nothing.
        limit_s: how long it may send nothing; see `allow`.
        under: a command that runs the worker's, such as a profiler's.
    """

    def __init__(
        self,
        name: str,
        python: Path,
        root: Path,
        request: Mapping[str, Any],
        limit_s: float = START_LIMIT_S,
        under: Sequence[str] = (),
    ) -> None:
        self.name = name
        self._limit_s = limit_s
        self._unread = b""
        self._last_errors: deque[str] = deque(maxlen=5)
        # Who is killed cannot remove what it has for its ops to write to.
        self._scratch = tempfile.mkdtemp(prefix="kernelgen-")
        parent = str(_PACKAGE_PARENT)
        if request["work"] in JUDGES:
            arguments = ["-S", "-c", _BOOT_OF_A_JUDGE, parent, str(root), *request.get("apart", ())]
            inherited = {name: value for name, value in os.environ.items() if name not in ALLOCATORS}
        else:
            arguments, inherited = ["-c", _BOOT, parent], dict(os.environ)
        # In a session of its own: Ctrl-C reaches the host alone, which then ends the worker and all that it started.
        self._process = subprocess.Popen(
            [*under, str(python), *arguments],
            cwd=root,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
            env={**inherited, "PYTHONUNBUFFERED": "1", SCRATCH: self._scratch, **request.get("environment", {})},
        )
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._process.stdout, selectors.EVENT_READ)
        self._error_reader = threading.Thread(target=self._pass_errors_on, daemon=True)
        self._error_reader.start()
        self._send({**request, "project": str(root)})

    def allow(self, limit_s: float) -> None:
        """Sets how long the worker may send nothing, from now on."""
        self._limit_s = limit_s

    # ---- Orders and events ----------------------------------------------------------------------------------------

    def order(self, do: str, **arguments: Any) -> None:
        self._send({"do": do, **arguments})

    def answer(self) -> dict[str, Any]:
        """The answer to the last order.

        Raises:
            LostError: the worker died or hung.
            LabError: it could not do it.
        """
        event = self.receive()
        kind = event.pop("event")
        if kind != "answer":
            raise LabError(f"{self.name}: {event['message']}")
        return event

    def ask(self, do: str, **arguments: Any) -> dict[str, Any]:
        self.order(do, **arguments)
        return self.answer()

    def receive(self) -> Event:
        """The next event.

        Raises:
            LostError: the worker died, or sent nothing for the limit; it has been ended then.
        """
        line = self._read_line()
        if line is None:
            raise LostError(self.name, self._death())
        return json.loads(line)

    def _send(self, message: Mapping[str, Any]) -> None:
        # A pipe that breaks belongs to a worker that died; `receive` says how.
        with suppress(BrokenPipeError, ValueError):
            self._process.stdin.write(json.dumps(message).encode() + b"\n")
            self._process.stdin.flush()

    def _read_line(self) -> bytes | None:
        """None where the worker has closed its end, which it does by ending."""
        end = time.monotonic() + self._limit_s
        while b"\n" not in self._unread:
            if not self._selector.select(max(0.0, end - time.monotonic())):
                self.kill()
                raise LostError(self.name, f"hung: it said nothing for {self._limit_s:g} s")
            part = os.read(self._process.stdout.fileno(), 1 << 20)
            if not part:
                return None
            self._unread += part
        line, _, self._unread = self._unread.partition(b"\n")
        return line

    # ---- The end --------------------------------------------------------------------------------------------------

    def close(self, wait_s: float = 2.0) -> None:
        """Ends the worker: without orders it leaves by itself, or is killed after `wait_s`."""
        with suppress(OSError):
            self._process.stdin.close()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout=wait_s)
        self.kill()
        self._selector.close()
        self._process.stdout.close()

    def kill(self) -> None:
        """Ends the worker, with all that it started, by force. A thread that waits for it gets a LostError."""
        if self._process.poll() is None:
            process_tree.end(self._process.pid)
            with suppress(ProcessLookupError):  # A profiler that it runs under is of the same group.
                os.killpg(self._process.pid, signal.SIGKILL)
            # A process that is stuck in a driver dies when the driver lets go of it, which nobody has to wait for.
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(timeout=5)
        shutil.rmtree(self._scratch, ignore_errors=True)

    def _death(self) -> str:
        try:
            code = self._process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self.kill()
            return "closed its pipe and did not end"
        self._error_reader.join(timeout=1)
        how = f"crashed with {_signal_name(-code)}" if code < 0 else f"ended with exit code {code}"
        return f"{how}: {self._last_errors[-1]}" if self._last_errors else how

    def _pass_errors_on(self) -> None:
        for raw in self._process.stderr:
            # An op may print what moves the cursor, and with it what was printed before.
            line = _CONTROL.sub("", raw.decode(errors="replace"))
            if line.strip():
                self._last_errors.append(line.strip())
                sys.stderr.write(line)


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


# ---- Work that goes through cases ---------------------------------------------------------------------------------


def run(
    python: Path,
    request: Mapping[str, Any],
    on_event: Callable[[Event], None],
    limit_s: float = 60.0,
    under: Sequence[str] = (),
    started: Callable[[WorkerProcess], object] = lambda worker: None,
) -> bool:
    """Has a request worked on, and passes each event to `on_event`; returns False if Ctrl-C ended it early.

    A worker that dies or hangs costs the case that it was at: another takes its place and goes on with the next case.

    Args:
        python: the project's Python.
        request: at least `work` and `project`, the project's root. `fail_fast` leaves an op at its first lost case.
        on_event: called in this thread. Beside the worker's own events it gets {"event": "lost", "op", "case",
            "reason"} for a case in which the worker died or hung, and {"event": "given up", "op", "reason"}.
        limit_s: how long a worker may send nothing once it has started a case.
        under: a command that runs the worker's, such as a profiler's.
        started: is told of each worker.

    Raises:
        KernelgenError: what the worker raised; or it died before its first case.
    """
    lost: Counter[str] = Counter()
    most = 1 if request.get("fail_fast") else MOST_LOST
    finished: list[tuple[str, str]] = []
    closed: list[str] = []
    try:
        while True:
            resumed = {**request, "finished": finished, "closed": closed}
            worker = WorkerProcess("the worker", python, Path(request["project"]), resumed, START_LIMIT_S, under)
            started(worker)
            before = len(finished)
            reason = _reason_lost(worker, on_event, limit_s, finished, closed)
            if reason is None:
                return True
            if len(finished) == before:
                raise LabError(f"The worker died before its first case: it {reason}.")
            op, case = finished[-1]
            on_event({"event": "lost", "op": op, "case": case, "reason": reason})
            lost[op] += 1
            if lost[op] == most:
                closed.append(op)
                reason = f"{most} case{'s' * (most > 1)} crashed or hung; the rest was left out"
                on_event({"event": "given up", "op": op, "reason": reason})
    except KeyboardInterrupt:
        return False


def run_at_once(
    python: Path, requests: Sequence[Mapping[str, Any]], on_event: Callable[[Event], None], limit_s: float = 60.0
) -> bool:
    """As `run`, of several requests at once; `on_event` is called by one thread at a time."""
    if len(requests) == 1:
        return run(python, requests[0], on_event, limit_s)
    workers: list[WorkerProcess] = []
    turn, is_over = threading.Lock(), threading.Event()

    def started(worker: WorkerProcess) -> None:
        workers.append(worker)
        if is_over.is_set():
            worker.kill()

    def in_turn(event: Event) -> None:
        with turn:
            if not is_over.is_set():  # Else it says that a worker died, which was ended below.
                on_event(event)

    with ThreadPoolExecutor(len(requests)) as pool:
        running = [pool.submit(run, python, request, in_turn, limit_s, started=started) for request in requests]
        try:
            return False not in [work.result() for work in running]
        except KeyboardInterrupt:
            return False
        finally:
            is_over.set()  # Where all went well, nothing is left to end.
            for worker in workers:
                worker.kill()


def _reason_lost(
    worker: WorkerProcess,
    on_event: Callable[[Event], None],
    limit_s: float,
    finished: list[tuple[str, str]],
    closed: list[str],
) -> str | None:
    """Follows a worker to its end: how it died or hung; None where all is done."""
    try:
        _follow(worker, on_event, limit_s, finished, closed)
        return None
    except LostError as lost_worker:
        return lost_worker.reason
    finally:
        worker.kill()
        worker.close()


def _follow(
    worker: WorkerProcess,
    on_event: Callable[[Event], None],
    limit_s: float,
    finished: list[tuple[str, str]],
    closed: list[str],
) -> None:
    """Passes events on until the work is done, and notes the cases that were started and the ops that were closed."""
    while True:
        event = worker.receive()
        kind = event["event"]
        if kind == "done":
            worker.close(wait_s=10)  # A profiler that the worker runs under has its report to write.
            return
        if kind == "error":
            raise (LabError if event["exit_code"] == LabError.exit_code else KernelgenError)(event["message"])
        if kind == "start":
            worker.allow(limit_s)
            finished.append((event["op"], event["case"]))
        if kind == "close":
            closed.append(event["op"])
        on_event(event)
