"""What the judge loads, reads and believes; test_exploits.py has what it withstands."""

import contextlib
import errno
import json
import os
import pickle
import signal
import struct
import subprocess
import sys
import time
from multiprocessing import Pipe
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from kernelgen import process_tree
from kernelgen.errors import LabError
from kernelgen.process_tree import descendants, signal_all
from kernelgen.worker import machine_state
from kernelgen.worker.judge import (
    arena,
    bystanders,
    noise,
    op_process,
    process_memory,
    results,
    scheduling,
    stopping,
    trusted,
)
from kernelgen.worker.judge.arena import CpuArena, TensorPlace
from kernelgen.worker.judge.errors import CallError, RaisedError
from kernelgen.worker.judge.op_process import OpProcess

LAB = """
import torch
from standing import mine
from standing.ops.mine import reference

OP, REFERENCE = mine, reference.mine
DTYPES = (torch.float32,)
DOMAIN = {"n": (1, 100)}


def inputs(make, n):
    return (make((n,)),)
"""


@pytest.fixture
def checkout(tmp_path):
    """A project whose own code ends whoever imports it."""
    folder = tmp_path / "src" / "standing" / "ops" / "mine"
    folder.mkdir(parents=True)
    for package in (folder, folder.parent, folder.parent.parent):
        (package / "__init__.py").write_text("raise SystemExit('the project was imported')\n")
    (folder / "lab.py").write_text(LAB)
    (folder / "reference.py").write_text("def mine(x):\n    return x + 1\n")
    yield tmp_path
    for name in [name for name in sys.modules if name.partition(".")[0] == "standing"]:
        del sys.modules[name]


def test_lab_py_and_the_reference_are_loaded_without_the_project(checkout):
    op = trusted.load(checkout, "standing", "mine")
    assert float(op.reference(torch.zeros(1))) == 1
    with pytest.raises(LabError, match="mine of the project was called in the process that judges it"):
        op.function(torch.zeros(1))


def test_a_module_that_is_missing_is_no_stand_in(checkout):
    (checkout / "src/standing/ops/mine/reference.py").write_text("import not_there_at_all\n")
    with pytest.raises(LabError, match="pip install not_there_at_all"):
        trusted.load(checkout, "standing", "mine")


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_a_tape_gives_numbers_that_never_repeat_with_runs_of_other_means_and_scales(dtype):
    tape = noise.NoiseTape("cpu")
    tensors = [torch.empty(10_000, dtype=dtype) for _ in range(20)]
    tape.reach(10_000)
    for tensor in tensors:
        mixture = tape.fill(tensor)
        again = torch.empty_like(tensor)
        tape.fill(again, mixture)
        assert torch.equal(again, tensor)
    together = torch.stack(tensors).double()
    assert float(together.mean()) == pytest.approx(0, abs=0.25)
    assert float(together.std()) == pytest.approx(1.4, abs=0.3)
    parts = together.view(20, 20, 500)
    assert float(parts.mean(-1).std()) > 0.3
    assert float(parts.std(-1).max() / parts.std(-1).min()) > 2
    correlated = torch.corrcoef(together) - torch.eye(20)
    assert float(correlated.abs().max()) < 0.999


@pytest.mark.parametrize(
    "shape, stride", [((3, 4), (4, 1)), ((3, 4), (1, 3)), ((2, 3), (8, 2)), ((), ()), ((0, 3), (3, 1))]
)
def test_a_tensor_in_the_arena_sees_nothing_around_it(shape, stride):
    shared = CpuArena()
    shared.resize(4096)
    place = TensorPlace(512, torch.float32, shape, stride)
    tensor = place.tensor(shared.storage)
    assert (tuple(tensor.shape), tensor.stride()) == (shape, stride)
    assert tensor.untyped_storage().nbytes() == place.nbytes == 4 * arena.span(shape, stride)
    tensor.fill_(1)
    again = arena.open_cpu(shared.fd, 4096)
    assert torch.equal(place.tensor(again), tensor)


@pytest.mark.parametrize(
    "layouts",
    [
        [[["torch.Tensor", "torch.float32", [2], [1, 1]]]],
        [[["torch.Tensor", "torch.nothing", [2], [1]]]],
        [[["torch.Tensor", "torch.float32", [-2], [1]]]],
        [[["torch.Tensor", "torch.float32", ["2"], [1]]]],
        [[["torch.Tensor"]]],
        [[["other.Tensor", "torch.float32", [2], [1]]]],
        7,
    ],
)
def test_what_an_op_says_of_its_results_is_not_believed(layouts):
    with pytest.raises(CallError):
        results.checked_layouts({"layouts": layouts})


