"""How the judge reads an op's results from a GPU's memory: here from a fake one, which frees and gives again."""

from types import SimpleNamespace

import pytest
import torch

from kernelgen.errors import LabError
from kernelgen.protocol import OP
from kernelgen.worker import clock
from kernelgen.worker.judge import bystanders, reading
from kernelgen.worker.judge.arena import CpuArena, CudaArena
from kernelgen.worker.judge.case import JudgedCase
from kernelgen.worker.judge.comparison import CheckResult
from kernelgen.worker.judge.drawing import Drawing
from kernelgen.worker.judge.errors import RaisedError
from kernelgen.worker.judge.noise import NoiseTape
from kernelgen.worker.judge.sample_results import READ_LATE

from .bench_ops import described, double_plus_one
from .fake_gpu import FakeDriver, FakeGpuProcess, installed, with_fake_gpu
from .test_judged_case import too_little_memory


def two_results(x):
    return double_plus_one(x), x - 1


def raised(error: Exception) -> None:
    raise error


def made(monkeypatch, function, seed=0) -> JudgedCase:
    driver, arena = installed(monkeypatch), CpuArena()
    op = described(function, REFERENCE=two_results)
    drawing = Drawing(op, {"n": 1000}, torch.float32, "cpu", NoiseTape("cpu"))
    monkeypatch.setattr(clock, "WARM_UP_S", 0.0)
    timed = JudgedCase(drawing, {OP: FakeGpuProcess(function, arena, driver, seed)}, arena, None)
    monkeypatch.setattr(timed, "_check_contract", lambda *_: None)  # Which a GPU has none of.
    with_fake_gpu(timed)
    timed._set_count = 2
    timed.warm_up(OP)
    return timed


@pytest.mark.parametrize("seed", range(2))
def test_a_right_op_is_right_wherever_its_allocations_are_freed_and_made_again(monkeypatch, seed):
    timed = made(monkeypatch, two_results, seed)
    results = []
    for _ in range(15):
        timed.fresh()
        for _ in range(5):
            timed.sample(OP)
            results.append(timed.check())
    assert {result.fault for result in results} == {None}
    assert [result.doubt for result in results].count(READ_LATE) < len(results) // 4


@pytest.mark.parametrize("lacking", ["shares", "numbers"])
def test_memory_that_cuda_does_not_share_is_copied_which_raises_a_doubt(monkeypatch, lacking):
    """As an expandable segment; or as with a driver that does not number its allocations."""
    monkeypatch.setattr(FakeDriver, lacking, False)
    timed = made(monkeypatch, two_results)
    for _ in range(5):
        timed.sample(OP)
        assert timed.check() == CheckResult(doubt=READ_LATE)
    wrong = made(monkeypatch, lambda x: (double_plus_one(x), torch.zeros_like(x)))
    wrong.sample(OP)
    assert "output 1" in wrong.check().fault


@pytest.mark.parametrize("others", [None, bystanders.PRESENT])
def test_an_op_that_lacks_memory_which_others_may_hold_is_not_wrong(monkeypatch, others):
    timed = made(monkeypatch, two_results)
    timed.sample(OP)
    timed._is_cuda, timed.bystanders = True, SimpleNamespace(sentence=lambda: others)
    monkeypatch.setattr(timed.results, "read", lambda _: raised(RaisedError("OutOfMemoryError", "tried 2 GiB")))
    result = timed.check()
    assert bool(result.doubt) == bool(others)
    assert result.fault == (None if others else "OutOfMemoryError: tried 2 GiB")


def test_a_gpu_that_shares_no_memory_is_no_fault_of_the_op(monkeypatch):
    error = torch.AcceleratorError("CUDA error: operation not supported\nSee the manual.")
    storage = SimpleNamespace(_share_cuda_=lambda: raised(error))
    for name in ("synchronize", "ipc_collect", "empty_cache"):
        monkeypatch.setattr(torch.cuda, name, lambda: None)
    monkeypatch.setattr(torch, "empty", lambda *_, **__: SimpleNamespace(untyped_storage=lambda: storage))
    with pytest.raises(LabError, match=r"shares no memory here.*not supported"):
        CudaArena().resize(10)


def test_a_gpu_that_failed_is_no_memory_that_cannot_be_read(monkeypatch):
    """Another process of the judge goes on."""

    def broken(*_):
        raise RuntimeError("CUDA error: an illegal memory access was encountered")

    timed = made(monkeypatch, two_results)
    timed.sample(OP)
    for name in ("read", "open"):
        with monkeypatch.context() as patch:
            patch.setattr(reading.GpuMemory, name, broken)
            timed.results.readers[timed._processes[0]].close()
            with pytest.raises(RuntimeError, match="illegal memory access"):
                timed.check()


def test_a_kept_result_is_wrong_there_too(monkeypatch):
    kept = []

    def cached(x):
        kept.append(two_results(x))
        return kept[0]

    timed = made(monkeypatch, cached)
    timed.fresh()
    timed.sample(OP)
    assert "earlier values at the same addresses" in timed.check().fault


def test_what_is_wrong_is_named_though_results_were_freed_to_make_room_for_the_reference(monkeypatch):
    timed = made(monkeypatch, lambda x: (torch.zeros_like(x), x - 1))
    (process,) = timed._processes

    def free() -> CheckResult:
        timed.results.close()
        process.ask("free_memory")
        return CheckResult()

    monkeypatch.setattr(timed, "hoards", free)
    timed.sample(OP)
    with too_little_memory(monkeypatch, torch.float64):
        assert timed.check().fault.startswith("output 0 is wrong by far")


def test_a_gpu_without_room_for_a_copy_is_no_fault_of_the_op(monkeypatch):
    """The judge frees what it can, and says that nothing was compared."""

    def short(*_):
        raise torch.OutOfMemoryError("tried to allocate 512 GiB")

    timed = made(monkeypatch, two_results)
    timed.sample(OP)
    monkeypatch.setattr(reading.GpuMemory, "read", short)
    assert timed.check().fault is None
    assert "were not compared" in timed.check().doubt
