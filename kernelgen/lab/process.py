"""The parent's side of the lab: runs work in the project's Python, and outlives whatever a kernel does there.

A worker that dies or hangs costs the case that it was at. The next worker is told which cases are done.
"""

import json
import os
import queue
import signal
import subprocess
import sys
import threading
from collections import Counter, deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

from kernelgen.errors import KernelgenError, LabError

Event = dict[str, Any]

# Importing torch from a cold disk takes its time.
START_LIMIT_S = 300.0
# After so many lost cases the rest of an op is left out: each takes a new process, or the whole limit.
MOST_LOST = 3

# kernelgen alone is taken from its own environment; what lies beside it there was made for another Python.
_BOOT = (
    "import sys; sys.path[0] = sys.argv[1]; import kernelgen; sys.path[0] = 'src'; "
    "from kernelgen.worker.protocol import main; main()"
)


def command(python: Path) -> list[str]:
    """The command line of a worker, to be run in the project's root; it reads a request as worker/protocol.py says."""
    return [str(python), "-c", _BOOT, str(Path(__file__).resolve().parents[2])]


def run(
    python: Path,
    request: dict[str, Any],
    on_event: Callable[[Event], None],
    limit_s: float = 60.0,
    under: Sequence[str] = (),
) -> bool:
    """Has a request worked on, and passes each answer to `on_event`; returns False if Ctrl-C ended it early.

    Args:
        python: the project's Python.
        request: at least `work` (a module of kernelgen.worker) and `project` (the project's root); `environment` holds
            variables for the worker, and `fail_fast` leaves an op at the first case that is lost.
        on_event: called in this thread. Beside the worker's own events it gets {"event": "lost", "op", "case",
            "reason"} for a case in which the worker died or hung, and {"event": "given up", "op", "reason"}.
        limit_s: how long a worker may say nothing once it has started a case.
        under: a command that runs the worker's, such as a profiler's.

    A worker sends {"event": "close", "op"} when it is through with an op, so that a later one leaves it out.

    Raises:
        KernelgenError: what the worker raised; or it died before its first case.
    """
    request = {"finished": [], "closed": [], "environment": {}, **request}
    lost: Counter[str] = Counter()
    most = 1 if request.get("fail_fast") else MOST_LOST
    try:
        while True:
            worker = _Worker([*under, *command(python)], request)
            try:
                ended = worker.follow(on_event, limit_s)
            finally:
                worker.kill()
            request["finished"] = [*request["finished"], *worker.started]
            request["closed"] = [*request["closed"], *worker.closed]
            if ended is None:
                return True
            if not worker.started:
                raise LabError(f"The worker died before its first case: it {ended}.")
            op, case = worker.started[-1]
            on_event({"event": "lost", "op": op, "case": case, "reason": ended})
            lost[op] += 1
            if lost[op] == most:
                request["closed"] = [*request["closed"], op]
                reason = f"{most} case{'s' * (most > 1)} crashed or hung; the rest was left out"
                on_event({"event": "given up", "op": op, "reason": reason})
    except KeyboardInterrupt:
        return False


class _Worker:
    """One worker process."""

    def __init__(self, arguments: list[str], request: dict[str, Any]) -> None:
        self.started: list[tuple[str, str]] = []
        self.closed: list[str] = []
        self._said: deque[str] = deque(maxlen=20)
        self._answers: queue.Queue[str | None] = queue.Queue()
        # In a session of its own: Ctrl-C is for the parent, which then ends the worker with all that it started.
        self._process = subprocess.Popen(
            arguments,
            cwd=request["project"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            start_new_session=True,
            env={**os.environ, "PYTHONUNBUFFERED": "1", **request["environment"]},
        )
        self._readers = [
            threading.Thread(target=self._read, args=(self._process.stdout, self._answers.put), daemon=True),
            threading.Thread(target=self._read, args=(self._process.stderr, self._hear), daemon=True),
        ]
        for reader in self._readers:
            reader.start()
        # A pipe that breaks belongs to a worker that died at once; `follow` says why.
        with suppress(BrokenPipeError), self._process.stdin as pipe:
            json.dump(request, pipe)

    def follow(self, on_event: Callable[[Event], None], limit_s: float) -> str | None:
        """Passes answers on until the work is done (None) or the worker died or hung (a phrase that says how)."""
        while True:
            try:
                line = self._answers.get(timeout=limit_s if self.started else START_LIMIT_S)
            except queue.Empty:
                return f"hung: it said nothing for {limit_s if self.started else START_LIMIT_S:g} s"
            if line is None:
                return self._death()
            event = json.loads(line)
            if event["event"] == "done":
                with suppress(subprocess.TimeoutExpired):
                    self._process.wait(timeout=10)
                return None
            if event["event"] == "error":
                raise _error(event)
            if event["event"] == "start":
                self.started.append((event["op"], event["case"]))
            if event["event"] == "close":
                self.closed.append(event["op"])
            on_event(event)

    def kill(self) -> None:
        if self._process.poll() is None:
            # Not waited for long: a process that is stuck in a driver dies when the driver lets go of it.
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(timeout=5)

    def _death(self) -> str:
        code = self._process.wait()
        self._readers[1].join(timeout=1)
        if code < 0:
            try:
                how = f"crashed with {signal.Signals(-code).name}"
            except ValueError:
                how = f"crashed with signal {-code}"
        else:
            how = f"ended with exit code {code}"
        return f"{how}: {self._said[-1]}" if self._said else how

    def _hear(self, line: str | None) -> None:
        if line and line.strip():
            self._said.append(line.strip())
            sys.stderr.write(line)

    @staticmethod
    def _read(pipe: IO[str], put: Callable[[str | None], None]) -> None:
        for line in pipe:
            put(line)
        put(None)


def _error(event: Event) -> KernelgenError:
    error = LabError(event["message"]) if event["exit_code"] == LabError.exit_code else KernelgenError(event["message"])
    error.exit_code = event["exit_code"]
    return error