@pytest.mark.parametrize("message", [b"", b"x{}", b"+", b"+[]", b"+{", b"t123", b"!{}", b"!7"])
def test_a_message_that_is_none_is_a_fault_of_the_op(message):
    for kind in (b"+", b"t"):
        with pytest.raises(CallError):
            OpProcess._unpacked(message, kind)


@pytest.mark.parametrize(
    ("message", "sentence"),
    [
        ("[Errno 28] No space left on device: 'x'", "found a disk full"),
        ("CUDA error: CUDA-capable device(s) is/are busy or unavailable", "takes no process beside the judge's"),
    ],
)
def test_what_a_system_lacks_is_no_fault_of_the_op(message, sentence):
    with pytest.raises(LabError, match=sentence):
        OpProcess._unpacked(b"!" + json.dumps({"type": "OSError", "message": message}).encode(), b"+")


@pytest.mark.parametrize("closes", [True, False])
def test_a_process_that_gives_no_answer_is_not_waited_for(idle, monkeypatch, capfd, closes):
    """It has closed its connection, or says that its answer is longer than the judge's memory; and goes on."""
    ended = []
    monkeypatch.setattr(op_process, "_ENDING_S", 0.05)
    monkeypatch.setattr(OpProcess, "_ended", lambda self, status: ended.append(os.WTERMSIG(status)))
    ours, theirs = Pipe()
    monkeypatch.setattr(idle, "_connection", ours)
    if closes:
        theirs.close()
    else:
        os.write(theirs.fileno(), struct.pack("!iQ", -1, 2**62))
    idle._receive()
    assert ended == [signal.SIGKILL]
    assert "closed its connection" in capfd.readouterr().err


def test_what_an_op_says_moves_no_cursor_and_can_be_printed():
    said = r"\u001b[2K\rall \ud800is\u202e well"
    with pytest.raises(RaisedError, match=r"^ValueError: \[2Kall is well$"):
        OpProcess._unpacked(f'!{{"type": "ValueError", "message": "{said}"}}'.encode(), b"+")
    answer = OpProcess._unpacked(f'+{{"layouts": [[["{said}", 1]]]}}'.encode(), b"+")
    assert answer == {"layouts": [[["[2Kall is well", 1]]]}


def test_a_process_is_stopped_between_orders(tmp_path):
    process = OpProcess(tmp_path, CpuArena(), confined=False)
    try:
        process.ask("arm", function="", indices=[], backward=False, graphs=False)
        assert process.go()[2] == []
        state = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[0]
        assert state == "T"
        assert not process.is_held_back()
        os.setpriority(os.PRIO_PROCESS, process.pid, os.getpriority(os.PRIO_PROCESS, 0) + 1)
        assert process.is_held_back()
    finally:
        process.close()
    assert not Path(f"/proc/{process.pid}").exists()


def test_what_a_process_computes_while_it_is_stopped_is_seen(idle):
    """Timers and other processes of the op can continue it. It gains by that if it does so before most samples."""
    for _ in range(20):
        idle.go()
    assert not idle.goes_on()
    for count in range(1, 10):
        os.kill(idle.pid, signal.SIGCONT)
        idle._connection.send_bytes(pickle.dumps({"do": "state"}))
        idle._connection.recv_bytes()
        idle.go()
        assert idle.goes_on() == (count > (20 + count) / 4)
    idle.count_anew()
    idle.go()
    assert not idle.goes_on()


def test_a_process_that_comes_to_rest_late_is_seen(idle, monkeypatch):
    """It could have itself continued as soon as it was stopped. A thread that leaves its core takes some time, too."""
    late_s = iter([op_process.LATE_S] * 4 + [2 * op_process.LATE_S] * 5)
    times_at_rest = stopping.times_at_rest
    monkeypatch.setattr(op_process, "times_at_rest", lambda pids: (times_at_rest(pids)[0], next(late_s)))
    for _ in range(8):
        idle.go()
        assert not idle.goes_on()
    idle.go()
    assert idle.goes_on()


