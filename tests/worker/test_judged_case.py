"""Each way for an op to look faster than it is, and honest ops that look like one, in one process; what a process
makes of it is in test_exploits.py."""

import contextlib
import itertools
import math
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from types import SimpleNamespace

import pytest
import torch

from kernelgen.cores import CORES
from kernelgen.protocol import OP
from kernelgen.worker import machine_state
from kernelgen.worker.compare import ComparedVersion
from kernelgen.worker.judge import bystanders, comparison, wall
from kernelgen.worker.judge.arena import CpuArena
from kernelgen.worker.judge.case import MOVED, NEVER_IDLE, JudgedCase
from kernelgen.worker.judge.comparison import CheckResult
from kernelgen.worker.judge.drawing import Drawing
from kernelgen.worker.judge.noise import NoiseTape
from kernelgen.worker.judge.reading import CpuReader

from .bench_ops import described, double_plus_one
from .same_process import SameProcess


def faults(function, times=4, *, backward=False, **names) -> str:
    """The first fault over a few blocks."""
    timed = made(function, backward=backward, **names)
    for _ in range(times):
        timed.fresh()
        if fault := checked(timed).fault:
            return fault
    return timed.check_afterwards().fault or ""


def made(function, *, backward=False, dtype=torch.float32, **names) -> JudgedCase:
    arena = CpuArena()
    op = described(function, **names)
    drawing = Drawing(op, {"n": 1000}, dtype, "cpu", NoiseTape("cpu"), backward=backward)
    timed = JudgedCase(drawing, {OP: SameProcess(function, arena)}, arena, None)
    timed.plan(timed.warm_up(OP))
    return timed


def checked(timed: JudgedCase) -> CheckResult:
    timed.sample(OP)
    return timed.check()


@contextlib.contextmanager
def too_little_memory(monkeypatch, *dtypes):
    """The reference fits the memory in no such dtype."""
    evaluate = comparison.evaluate

    def short(function, args, cotangents=()):
        if args[0].dtype in dtypes:
            raise torch.OutOfMemoryError("tried to allocate 512 GiB")
        return evaluate(function, args, cotangents)

    with monkeypatch.context() as patch:
        patch.setattr(comparison, "evaluate", short)
        yield


@pytest.mark.parametrize("backward", [False, True])
def test_an_honest_op_passes(backward):
    assert faults(double_plus_one, backward=backward) == ""


@pytest.mark.parametrize("backward", [False, True])
def test_what_is_compared_in_full_needs_no_remark(backward):
    assert checked(made(double_plus_one, backward=backward)) == CheckResult()


@pytest.mark.parametrize("backward", [False, True])
def test_a_reference_that_is_too_large_in_float64_is_computed_in_the_ops_dtype_and_that_is_said(monkeypatch, backward):
    with too_little_memory(monkeypatch, torch.float64):
        assert checked(made(double_plus_one, backward=backward)) == CheckResult(remark=comparison.COARSELY)
    assert "in float64 it does not fit" in comparison.COARSELY


def test_a_reference_that_fits_in_no_dtype_is_said(monkeypatch):
    with too_little_memory(monkeypatch, torch.float64, torch.float32):
        assert checked(made(double_plus_one)) == CheckResult(doubt=comparison.NOT_COMPARED)
        assert "wrote to its inputs" in faults(lambda x: x.mul_(2).add_(1))  # For which no reference is needed.


def test_special_values_whose_reference_does_not_fit_are_not_compared():
    def short(x):
        if x.dtype == torch.float64:
            raise torch.OutOfMemoryError("tried to allocate 512 GiB")
        return double_plus_one(x)

    timed = made(lambda x: x * 3, REFERENCE=short)
    timed.fresh()
    assert timed.check_special_values(OP) == CheckResult()
    assert "wrong by far" in timed.check().fault


def refusing_infinities(x):
    if not x.isfinite().all():
        raise ValueError("x has to be finite")
    return double_plus_one(x)


def kinds_of_values(monkeypatch, kind: str) -> None:
    monkeypatch.setattr("kernelgen.worker.judge.case.VALUES", ("normal", kind))


