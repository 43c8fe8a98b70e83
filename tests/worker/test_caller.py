"""What the judge reads of an op for fuzz, and what it does with answers that are none."""

import json
import pickle
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from kernelgen.errors import LabError
from kernelgen.worker import contract, fuzz
from kernelgen.worker.cases import complete
from kernelgen.worker.judge.arena import CpuArena
from kernelgen.worker.judge.caller import Caller, Region
from kernelgen.worker.judge.errors import NOT_ASKED_FOR, CallError, RaisedError
from kernelgen.worker.judge.op_process import OpProcess
from kernelgen.worker.mismatch import Fault, MismatchError, OpOutOfMemoryError
from kernelgen.worker.op_host import OK

from . import same_process
from .same_process import SameProcess
from .test_fuzz import an_op


class Answering(OpProcess):
    """A process that answers every order with the same."""

    def __init__(self, answer: Any) -> None:
        self._answer = answer

    def order(self, do: str, **arguments: Any) -> None:
        self._ordered = do, arguments.get("call", "")

    def stop(self) -> None:
        pass

    def _receive(self) -> bytes:
        if isinstance(self._answer, Exception):
            raise self._answer
        return OK + json.dumps(self._answer).encode()

    def read(self, address: int, nbytes: int) -> torch.Tensor:
        return torch.empty(nbytes, dtype=torch.uint8)


def told(answer: Any) -> Caller:
    return Caller(Answering(answer), CpuArena(), "cpu")


class Opened:
    """A GPU's memory that a caller has opened, or not."""

    def __init__(self) -> None:
        self.is_open = True

    def close(self) -> None:
        self.is_open = False


def test_no_memory_of_the_op_is_open_while_it_runs():
    """It may free what it has, and CUDA does not define reads of freed memory that another process had opened."""
    caller = told(an_output())
    caller._memory = Opened()
    caller.order("forward")
    assert not caller._memory.is_open


def an_output(**changes: Any) -> dict[str, Any]:
    facts = {"type": "torch.Tensor", "dtype": "torch.float32", "shape": [3], "stride": [1], "device": "cpu"}
    facts |= {"address": 64, "place": None, **changes}
    return {"calls": [{"kind": "a tensor", "outputs": [list(facts.values())], "grads": []}], "allocations": []}


@pytest.mark.parametrize(
    "answer",
    [
        None,
        7,
        {},
        {"calls": None},
        {"calls": []},
        {"calls": [None]},
        {"calls": [{"kind": None, "outputs": [], "grads": []}]},
        {"calls": [{"kind": "a tensor", "outputs": [None], "grads": []}]},
        {"calls": [{"kind": "a tensor", "outputs": [["torch.Tensor"]], "grads": []}]},
        an_output(dtype="torch.save"),
        an_output(shape=[-3]),
        an_output(stride=[1, 1]),
        an_output(address="here"),
        an_output(device=7),
        an_output(shape=[2**40, 2**40], stride=[0, 0]),
        an_output(place=["00", 0]),
    ],
)
def test_an_answer_that_is_none_is_a_fault(answer):
    with pytest.raises(MismatchError) as raised:
        told(answer).call("repeat", times=1, mode="no_grad")
    assert raised.value.fault.check == "outputs"


FORGED = [None, 7, {}, [None], [["a", "b"]], {"a": 1}]


@pytest.mark.parametrize("key", ["calls", "state"])
@pytest.mark.parametrize("forged", [*FORGED, "missing"])
def test_a_forged_answer_to_a_draw_is_a_fault(key, forged, monkeypatch):
    answer = {"calls": 2 * an_output()["calls"], "allocations": [], "state": []}
    answer[key] = forged
    fault = fault_of({name: value for name, value in answer.items() if value != "missing"}, "draw", monkeypatch)
    assert fault.text == NOT_ASKED_FOR


@pytest.mark.parametrize("key", ["calls", "fake", "cotangents"])
@pytest.mark.parametrize("forged", [*FORGED, "missing"])
def test_a_forged_answer_about_the_contract_is_a_fault(key, forged, monkeypatch):
    if (key, forged) == ("fake", None):
        return  # All fakes are right.
    answer = {"calls": 2 * an_output()["calls"], "allocations": [], "fake": None, "cotangents": []}
    answer[key] = forged
    fault = fault_of({name: value for name, value in answer.items() if value != "missing"}, "contract", monkeypatch)
    assert fault.text == NOT_ASKED_FOR or fault.check == "fake" == key


def test_cotangents_of_any_size_are_no_reason_to_end():
    huge = ["torch.Tensor", "torch.float32", [2], [2**43], "cpu", 0]
    answer = {"calls": 2 * an_output()["calls"], "allocations": [], "fake": None, "cotangents": [huge]}
    caller = told(answer)
    caller._addresses = {}
    contract.order(caller)
    op = SimpleNamespace(reference=lambda: torch.zeros(3), contiguous=True)
    with pytest.raises(MismatchError, match="lies in the memory of an earlier call's results"):
        contract.check(op, caller, ())