def test_the_time_of_a_process_is_taken_when_it_grows_no_more(monkeypatch):
    taken = iter([1.0, 1.0, 1.1, 1.2, *[1.3] * 1000])
    monkeypatch.setattr(stopping, "cpu_seconds", lambda pid: next(taken) if pid == 1 else None)
    monkeypatch.setattr(stopping.time, "perf_counter", iter(range(2000)).__next__)
    monkeypatch.setattr(stopping, "_REST_S", 3)
    monkeypatch.setattr(stopping, "_RESTING_S", 100)
    assert stopping.times_at_rest([1, 2]) == ({1: 1.3}, pytest.approx(0.3))
    always = iter(range(1000))
    monkeypatch.setattr(stopping, "cpu_seconds", lambda pid: next(always))
    _, late_s = stopping.times_at_rest([1])
    assert late_s == pytest.approx(100, abs=2)


def test_the_time_of_a_process_is_taken_once_it_has_stopped(monkeypatch):
    monkeypatch.setattr(stopping, "_STOPPING_S", 0.01)
    busy = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        # It does not, so what it takes from now on counts.
        assert stopping.that_come_to_a_stop([busy.pid]) == [busy.pid]
        monkeypatch.setattr(stopping, "_STOPPING_S", 20)
        for _ in range(100):
            busy.send_signal(signal.SIGCONT)
            busy.send_signal(signal.SIGSTOP)
            assert stopping.that_come_to_a_stop([busy.pid]) == [busy.pid]
            taken = stopping.cpu_seconds(busy.pid)
            assert process_tree.state_of(busy.pid) == "T"
            assert stopping.cpu_seconds(busy.pid) == taken
    finally:
        busy.kill()
    os.waitid(os.P_PID, busy.pid, os.WEXITED | os.WNOWAIT)
    assert stopping.that_come_to_a_stop([busy.pid]) == []  # A zombie.
    busy.wait()
    assert stopping.that_come_to_a_stop([busy.pid]) == []


@pytest.fixture
def idle(tmp_path):
    """A process without an op, which is stopped."""
    process = OpProcess(tmp_path, CpuArena(), confined=False)
    process.ask("arm", function="", indices=[], backward=False, graphs=False)
    yield process
    process.close()


@pytest.mark.parametrize("lost", [1, 3])
def test_a_process_is_told_to_stop_until_it_does(idle, monkeypatch, lost):
    """A timer's SIGCONT takes a stop back that nobody has seen, and a tracer keeps it from the process."""
    kill, kept = os.kill, iter([True] * lost)
    monkeypatch.setattr(os, "kill", lambda *to: (to[1] == signal.SIGSTOP and next(kept, False)) or kill(*to))
    before = signal.getsignal(signal.SIGALRM)
    idle.ask("arm", function="", indices=[], backward=False, graphs=False)
    assert next(kept, None) is None
    assert process_tree.state_of(idle.pid) == "T"
    assert signal.getsignal(signal.SIGALRM) == before


def test_a_process_that_never_stops_is_not_waited_for(idle, monkeypatch):
    kill = os.kill
    monkeypatch.setattr(stopping, "_UNSTOPPABLE_S", 0.05)
    with monkeypatch.context() as patch:
        patch.setattr(os, "kill", lambda *to: to[1] == signal.SIGSTOP or kill(*to))
        with pytest.raises(CallError, match="its process did not stop"):
            idle.go()
    assert signal.getitimer(signal.ITIMER_REAL) == (0, 0)


def test_more_processes_than_can_be_followed_are_a_fault(idle, monkeypatch):
    monkeypatch.setattr(op_process, "descendants", lambda pid: range(2**22 + 1, 2**22 + 10))
    monkeypatch.setattr(op_process, "signal_all", lambda number, processes: [*processes()])
    idle.ask("arm", function="", indices=[], backward=False, graphs=False)
    monkeypatch.setattr(op_process, "MOST_CHILDREN", 8)
    with pytest.raises(CallError, match="it has 9 processes"):
        idle.go()