def test_special_values_that_op_and_reference_refuse_are_no_fault(monkeypatch):
    kinds_of_values(monkeypatch, "infinite")
    for reference, fault in ((refusing_infinities, None), (double_plus_one, "ValueError: x has to be finite")):
        timed = made(refusing_infinities, REFERENCE=reference)
        timed.fresh()
        assert timed.check_special_values(OP).fault == fault


def test_special_values_that_lab_py_does_not_draw_are_no_fault(monkeypatch):
    kinds_of_values(monkeypatch, "infinite")
    timed = made(lambda x: x * 3, inputs=lambda make, n: (refusing_infinities(make((n,))),))
    timed.fresh()
    assert timed.check_special_values(OP) == CheckResult()


def test_a_result_that_is_too_large_to_be_compared_in_float64(monkeypatch):
    def short(*_):
        raise torch.OutOfMemoryError("tried to allocate 512 GiB")

    monkeypatch.setattr(comparison.tensor_comparison, "compare", short)
    assert checked(made(double_plus_one)).remark == comparison.COARSELY


def test_a_coarse_comparison_sees_what_was_not_computed(monkeypatch):
    kept = {}

    def cached(x):
        return kept.setdefault(x.data_ptr(), double_plus_one(x))

    def half(x):
        return torch.cat([double_plus_one(x[:500]), torch.zeros_like(x[500:])])

    with too_little_memory(monkeypatch, torch.float64):
        assert "earlier values at the same addresses" in faults(cached)
        assert "output 0 is wrong by far" in faults(half)
        assert "it returned 2 tensors" in faults(lambda x: (double_plus_one(x), x + 1))
        assert "output 0 is (999,) float32" in faults(lambda x: double_plus_one(x[1:]))


def wide_inside(x):
    """As a softmax's scores of 70: rounded to 16 bits, the first element's is no longer what it was."""
    return torch.cat([x[:1].float() * 0 + 4104 - 4096, x[1:].float()]).to(x.dtype)


def narrow_inside(x):
    return torch.cat([x[:1] * 0 + 4104 - 4096, x[1:]])


@pytest.mark.parametrize("short", [(torch.float64,), (torch.float64, torch.float32)])
def test_a_reference_that_is_wrong_by_far_itself_in_16_bits_accuses_nobody(monkeypatch, short):
    """One in float32 decides; where that does not fit either, few elements may differ so."""

    def half(x):
        return torch.cat([wide_inside(x[:500]), torch.zeros_like(x[500:])])

    names = {"dtype": torch.bfloat16, "REFERENCE": narrow_inside}
    with too_little_memory(monkeypatch, *short):
        right, wrong = made(wide_inside, **names), made(half, **names)
        assert checked(right) == CheckResult(remark=comparison.COARSELY)
        assert right.check(coarsely=True).fault is None
        assert "output 0 is wrong by far" in checked(wrong).fault


def test_outputs_cached_by_input_address():
    kept = {}

    def cached(x):
        if x.data_ptr() not in kept:
            kept[x.data_ptr()] = double_plus_one(x)
        return kept[x.data_ptr()]

    assert "earlier values at the same addresses" in faults(cached)


def test_outputs_cached_by_address_and_version():
    """Autograd's version counters do not give the new values away."""
    kept = {}

    def cached(x):
        key = x.data_ptr(), x._version
        if key not in kept:
            kept[key] = double_plus_one(x)
        return kept[key].clone()

    assert "earlier values at the same addresses" in faults(cached)


