"""A worker that crashes, hangs, cannot start or is interrupted costs one case."""

import _thread
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import pytest

from kernelgen.errors import KernelgenError, LabError
from kernelgen.lab import worker_process
from kernelgen.lab.worker_process import WorkerProcess

# How a worker is started is what these tests are about.
pytestmark = pytest.mark.usefixtures("cold_start")
# Only a process that hangs takes so long, however busy the machine is.
LIMIT_S = 600

WORK = """
import ctypes, os, sys, time

def work(request, emit):
    print("chatter of the op")
    os.system("echo more of it")
    for op in ("first", "second"):
        for case in range(5):
            if not emit.start(op, str(case)):
                continue
            what = request["what"].get(f"{op} {case}", "passes")
            if what == "crashes":
                print("about to die", file=sys.stderr, flush=True)
                ctypes.string_at(0)
            if what == "exits":
                os._exit(3)
            if what == "hangs":
                time.sleep(1000)
            if what == "raises":
                raise ValueError("a bug")
            emit("passed", op=op, case=str(case))
        emit("close", op=op)
"""


@pytest.fixture
def run(tmp_path):
    (tmp_path / "src" / "jobs").mkdir(parents=True)
    (tmp_path / "src" / "jobs" / "some.py").write_text(WORK)

    def call(what: dict[str, str], limit_s: float = 60.0, on_event=None, **more) -> tuple[bool, list[dict]]:
        events = []

        def listen(event):
            events.append(event)
            if on_event:
                on_event(event)

        request = {"work": "jobs.some", "project": str(tmp_path), "what": what, **more}
        return worker_process.run(Path(sys.executable), request, listen, limit_s), events

    return call


def names(events, kind):
    return [f"{event['op']} {event['case']}" for event in events if event["event"] == kind]


EVERY = [f"{op} {case}" for op in ("first", "second") for case in range(5)]


def test_every_case_is_run_once(run, capfd):
    finished, events = run({})
    assert finished
    assert names(events, "passed") == EVERY
    assert "chatter" not in capfd.readouterr().out


@pytest.mark.parametrize(
    ("what", "reason"), [("crashes", "crashed with SIGSEGV: about to die"), ("exits", "ended with exit code 3")]
)
def test_a_crash_costs_its_case_alone(run, what, reason):
    finished, events = run({"first 2": what})
    assert finished
    assert names(events, "passed") == [name for name in EVERY if name != "first 2"]
    (lost,) = (event for event in events if event["event"] == "lost")
    assert f"{lost['op']} {lost['case']}" == "first 2"
    assert lost["reason"].startswith(reason)


def test_a_hang_ends_at_the_limit(run, tmp_path, monkeypatch):
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    finished, events = run({"second 4": "hangs"}, limit_s=15.0)
    assert finished
    assert names(events, "lost") == ["second 4"]
    assert names(events, "passed") == EVERY[:-1]
    assert [event["reason"] for event in events if event["event"] == "lost"] == ["hung: it said nothing for 15 s"]
    assert not list(temporary.iterdir())  # What ops wrote goes with the worker.


def test_an_op_that_always_crashes_is_given_up(run):
    finished, events = run({f"first {i}": "exits" for i in range(5)})
    assert finished
    assert names(events, "lost") == ["first 0", "first 1", "first 2"]
    assert names(events, "passed") == EVERY[5:]
    assert [event["op"] for event in events if event["event"] == "given up"] == ["first"]


def test_where_one_failure_is_enough_the_first_crash_is_too(run):
    _, events = run({"first 1": "exits", "first 2": "exits"}, fail_fast=True)
    assert names(events, "lost") == ["first 1"]
    assert names(events, "passed") == [EVERY[0], *EVERY[5:]]


def test_an_error_of_the_lab_is_no_fault_of_the_op(run):
    with pytest.raises(LabError, match="The lab itself failed: ValueError: a bug"):
        run({"first 1": "raises"})


def test_what_was_done_before_ctrl_c_is_kept(run):
    def interrupt(event):
        if event["event"] == "passed" and event["case"] == "3":
            _thread.interrupt_main()

    finished, events = run({"first 4": "hangs"}, on_event=interrupt)
    assert not finished
    assert names(events, "passed") == EVERY[:4]