def test_what_a_system_does_not_say_of_a_process_is_a_doubt(idle, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(stopping, "cpu_seconds", lambda pid: None)
        idle.go()
        assert (idle.doubt, idle._ran) == (op_process.UNTIMED, False)
    idle._taken_s[2**22 + 1] = 0.0  # A child that was killed while it was stopped, as where memory lacks.
    idle.go()
    assert (idle.doubt, idle._ran) == (op_process.ENDED, False)


@pytest.mark.parametrize("number", [errno.EPERM, errno.ENOSYS])
def test_a_system_whose_processes_cannot_be_read_is_no_fault_of_the_op(idle, monkeypatch, number):
    with pytest.raises(CallError, match="Bad address"):
        idle.read(0, 1)
    with monkeypatch.context() as patch:
        patch.setattr(process_memory, "_is_refused_to_all", lambda: False)
        assert "its process hides it" in str(process_memory.refusal(number))
    monkeypatch.setattr(process_memory, "_readv", lambda *_: (-1, number))
    with pytest.raises(LabError, match="ptrace_scope"):
        idle.read(0, 1)


def test_children_are_known_where_linux_keeps_no_lists_of_them(idle, monkeypatch):
    assert idle.pid in descendants(os.getpid())
    monkeypatch.setattr(process_tree, "_has_lists_of_children", lambda: False)
    assert idle.pid in descendants(os.getpid())


def test_a_thread_that_the_system_runs_otherwise_is_held_back(idle, monkeypatch):
    """Such as on a slower clock, which a process of the same user can ask for in its name (uclamp)."""
    assert not idle.is_held_back()
    monkeypatch.setattr(scheduling, "_speeds", lambda thread: (0, 1024 if thread == 0 else 100))
    assert idle.is_held_back()


def test_what_a_system_does_not_say_of_a_thread_is_as_the_judges_own(monkeypatch):
    def prctl(option, get, thread, kind, cookie):
        cookie._obj.value = 7
        return -1 if thread.value else 0

    monkeypatch.setattr(scheduling, "_SYSTEM", SimpleNamespace(prctl=prctl, syscall=lambda *_: -1))
    assert scheduling.scheduling(os.getpid()) == scheduling.scheduling(0)


APART = """
import sys
sys.path[0] = sys.argv[1]
from kernelgen.worker import apart
del sys.path[0]
apart.start(sys.argv[2:])
print(*sys.path)
"""


def test_a_process_that_judges_imports_nothing_of_a_project_that_is_installed_beside_it(tmp_path):
    source = tmp_path / "project" / "src"
    source.mkdir(parents=True)
    (source / "sitecustomize.py").write_text("raise SystemExit('the project was imported')\n")
    command = [sys.executable, "-S", "-c", APART, str(Path(__file__).parents[2]), str(tmp_path / "project")]
    variables = {**os.environ, "PYTHONPATH": str(source)}
    folders = subprocess.run(command, env=variables, capture_output=True, text=True, check=True).stdout.split()
    assert str(source) not in folders
    assert str(Path(torch.__file__).parents[1]) in folders


# Writes to a file of each folder that it is given, and prints those in which it could.
WRITES = """
import os, pathlib, sys
sys.path.insert(0, sys.argv[1])
from kernelgen.worker.confinement import confine
confine(pathlib.Path(sys.argv[2]))
for folder in [*sys.argv[2:], os.environ["XDG_CACHE_HOME"], os.environ["TRITON_CACHE_DIR"], "/proc/self"]:
    try:
        os.makedirs(folder, exist_ok=True)
        pathlib.Path(folder, "comm").write_text("python")
        print(folder)
    except OSError:
        pass
"""


@pytest.mark.parametrize("is_link", [False, True])
def test_an_op_writes_to_no_cache_that_others_read_and_to_no_other_process(tmp_path, is_link):
    project, home, scratch = (tmp_path / name for name in ("project", "home", "scratch"))
    others = [home / ".triton", home / ".nv", home / ".cache" / "torch", home / ".cache" / "my_kernels"]
    for folder in (project, scratch, *others):
        folder.mkdir(parents=True)
    if is_link:
        (project / "build").mkdir()
        (project / "build" / "op-cache").symlink_to(others[0])
    command = [sys.executable, "-c", WRITES, str(Path(__file__).parents[2]), scratch, *others, f"/proc/{os.getpid()}"]
    variables = {**os.environ, "HOME": str(home), "XDG_CACHE_HOME": str(home / ".cache")}
    written = subprocess.run(command, cwd=project, env=variables, capture_output=True, text=True, check=True).stdout
    cache = scratch if is_link else project / "build" / "op-cache"
    assert written.split() == [str(folder) for folder in (scratch, cache, cache / "triton", "/proc/self")]


@pytest.mark.usefixtures("cold_start")
def test_what_a_project_has_python_run_when_it_starts_is_confined(tmp_path):
    """Such as a `sitecustomize` in `src`, which an editable install puts beside torch."""
    edits = "import os, pathlib, sys\nfor folder in ('.', os.environ['TMPDIR']):\n    try:\n        "
    edits += "pathlib.Path(folder, 'edited').write_text(str(sys.flags))\n    except OSError:\n        pass\n"
    (tmp_path / "sitecustomize.py").write_text(edits)
    process = OpProcess(tmp_path, CpuArena(), confined=True, variables={"PYTHONPATH": str(tmp_path)})
    try:
        process.ask("arm", function="", indices=[], backward=False, graphs=False)
        assert "no_site=0" in (Path(process._scratch) / "edited").read_text()  # Python is the one that a user starts.
        assert not (tmp_path / "edited").exists()
    finally:
        process.close()


def test_an_op_writes_to_no_terminal(tmp_path):
    """Where the verdict is shown, and could be overwritten."""
    ours, theirs = os.openpty()
    opens = WRITES.replace("os.makedirs(folder, exist_ok=True)", "open(folder, 'w')").replace(
        'pathlib.Path(folder, "comm").write_text("python")', "pass"
    )
    devices = ["/dev/null", os.ttyname(theirs)]
    command = [sys.executable, "-c", opens, str(Path(__file__).parents[2]), str(tmp_path), *devices]
    opened = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True).stdout.split()
    assert ("/dev/null" in opened, devices[1] in opened) == (True, False)
    os.close(ours)
    os.close(theirs)