def fault_of(answer: Any, call: str, monkeypatch) -> Fault:
    """What examining an op gives whose process answers one kind of call so, and all else as it should."""
    op = an_op()
    caller = same_process.caller_of(op.function)
    real = SameProcess.answer

    def answered(process: SameProcess) -> dict[str, Any]:
        do, arguments = pickle.loads(process._ordered)
        if arguments.get("call") != call:
            return real(process)
        forging = Answering(answer)
        forging.order(do, **arguments)
        return forging.answer()

    monkeypatch.setattr(SameProcess, "answer", answered)
    fault = fuzz.examine(op, complete(op, {"rows": 200, "columns": 17}), "cpu", 0, caller).fault
    assert fault
    return fault


@pytest.mark.parametrize(
    "order", ["load_op", "require_kernel", "graphs", "join_calls", "left", "layouts", "allocations"]
)
@pytest.mark.parametrize("forged", [None, [], 7, {}, {"missing": 0, "captured": 0, "seconds": "", "layouts": [0]}])
def test_a_forged_answer_to_the_judge_is_the_ops_fault(order, forged):
    with pytest.raises(CallError, match="did not ask for"):
        Answering(forged).ask(order)


@pytest.mark.parametrize(
    ("output", "sentence"),
    [
        (an_output(type="lab.LazyTensor"), "it returned a lab.LazyTensor, not a plain torch.Tensor"),
        (an_output(device="cuda:0"), "it returned a tensor on cuda:0 for inputs on cpu"),
        (an_output(shape=[2**60]), "which cannot be read"),
    ],
)
def test_what_cannot_be_read_is_a_fault(output, sentence):
    with pytest.raises(MismatchError, match=sentence):
        told(output).evaluate()


@pytest.mark.parametrize(
    ("kind", "message", "expected", "sentence"),
    [
        ("ValueError", "no such shape\nand more", MismatchError, "^it raised ValueError: no such shape$"),
        ("OutOfMemoryError", "CUDA out of memory", OpOutOfMemoryError, "out of memory"),
        ("NotImplementedError", "add: kernel not written yet", LabError, "not written yet"),
        ("RuntimeError", "race\non the emulated GPU\nin a.cu", MismatchError, "(?s)race.*in a.cu"),
        ("AcceleratorError", "an illegal memory access", RuntimeError, "CUDA error"),
    ],
)
def test_what_the_op_raises(kind, message, expected, sentence):
    with pytest.raises(expected, match=sentence):
        told(RaisedError(kind, message)).evaluate()


def test_the_op_gets_copies_of_whole_storages_and_what_it_writes_is_seen():
    wide = torch.arange(20.0)
    x, y = wide[4:10:2], wide[5:8]
    seen = []

    def write_before(a, b):
        seen.append(
            (a.clone(), b.clone(), a.stride(), a.untyped_storage().data_ptr() == b.untyped_storage().data_ptr())
        )
        a.as_strided((1,), (1,), 0).fill_(7)
        return a + b

    caller = same_process.caller_of(write_before)
    caller.place(((x, y), []))
    assert not caller.were_changed()
    assert torch.equal(caller.evaluate().outputs[0], x + y)
    assert caller.were_changed()
    assert wide[0] == 0
    a, b, stride, is_shared = seen[0]
    assert (a.tolist(), b.tolist(), stride, is_shared) == (x.tolist(), y.tolist(), (2,), True)
    caller.hand_over()
    assert not caller.were_changed()


def test_an_answer_that_nobody_took_is_not_that_of_the_next_order():
    calls = iter(range(10))
    caller = same_process.caller_of(lambda a: a + next(calls))
    caller.place(((torch.zeros(2),), []))
    caller.order("evaluate", number=0)
    assert caller.evaluate().outputs[0].tolist() == [1, 1]


def test_results_have_plain_strides():
    """Of an odd stride of a dimension of one element, too, which `contiguous` keeps."""
    caller = same_process.caller_of(lambda a: (a[:1], a.t()))
    caller.place(((torch.zeros(4, 6)[:, ::3],), []))
    assert [out.stride() for out in caller.evaluate().outputs] == [(2, 1), (4, 1)]


@pytest.mark.parametrize(
    ("address", "shape", "stride", "shares"),
    [
        (100, (4,), (1,), True),
        (104, (4,), (1,), True),
        (116, (4,), (1,), False),
        (104, (4,), (2,), False),
        (104, (4,), (3,), True),
        (102, (1,), (1,), True),
        (100, (0,), (1,), False),
    ],
)
def test_memory_that_two_tensors_share(address, shape, stride, shares):
    first = Region(100, torch.float32, (3,), (2,)) if stride[0] > 1 else Region(100, torch.float32, (4,), (1,))
    assert contract._shares_memory(first, Region(address, torch.float32, shape, stride)) is shares