def test_what_ctrl_c_ends_at_once_is_no_crash(run, tmp_path):
    """SIGUSR1 stands for SIGINT, which a process in the background may ignore."""
    events = []

    def interrupt(event):
        events.append(event)
        if event["event"] == "passed" and len(names(events, "passed")) == 2:
            signal.pthread_kill(threading.main_thread().ident, signal.SIGUSR1)

    def end(*_):
        raise KeyboardInterrupt

    request = {"work": "jobs.some", "project": str(tmp_path), "what": {"first 1": "hangs"}}
    handler = signal.signal(signal.SIGUSR1, end)
    try:
        assert not worker_process.run_at_once(Path(sys.executable), [request, request], interrupt)
    finally:
        signal.signal(signal.SIGUSR1, handler)
    assert {event["event"] for event in events} == {"start", "passed"}


def test_a_worker_that_cannot_start(run, tmp_path):
    with pytest.raises(KernelgenError, match="The lab needs nowhere"):
        run({}, work="nowhere.to_be_found")
    broken = tmp_path / "python"
    broken.write_text("#!/bin/sh\necho no such thing >&2; exit 9\n")
    broken.chmod(0o755)
    request = {"work": "jobs.some", "project": str(tmp_path)}
    with pytest.raises(LabError, match="died before its first case: it ended with exit code 9: no such thing"):
        worker_process.run(broken, request, lambda event: None)


def test_variables_reach_the_worker(run, tmp_path):
    (tmp_path / "src" / "jobs" / "said.py").write_text(
        "import os\ndef work(request, emit):\n    emit('said', value=os.environ['MINE'])\n"
    )
    _, events = run({}, work="jobs.said", environment={"MINE": "here"})
    assert events == [{"event": "said", "value": "here"}]


def test_a_worker_says_nothing_to_a_host_that_left():
    """One of two workers was refused, and the host has closed the other's pipes before that one is refused, too."""
    source, to_worker = os.pipe()
    from_worker, sink = os.pipe()
    os.close(from_worker)
    command = [sys.executable, "-c", "from kernelgen.worker.protocol import main; main()"]
    worker = subprocess.Popen(command, stdin=source, stdout=sink, stderr=subprocess.PIPE, text=True)
    for end in (source, sink):
        os.close(end)
    os.write(to_worker, json.dumps({"work": "no_such_module"}).encode() + b"\n")
    os.close(to_worker)
    assert worker.communicate(timeout=LIMIT_S)[1] == ""
    # It leaves by itself or is ended by its watch of the pipe, whichever comes first.
    assert worker.returncode in (0, -signal.SIGKILL)


def test_a_worker_whose_host_is_killed_ends_even_in_a_call_that_does_not(tmp_path, run):
    host = (
        "import os, sys\n"
        "from pathlib import Path\n"
        "from kernelgen.lab.worker_process import WorkerProcess\n"
        "request = {'work': 'jobs.some', 'what': {'first 0': 'hangs'}}\n"
        f"worker = WorkerProcess('work', Path(sys.executable), Path({str(tmp_path)!r}), request)\n"
        "assert worker.receive()['event'] == 'start'\n"
        "print(worker._process.pid, worker._scratch, flush=True)\n"
        "os.kill(os.getpid(), 9)\n"
    )
    killed = subprocess.run([sys.executable, "-c", host], stdout=subprocess.PIPE, text=True, check=False)
    pid, scratch = killed.stdout.split()
    end = time.monotonic() + LIMIT_S
    while _runs(pid) and time.monotonic() < end:
        time.sleep(0.01)
    assert not _runs(pid)
    assert not Path(scratch).exists()


STARTS_ANOTHER = """
import subprocess, time

def work(request, emit):
    other = subprocess.Popen(["sleep", "1000"], start_new_session=True)
    emit("started", pid=other.pid)
    time.sleep(1000)
"""


def test_what_a_worker_started_ends_with_it_even_in_a_session_of_its_own(tmp_path):
    """As an op's processes are: each kept a core busy from then on."""
    (tmp_path / "src" / "jobs").mkdir(parents=True)
    (tmp_path / "src" / "jobs" / "starting.py").write_text(STARTS_ANOTHER)
    worker = WorkerProcess("the worker", Path(sys.executable), tmp_path, {"work": "jobs.starting"})
    pid = str(worker.receive()["pid"])
    assert _runs(pid)
    worker.kill()
    end = time.monotonic() + 20
    while _runs(pid) and time.monotonic() < end:
        time.sleep(0.01)
    assert not _runs(pid)
    worker.close()


def _runs(pid: str) -> bool:
    """Nobody may have taken the exit code of one that has ended."""
    status = Path("/proc", pid, "status")
    return status.exists() and "State:\tZ" not in status.read_text()