@pytest.mark.parametrize("confined", [False, True])
def test_a_process_ends_with_its_judge_even_while_it_is_stopped(tmp_path, confined):
    judge = (
        # As warm_start.py knows a judge; a confined one starts as users' do.
        f"{'' if confined else '# from kernelgen.worker.protocol import main'}\n"
        "import os, pathlib, sys, time\n"
        "from kernelgen.worker.judge.arena import CpuArena\n"
        "from kernelgen.worker.judge.op_process import OpProcess\n"
        f"process = OpProcess(pathlib.Path({str(tmp_path)!r}), CpuArena(), confined={confined})\n"
        "process.ask('arm', function='', indices=[], backward=False, graphs=False)\n"
        "print(process.pid, flush=True)\n"
        "os.kill(os.getpid(), 9)\n"
    )
    killed = subprocess.run([sys.executable, "-c", judge], stdout=subprocess.PIPE, text=True, check=False)
    pid = int(killed.stdout)
    end = time.monotonic() + 20
    while alive(pid) and time.monotonic() < end:
        time.sleep(0.01)
    assert not alive(pid)


def test_a_process_that_cannot_tell_its_judge_what_went_wrong_ends_in_silence():
    """As where the judge ends, and its project with it, while the op is still being imported."""
    ours, theirs = Pipe()
    code = f"from kernelgen.worker.op_host import main; main({theirs.fileno()}, -1, '')"
    ours.send_bytes(pickle.dumps({"do": "of_no_such_name"}))
    ours.close()
    command = [sys.executable, "-c", code]
    result = subprocess.run(command, pass_fds=[theirs.fileno()], stderr=subprocess.PIPE, text=True, check=False)
    assert (result.returncode, result.stderr) == (0, "")


def alive(pid: int) -> bool:
    stat = Path(f"/proc/{pid}/stat")
    return stat.exists() and stat.read_text().rpartition(")")[2].split()[0] != "Z"


# Counts what its processes do: each starts the next and ends, in less time than it takes to list them.
HOPPING = r"""
#define _GNU_SOURCE
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>
static char stacks[2][65536];
static volatile long *hops;
static int hop(void* turn) {
  ++*hops;
  clone(hop, stacks[1 - (long)turn] + 65000, CLONE_VM | SIGCHLD, (void*)(1 - (long)turn));
  syscall(SYS_exit, 0);
  return 0;
}
int main(int count, char** arguments) {
  hops = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, open(arguments[1], O_RDWR), 0);
  prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  signal(SIGCHLD, SIG_IGN);
  clone(hop, stacks[0] + 65000, CLONE_VM | SIGCHLD, 0);
  for (;;) pause();
}
"""