def transposed(make, n):
    return (make((n // 10, 10)),)


@pytest.mark.parametrize(
    ("cheat", "fault"),
    [
        (lambda x: x.t(), "strides"),
        (lambda x: x.clone().t(), "strides"),
        (lambda x: x.view(10, -1), "lies in the memory of input 0"),
    ],
)
def test_results_that_are_views(cheat, fault):
    """Right values without the work; so fuzz sees them, but an op may know that it is timed."""
    right = [lambda x: x.t().contiguous(), lambda x: x.view(10, -1).clone()]["memory" in fault]
    names = {"REFERENCE": right, "inputs": transposed}
    assert fault in faults(cheat, **names)
    assert faults(right, **names) == ""
    assert faults(cheat, **{**names, "REFERENCE": cheat}) == ""


class OpenedReader(CpuReader):
    """As on a GPU, whose memory is read where it was opened before."""

    is_open = False

    def read(self, results):
        return super().read(results) if self.is_open else None

    def open(self):
        self.is_open = True

    def close(self):
        self.is_open = False


def test_memory_that_has_to_be_opened(monkeypatch):
    """It is before the clock runs, so that the op need not run again for a check; and is not when the op frees it."""
    timed = made(double_plus_one)
    (process,) = timed._processes
    reader = timed.results.readers[process] = OpenedReader(process)
    timed.fresh()
    timed.sample(OP)
    with monkeypatch.context() as patches:
        patches.setattr(timed, "run", None)
        assert timed.check().fault is None
    asked = []
    monkeypatch.setattr(process, "ask", lambda do, **_: asked.append((do, reader.is_open)))
    timed.place(timed.sets)
    assert asked == [("inputs", False)]
    reader.open()
    timed.forget()
    assert not reader.is_open
    monkeypatch.setattr(timed, "_is_cuda", True)
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: asked.append(("empty", reader.is_open)))
    timed.bystanders = SimpleNamespace(more_taken=lambda: 2**40, sentence=lambda: None)
    reader.open()
    assert "1024.0 GiB" in timed.hoards().fault
    assert asked[1:] == [("free_memory", False), ("empty", False)]
    timed.bystanders.sentence = lambda: bystanders.PRESENT  # Which may hold it.
    assert timed.hoards() == CheckResult(doubt=f"{comparison.NOT_COMPARED}; {bystanders.PRESENT}")


def test_a_peer_that_is_held_back(monkeypatch):
    """By the op, which is then faster than it."""
    timed = made(double_plus_one)
    peer = SameProcess(double_plus_one, timed._arena)
    timed.join(peer)
    timed.fresh()
    assert checked(timed).fault is None
    peer.is_held_back = lambda: True
    assert "what it is measured against" in checked(timed).fault


@pytest.mark.skipif(len(CORES) < 2, reason="needs two cores")
def test_who_moves_the_judge_to_other_cores_raises_a_doubt():
    """Its peers follow it: on one core, who needs several is slow. A block later all are back."""
    timed = made(double_plus_one)
    timed.fresh()
    try:
        os.sched_setaffinity(0, {min(CORES)})
        assert checked(timed) == CheckResult(doubt=MOVED)
        timed.fresh()
        assert os.sched_getaffinity(0) == CORES
        assert checked(timed) == CheckResult()
    finally:
        os.sched_setaffinity(0, CORES)


def test_a_process_that_goes_on_while_it_is_stopped():
    timed = made(double_plus_one)
    timed._processes[0].goes_on = lambda: True
    assert "went on while it was stopped" in checked(timed).fault


def test_samples_of_a_warm_up_do_not_hide_those_before_which_a_process_goes_on():
    timed = made(double_plus_one)
    process = timed._processes[0]
    process._samples, process._samples_ahead = 1000, 0
    timed.plan(1e-3)
    assert (process._samples, process.goes_on()) == (0, False)


def test_an_op_that_counts_the_samples_of_an_order():
    """It computes in the last one alone, after which there was a check once."""
    sets = []

    def counting(x):
        if x.data_ptr() not in sets:
            sets.append(x.data_ptr())
            return double_plus_one(x)
        sets.append(0)
        return double_plus_one(x) if sets.count(0) % 3 == 0 else torch.zeros_like(x)

    version = ComparedVersion({})
    version.timed, version.watch = made(double_plus_one), machine_state.watch("cpu", [])
    version.timed.functions[OP] = SameProcess(counting, version.timed._arena)
    version.timed._processes[:] = version.timed.functions.values()
    version.timed.results.readers = {process: CpuReader(process) for process in version.timed._processes}
    version.timed.calls_a_sample = 1
    for _ in range(20):
        sets.clear()
        version.fresh(graphs=False, among=15)
        for _ in range(5):
            version.sample(3)
    assert "output 0" in version.check()["fault"]


def test_inputs_overwritten():
    def overwrites(x):
        return x.mul_(2).add_(1)

    assert "wrote to its inputs" in faults(overwrites)


def test_work_skipped_after_the_first_calls():
    calls = []

    def lazy(x):
        calls.append(1)
        return double_plus_one(x) if len(calls) < 50 else torch.zeros_like(x)

    assert "output 0" in faults(lazy)


def test_every_other_call_returns_a_stale_buffer():
    last = []

    def stale(x):
        last.append(0)
        if len(last) % 2 and len(last) > 1:
            return buffer.clone()
        buffer.copy_(double_plus_one(x))
        return buffer.clone()

    buffer = torch.empty(1000)
    assert faults(stale) != ""


def test_what_normal_numbers_make_unnecessary_is_missed_where_it_is_left_out():
    """Their variance is 1, their mean 0, to about the precision of bfloat16."""

    def norm(x):
        return x * torch.rsqrt(x.double().square().mean(-1, keepdim=True)).to(x.dtype)

    def judged(function):
        lab = {"REFERENCE": norm, "inputs": lambda make, n: (make((4, n)),)}
        op = described(function, **lab)
        drawing = Drawing(op, {"n": 8192}, torch.bfloat16, "cpu", NoiseTape("cpu"))
        arena = CpuArena()
        timed = JudgedCase(drawing, {OP: SameProcess(function, arena)}, arena, None)
        timed.plan(timed.warm_up(OP))
        return [checked(timed).fault for _ in range(3)]

    assert judged(norm) == [None] * 3
    assert all("float64 reference says" in fault for fault in judged(lambda x: x * 1))


def test_what_hardware_loses_is_allowed():
    def lossy(x):
        return x * 2 + 1 + 0.001 * x

    for error, faulty in ((0.0011, False), (0.0009, True)):
        timed = made(lossy, ALLOWED_ERROR=lambda x, error=error: {"output 0": error * x.abs()})
        timed.fresh()
        assert bool(checked(timed).fault) == faulty


def test_a_part_of_the_work_skipped():
    def partial(x):
        out = torch.zeros_like(x)
        out[:-1] = double_plus_one(x[:-1])
        return out

    assert "output 0" in faults(partial)


def test_one_buffer_for_every_call():
    buffer = torch.empty(1000)

    def reuses(x):
        return torch.add(x * 2, 1, out=buffer)

    # With several calls a sample the last one's values are in every result; with one, a later call spoils it.
    assert faults(reuses) != ""


def test_work_left_on_a_thread(monkeypatch):
    left = []

    def later(x):
        out = torch.zeros_like(x)
        left.append((out, x))
        return out

    def settle(process, seconds):
        thread = threading.Thread(target=lambda: [out.copy_(double_plus_one(x)) for out, x in left])
        thread.start()
        thread.join()

    monkeypatch.setattr(SameProcess, "settle", settle)  # Which else gives a thread some time, and not always enough.
    assert "another stream or thread" in faults(later)


def test_a_wrong_gradient():
    class Wrong(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return double_plus_one(x)

        @staticmethod
        def backward(ctx, grad):
            return grad

    assert "grad 0" in faults(Wrong.apply, backward=True)


def test_a_cheat_in_cpp(tmp_path, monkeypatch):
    """A compiled op that keeps its first result, which no look at its Python would show."""
    ctypes = pytest.importorskip("ctypes")
    import shutil
    import subprocess

    if not (compiler := shutil.which("g++")):
        pytest.skip("needs g++")
    (tmp_path / "cheat.cpp").write_text(
        "#include <map>\nstatic std::map<const float*, int> seen;\n"
        'extern "C" void run(const float* x, float* y, long n) {\n'
        "  static std::map<const float*, float> first;\n"
        "  if (!first.count(x)) first[x] = x[0];\n"
        "  for (long i = 0; i < n; ++i) y[i] = (i ? x[i] : first[x]) * 2 + 1;\n}\n"
    )
    library = tmp_path / "cheat.so"
    subprocess.run([compiler, "-shared", "-fPIC", "-o", library, tmp_path / "cheat.cpp"], check=True)
    compiled = ctypes.CDLL(str(library)).run

    def cheat(x):
        y = torch.empty_like(x)
        compiled(ctypes.c_void_p(x.data_ptr()), ctypes.c_void_p(y.data_ptr()), ctypes.c_long(x.numel()))
        return y

    assert "output 0" in faults(cheat)


@pytest.mark.parametrize(("leaves_work", "faulty"), [(False, False), (True, True)])
def test_what_another_program_makes_the_gpu_wait_for_is_not_the_ops(leaves_work, faulty, monkeypatch):
    """Most waits are long, as where programs take turns on a GPU; an op that leaves work makes every one long."""
    waits = itertools.cycle([True] * 7 + [False])  # Every second one is timed.

    def synchronize():
        if next(waits) or leaves_work:
            time.sleep(2e-3)

    monkeypatch.setattr(torch.cuda, "synchronize", synchronize)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda: SimpleNamespace(synchronize=lambda: None))
    host = SameProcess(double_plus_one, CpuArena())._host
    host._clock = SimpleNamespace(sample=lambda calls: None)
    assert (host.left()["seconds"] > wall.LEFT_S) == faulty


@pytest.mark.parametrize(
    ("own", "wall_clock", "said"),
    [
        (7e-6, 5.5e-6, None),
        (7e-6 / 3, 5.5e-6, "fault"),
        (5.5e-6 / 3, 3.9e-6, "fault"),
        (4e-6 / 1.8, 3e-6, "doubt"),
        (45e-6, 60e-6, None),
        (45e-6 / 1.3, 55e-6, "fault"),
        (60e-6, 75e-6, None),
        (60e-6, 99e-6, "doubt"),
        (15e-6, 45e-6, "fault"),
        (2e-4, 2.8e-4, None),
        (2e-4, 3.2e-4, "doubt"),
        (2e-4, 4e-4, "fault"),
        (5e-3, 7e-3, None),
        (5e-3, 8e-3, "doubt"),
    ],
)
def test_the_wall_clock_bounds_what_events_say(monkeypatch, own, wall_clock, said):
    """A third of a call's time is seen from a few microseconds on; a GPU that clocks lower is a doubt alone."""
    result = result_of_calls(monkeypatch, own, lambda calls: wall_clock)
    assert (result.fault is not None and "by the wall clock" in result.fault) == (said == "fault")
    assert (result.doubt is not None) == (said == "doubt")


@pytest.mark.parametrize(("wall_clock", "said"), [(12e-6, None), (60e-6, "doubt"), (2e-3, "fault")])
def test_calls_that_no_graph_holds_are_not_believed_where_launches_take_longer(monkeypatch, wall_clock, said):
    result = result_of_calls(monkeypatch, 9e-6, lambda calls: wall_clock, joined=False)
    assert (result.fault is not None, result.doubt is not None) == (said == "fault", said == "doubt")


def test_samples_that_say_less_than_later_calls_count(monkeypatch):
    """An op may know that its samples are over."""
    samples = [9e-6, 2e-6, 2e-6]
    assert result_of_calls(monkeypatch, 9e-6, lambda calls: 9e-6).fault is None
    assert "2.0 µs by its own" in result_of_calls(monkeypatch, 9e-6, lambda calls: 9e-6, samples=samples).fault


@pytest.mark.parametrize(("hidden", "faulty"), [(0.0, False), (10e-6, True)])
def test_a_system_that_lacks_cores_is_not_taken_for_the_op(monkeypatch, hidden, faulty):
    """Each batch waits 4 ms for a core: as much as the calls of a short batch take."""
    fault = result_of_calls(monkeypatch, 9e-6, lambda calls: 9e-6 + hidden + 4e-3 / calls).fault
    assert (fault is not None and "by the wall clock" in fault) == faulty


@pytest.mark.parametrize(("stopped", "faulty"), [(15, False), (1000, True)])
def test_a_process_that_is_stopped_again_and_again_is_not_taken_for_the_op(monkeypatch, stopped, faulty):
    """For so many batches, longer than calls on large inputs take together, of which memory has room for few."""
    batches = itertools.count()
    fault = result_of_calls(monkeypatch, 2e-4, lambda calls: 2e-4 + (1.5e-3 if next(batches) < stopped else 0)).fault
    assert (fault is not None and "by the wall clock" in fault) == faulty


@pytest.mark.parametrize(("waits", "faulty"), [([1e-4, 1e-4, 0.0], False), ([1e-4] * wall.TRIES, True)])
def test_a_machine_that_is_slow_for_a_while_has_left_no_work_elsewhere(monkeypatch, waits, faulty):
    monkeypatch.setattr(wall, "APART_S", 0)
    fault = result_of_calls(monkeypatch, 9e-6, lambda calls: 9e-6, left=iter(waits)).fault
    assert (fault is not None and "work was left elsewhere" in fault) == faulty


def test_launches_that_come_late_do_not_prolong_a_calls_own_time(monkeypatch):
    """Of the readings two in three are of a slow machine; by the others the op hides two thirds of its time."""
    monkeypatch.setattr(wall, "READ_S", 60.0)
    own = itertools.chain([30e-6] * 12, itertools.repeat(3e-6))
    assert "9.0 µs by the wall clock" in result_of_calls(monkeypatch, own, lambda calls: 9e-6).fault


@pytest.mark.parametrize("others", [bystanders.PRESENT, bystanders.UNSEEN])
def test_beside_other_programs_the_wall_clock_raises_a_doubt_alone(monkeypatch, others):
    """Where it agrees with the events, there is none."""
    result = result_of_calls(monkeypatch, 3e-6, lambda calls: 9e-6, others=others)
    assert result.fault is None
    assert others in result.doubt
    assert result_of_calls(monkeypatch, 9e-6, lambda calls: 9e-6, others=others) == CheckResult()


def result_of_calls(
    monkeypatch,
    own: float | Iterator[float],
    seconds_a_call: Callable[[int], float],
    left: Iterator[float] | None = None,
    others: str | None = None,
    joined: bool = True,
    samples: Sequence[float] = (),
) -> CheckResult:
    """What the wall clock says of calls, in one graph or not, that take so long by their own events, and by the clock;
    where the GPU works on after a sample, `left` says for how long."""
    monkeypatch.setattr(wall, "PAUSES_S", [0.0] * len(wall.PAUSES_S))
    own = itertools.repeat(own) if isinstance(own, float) else own
    answers = {
        "arm": dict,
        "left": lambda: {"seconds": next(left) if left else 0.0},
    }
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (2**36, 2**37))
    placed = []
    timed = SimpleNamespace(
        functions={"op": SimpleNamespace(ask=lambda order, **_: answers[order]())},
        run=lambda name, indices: SimpleNamespace(seconds=next(own) if indices == [0] else seconds_a_call(len(placed))),
        join_calls=lambda name: joined,
        sets=placed,
        seconds={"op": [*samples]},
        empty_kernel=(2e-6, 1.2e-6),
        run_joined=lambda name: SimpleNamespace(seconds=seconds_a_call(len(placed))),
        place=lambda sets: placed.__setitem__(slice(None), sets),
        drawing=SimpleNamespace(new_set=lambda: None, nbytes=32_000),
        check=CheckResult,
        backward=False,
        bystanders=SimpleNamespace(sentence=lambda: others),
    )
    return wall.checked_by_the_wall(timed, "op")


@pytest.mark.parametrize(("quiet_s", "doubt"), [(math.inf, None), (0.0, NEVER_IDLE)])
def test_a_gpu_that_is_never_idle_between_calls_raises_a_doubt(monkeypatch, quiet_s, doubt):
    """A kernel that never ends could watch for new inputs, in a process that is stopped."""
    monkeypatch.setattr("kernelgen.worker.judge.case.QUIET_S", quiet_s)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    timed = made(double_plus_one)
    timed._probe = torch.zeros(1)
    timed.sample(OP)
    timed._wait_for_the_gpu()
    assert timed.check() == CheckResult(doubt=doubt)


def test_a_forward_waits_for_its_inputs(monkeypatch):
    """Another process runs it, and the judge's kernels may still be writing what it reads."""
    events = []
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: events.append("synchronize"))
    timed = object.__new__(JudgedCase)
    timed._is_cuda, timed.backward, timed.graphs = True, True, False
    timed.functions = {"op": SimpleNamespace(ask=lambda order, **_: events.append(order))}
    timed._arm("op", [0])
    assert events == ["synchronize", "arm"]
