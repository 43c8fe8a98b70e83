"""Ops that write to their arguments: what they wrote is their result, and nothing else may have changed."""

import contextlib
import threading
from collections import deque

import pytest
import torch

from kernelgen.errors import LabError
from kernelgen.protocol import OP
from kernelgen.worker.cases import complete
from kernelgen.worker.judge.arena import CpuArena
from kernelgen.worker.judge.case import MOST_CALLS, JudgedCase
from kernelgen.worker.judge.drawing import Drawing
from kernelgen.worker.judge.noise import NoiseTape
from kernelgen.worker.mutation import on_copies
from kernelgen.worker.op import Op

from . import same_process
from .bench_ops import described


def add_into(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return x.add_(y)


def described_op(function, **names) -> Op:
    """An op that adds a tensor to another in place."""
    facts = {
        "REFERENCE": add_into,
        "PEERS": {},
        "MUTATES": (0,),
        "GRADIENT": False,
        "inputs": lambda make, n: (make((n, 7)), make((n, 7))),
    }
    return described(function, **facts | names)


def fault_of_timing(function, **names) -> str:
    """The first fault over a few blocks."""
    op, arena = described_op(function, **names), CpuArena()
    drawing = Drawing(op, {"n": 100}, torch.float32, "cpu", NoiseTape("cpu"))
    timed = JudgedCase(drawing, {OP: same_process.SameProcess(function, arena, op.mutates)}, arena, None)
    timed.plan(timed.warm_up(OP))
    for _ in range(3):
        timed.fresh()
        timed.sample(OP)
        if fault := timed.check().fault:
            return fault
    return timed.check_afterwards().fault or ""


def fault_of_fuzzing(function, **case) -> str:
    op = described_op(function)
    fault = same_process.run_case(op, complete(op, {"n": 5, **case}), 3)
    return f"{fault.check}: {fault.text}" if fault else ""


def nothing(x, y):
    return x


def new(x, y):
    return x + y


def both(x, y):
    x.add_(y)
    y.zero_()
    return x


class Late:
    """Leaves its work to a thread that runs when the judge gives it time, and never before."""

    def __init__(self) -> None:
        self.work = deque(maxlen=MOST_CALLS)  # Of the last sample.

    def __call__(self, x, y):
        def add():
            with contextlib.suppress(RuntimeError), torch.no_grad():  # It is an inference tensor in some calls.
                x.add_(y)

        self.work.append(threading.Thread(target=add))
        return x

    def finish(self) -> None:
        while self.work:
            thread = self.work.pop()
            thread.start()
            thread.join()


late = Late()


def as_if_dense(x, y):
    """Right where x has no gaps."""
    torch.as_strided(x, (x.numel(),), (1,)).add_(y.flatten())
    return x


def as_out(x, y, out):
    return torch.add(x, y, out=out)


def kept(x, y, results={}):  # noqa: B006
    """Computes once for each address."""
    x.copy_(results.setdefault((x.data_ptr(), y.data_ptr()), x + y))
    return x


def test_a_right_op_is_timed_and_fuzzed():
    assert fault_of_timing(add_into) == ""
    assert fault_of_fuzzing(add_into) == ""
    assert fault_of_fuzzing(lambda x, y: [x.add_(y)][1:]) == ""  # What is an argument need not be returned.


def test_a_result_that_is_an_argument_by_name():
    inputs = lambda make, n: (make((n, 7)), make((n, 7)), make((n, 7)))  # noqa: E731
    facts = {"REFERENCE": as_out, "MUTATES": (2,), "inputs": inputs}
    assert fault_of_timing(as_out, **facts) == ""
    assert "output 0" in fault_of_timing(lambda x, y, out: out, **facts)


@pytest.mark.parametrize(
    ("function", "of_timing", "of_fuzzing"),
    [
        (nothing, "output 0", "output 0"),
        (new, "it returned 2 tensors where its reference returns 1", "output"),
        (both, "it wrote to its inputs", "inputs: it wrote to its inputs"),
        (late, "work was left on another stream or thread", "output 0"),
        (kept, "earlier values at the same addresses", "output 0"),
    ],
)
def test_faults(function, of_timing, of_fuzzing, monkeypatch):
    monkeypatch.setattr(same_process.SameProcess, "settle", lambda self, seconds: late.finish())
    assert of_timing in fault_of_timing(function)
    assert of_fuzzing in fault_of_fuzzing(function)


@pytest.mark.parametrize("layout", ["transposed", "wide rows", "misaligned", "expanded"])
def test_an_argument_is_written_to_in_every_layout(layout):
    assert fault_of_fuzzing(add_into, layout=layout) == ""


def test_gaps_between_the_rows_of_an_argument_stay():
    assert fault_of_fuzzing(as_if_dense) == ""
    assert "output 0" in fault_of_fuzzing(as_if_dense, layout="wide rows")


@pytest.mark.parametrize("call", ["repeated", "several threads", "compiled"])
def test_it_is_called_in_other_ways(call):
    assert fault_of_fuzzing(add_into, call=call) == ""


def test_copies_lie_as_their_originals_do():
    x = torch.arange(40.0)[3:].as_strided((4, 5), (7, 1))
    (copy,), others = on_copies(add_into, (0,))(x, torch.zeros(4, 5))
    assert torch.equal(copy, x)
    assert copy.stride() == x.stride()
    assert copy.storage_offset() % 4 == x.storage_offset() % 4
    assert others == []


def test_an_op_that_writes_to_its_arguments_has_no_gradient():
    with pytest.raises(LabError, match="GRADIENT should be False"):
        described_op(add_into, GRADIENT=True)


def test_what_returns_no_tensor_is_not_timed():
    with pytest.raises(LabError, match=r"returns no tensor.*`kernelgen fuzz tested`"):
        fault_of_timing(lambda x, y: x.numel(), REFERENCE=lambda x, y: x.numel(), MUTATES=())


def test_numbers_among_the_results_are_compared():
    op = described_op(lambda x, y: (x + y, 5), REFERENCE=lambda x, y: (x + y, 4), MUTATES=())
    fault = same_process.run_case(op, complete(op, {"n": 5}), 3)
    assert fault.text == "it returns a tuple of (a tensor, int 5), its reference a tuple of (a tensor, int 4)"