def test_processes_that_start_others_faster_than_they_are_listed_are_stopped(tmp_path):
    (tmp_path / "hop.c").write_text(HOPPING)
    counter = tmp_path / "hops"
    counter.write_bytes(bytes(4096))
    subprocess.run(["gcc", "-o", tmp_path / "hop", tmp_path / "hop.c"], check=True)

    def hops() -> int:
        return int.from_bytes(counter.read_bytes()[:8], "little")

    process = subprocess.Popen([tmp_path / "hop", counter])
    try:
        for _ in range(20):  # Chance stops them, too, now and then.
            before = hops()
            while hops() < before + 100:
                time.sleep(1e-3)
            stopped = signal_all(signal.SIGSTOP, lambda: descendants(process.pid))
            time.sleep(2e-3)  # A signal takes a moment to stop what runs on another core.
            before = hops()
            time.sleep(5e-3)
            assert hops() == before
            for pid in stopped:
                with contextlib.suppress(ProcessLookupError):  # One that had ended has the signal, too.
                    os.kill(pid, signal.SIGCONT)
    finally:
        signal_all(signal.SIGKILL, lambda: descendants(process.pid))
        process.kill()
        process.wait()


OWN, OTHERS, UNKNOWN = os.getpid(), 1, 2**22 + 1


@pytest.mark.parametrize(
    ("pids", "sentence"),
    [
        (None, bystanders.UNSEEN),  # No NVML, or none that answers.
        ([], bystanders.UNSEEN),  # As in WSL, and in containers that show no process.
        ([OWN, "child"], None),
        ([OWN, "child", OTHERS], bystanders.PRESENT),  # Another program of the same user's, or of another's.
        ([OWN, "child", UNKNOWN], bystanders.PRESENT),  # A process that /proc hides (hidepid).
        ([UNKNOWN, UNKNOWN + 1], None),  # In a container, under numbers of the system outside.
        ([UNKNOWN, UNKNOWN + 1, UNKNOWN + 2], bystanders.PRESENT),
    ],
)
def test_bystanders_on_a_gpu_are_whoever_does_not_belong_to_the_measurement(monkeypatch, idle, pids, sentence):
    monkeypatch.setattr(bystanders.gpu_memory, "taken", lambda: 0)
    monkeypatch.setattr(os, "getppid", lambda: OWN)  # Process 1 may be what started the tests.
    seen = pids and [idle.pid if pid == "child" else pid for pid in pids]
    monkeypatch.setattr(bystanders.machine_state, "gpu_processes", lambda: seen)
    assert bystanders.Bystanders(own=lambda: 2).sentence() == sentence


class FakeNvml:
    """NVML of a GPU that has a desktop, or of a part of one."""

    NVMLError = type("NVMLError", (Exception,), {})

    def __init__(self, uuid: str, *, draws: bool) -> None:
        self._uuid, self._draws = uuid, draws

    def nvmlInit(self) -> None:  # noqa: N802
        pass

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> str:  # noqa: N802
        if uuid != self._uuid:
            raise self.NVMLError("Not Found")
        return uuid

    def nvmlDeviceGetComputeRunningProcesses(self, gpu: str) -> list[SimpleNamespace]:  # noqa: N802
        return [SimpleNamespace(pid=7), SimpleNamespace(pid=5)]

    def nvmlDeviceGetGraphicsRunningProcesses(self, gpu: str) -> list[SimpleNamespace]:  # noqa: N802
        if not self._draws:
            raise self.NVMLError("Not Supported")
        return [SimpleNamespace(pid=3), SimpleNamespace(pid=5)]


@pytest.mark.parametrize(
    ("uuid", "draws", "pids"), [("GPU-12", True, [3, 5, 7]), ("MIG-12", False, [5, 7]), ("GPU-34", True, None)]
)
def test_the_processes_of_a_gpu_are_those_that_nvml_says(monkeypatch, uuid, draws, pids):
    monkeypatch.setitem(sys.modules, "pynvml", FakeNvml(uuid, draws=draws))
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: SimpleNamespace(uuid="12"))
    assert machine_state.gpu_processes() == pids


def test_descendants_are_found_at_any_depth():
    first = os.fork()
    if first == 0:
        os.fork()
        time.sleep(30)
        os._exit(0)
    try:
        end = time.monotonic() + 20
        while len(descendants(first)) < 1 and time.monotonic() < end:
            time.sleep(0.01)
        (second,) = descendants(first)
        assert {first, second} <= set(descendants(os.getpid()))
    finally:
        for pid in (*descendants(first), first):
            os.kill(pid, 9)
        os.waitpid(first, 0)
