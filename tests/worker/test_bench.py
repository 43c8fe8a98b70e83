"""What a measurement holds, on the CPU; how long anything takes is not asserted."""

import json
import sys
from types import SimpleNamespace

import pytest
import torch

from kernelgen.errors import LabError
from kernelgen.lab import bench as figures
from kernelgen.lab.remarks import remarks
from kernelgen.protocol import OP
from kernelgen.worker import bench as measure
from kernelgen.worker import ceilings, clock, machine_state
from kernelgen.worker.judge import comparison, trusted
from kernelgen.worker.judge.arena import CpuArena
from kernelgen.worker.judge.case import JudgedCase
from kernelgen.worker.judge.drawing import Drawing
from kernelgen.worker.judge.judge import Judge
from kernelgen.worker.judge.noise import NoiseTape

from .bench_ops import described, double_plus_one, interpreted_project

PEERS = """

def broken(x):
    raise ImportError("no such library")


def wrong(x):
    return x * 2


def meddling(x):
    torch.set_default_dtype(torch.float64)
    return x * 2 + 1


PEERS |= {"broken": broken, "wrong": wrong, "meddling": meddling}
bytes_moved = lambda dtype, n: 2 * n * dtype.itemsize
flops = lambda n: 2 * n
"""


@pytest.fixture(scope="module")
def judge(tmp_path_factory):
    """Of an op in Python, with peers that will do and others that will not."""
    root = interpreted_project(tmp_path_factory.mktemp("judged"))
    with (root / "src/pkg/ops/tested/lab.py").open("a") as lab:
        lab.write(PEERS)
    for name in [name for name in sys.modules if name.partition(".")[0] == "pkg"]:
        del sys.modules[name]
    request = {"project": str(root), "package": "pkg", "device": "cpu", "interpreted": True}
    judge = Judge(request, trusted.load(root, "pkg", "tested"))
    yield judge
    judge.close()


def timed_case(judge, peers=("torch",), **options) -> JudgedCase:
    timed = judge.case({"n": 1000}, torch.float32, backward=False, **options)
    assert measure.add_peers(timed, judge, peers) == {}
    return timed


def measured(timed: JudgedCase, judge: Judge, samples: int, ceilings: dict) -> dict:
    """The samples, and the figures that are made of them."""
    event = {"dtype": "float32", **measure.measure(timed, judge, samples, seed=0)}
    return figures.described(json.loads(json.dumps(event)), ceilings)


@pytest.fixture(autouse=True)
def _short_warm_up(monkeypatch):
    monkeypatch.setattr(clock, "WARM_UP_S", 0.01)


@pytest.mark.parametrize("backward", [False, True])
def test_a_case_is_measured_whole(judge, backward):
    rates = {"copy_bytes_per_s": 1e9, "matrix_flops_per_s": {"float32": 1e9}}
    before = judge.case({"n": 2000}, torch.float32, backward=backward)
    timed = judge.case({"n": 1000}, torch.float32, backward=backward)
    assert (before.sets, len(timed.sets)) == ([], 1)
    assert measure.add_peers(timed, judge, ["torch"]) == {}
    case = measured(timed, judge, 25, rates)
    json.dumps(case)
    assert case["faults"] == []
    assert case["watched"] >= 9  # 25 samples in blocks of three
    for times in case["functions"].values():
        assert len(times["seconds"]) == 25
        value, low, high = times["median"]
        assert low <= value <= high
        assert times["p50"] <= times["p95"] <= times["p99"]
    op = case["functions"]["op"]
    if backward:
        assert "copy_fraction" not in op  # its lab.py does not say what the gradient moves
    else:
        assert op["copy_fraction"] == pytest.approx(8000 / op["median"][0] / 1e9)
        assert op["matrix_fraction"] == pytest.approx(2000 / op["median"][0] / 1e9)
    ratio, low, high = case["peers"]["torch"]
    assert low <= ratio <= high


def test_what_could_not_be_compared_in_full_is_said_once(judge, monkeypatch):
    monkeypatch.setattr(JudgedCase, "check", lambda *_, **__: comparison.CheckResult(remark=comparison.COARSELY))
    case = measured(timed_case(judge), judge, 25, {})
    assert case["warnings"].count(comparison.COARSELY) == 1
    assert case["watched"] >= 9
    case |= {"op": "tested", "case": "small", "backward": False}
    assert f"tested · small · float32: {comparison.COARSELY}" in remarks([case])


def test_every_sample_has_values_that_nobody_saw_before(judge):
    timed = timed_case(judge, peers=())
    timed.fresh()
    timed.calls_a_sample = len(timed.sets)
    drawn = []
    for _ in range(5):
        timed.sample(OP)
        for inputs in timed.sets:
            timed.drawing.recall(inputs)
        drawn += [inputs.args[0].clone() for inputs in timed.sets]
        assert all(torch.equal(inputs.args[0], inputs.shared[0]) for inputs in timed.sets)
    assert len({float(x.sum()) for x in drawn}) == len(drawn)
    together = torch.cat(drawn)
    assert float(together.mean()) == pytest.approx(0, abs=0.3)
    assert float(together.std()) == pytest.approx(1.4, abs=0.3)


def test_inputs_that_are_more_than_normal_numbers_are_drawn_anew():
    def positive(make, n):
        return (make((n,)).abs_(),)

    op = described(double_plus_one)
    op = type(op)(**{**vars(op), "inputs": positive})
    drawing = Drawing(op, {"n": 1000}, torch.float32, "cpu", NoiseTape("cpu"))
    (inputs,) = JudgedCase(drawing, {}, CpuArena(), None).sets
    before = inputs.args[0].clone()
    drawing.renew(inputs)
    assert not torch.equal(inputs.args[0], before)
    assert torch.equal(inputs.args[0], inputs.shared[0])
    assert bool((inputs.args[0] >= 0).all())


def test_a_sample_never_takes_a_set_twice_and_rotates(judge):
    timed = timed_case(judge, peers=())
    timed.fresh()
    timed.calls_a_sample = 5
    taken = []
    for _ in range(3):
        timed.sample(OP)
        taken.append(timed._last.indices)
    assert all(len(set(indices)) == 5 for indices in taken)
    assert taken[0] != taken[1]


def test_an_op_that_stops_working_once_it_noticed_a_check():
    """Until there are new inputs: a block that had one check would let the rest of it pass."""

    class Noticing:
        functions, device, is_checked, skipped = {OP: None}, "cpu", False, False

        def fresh(self):
            self.is_checked = False

        def sample(self, name):
            self.skipped = self.is_checked
            return 1e-3

        def check(self):
            self.is_checked = True
            return comparison.CheckResult("zeros" if self.skipped else None)

    rounds = measure._Rounds(Noticing(), SimpleNamespace(processes=[]), seed=0)
    for _ in range(100):
        rounds._block(10)
    assert rounds.findings.faults == ["zeros"]


def test_op_and_peers_take_turns_in_random_order(judge, monkeypatch):
    order = []
    timed = timed_case(judge)
    rounds = measure._Rounds(timed, judge, seed=0)
    sample = JudgedCase.sample
    monkeypatch.setattr(JudgedCase, "sample", lambda self, name: (order.append(name), sample(self, name))[1])
    rounds.run(20, lambda: None)
    pairs = [tuple(order[i : i + 2]) for i in range(0, len(order), 2)]
    assert len(pairs) == 20
    assert set(pairs) == {("op", "torch"), ("torch", "op")}


def test_a_peer_that_will_not_do_is_left_out_with_the_reason(judge):
    timed = judge.case({"n": 1000}, torch.float32, backward=False)
    left_out = measure.add_peers(timed, judge, ["broken", "wrong", "meddling", "torch"])
    assert list(timed.functions) == ["op", "torch"]
    assert left_out["broken"] == "ImportError: no such library"
    assert "output 0 is wrong by far" in left_out["wrong"]
    assert "default dtype from torch.float32 to torch.float64" in left_out["meddling"]


def test_throttled_samples_are_set_aside_counted_and_made_up_for(judge, monkeypatch):
    readings = iter([True, False] * 5 + [False] * 1000)
    monkeypatch.setattr(machine_state.CpuWatch, "read", lambda self: next(readings))
    case = measured(timed_case(judge), judge, 20, {})
    assert case["set_aside"] == 5
    assert len(case["functions"]["op"]["seconds"]) == 20
    assert "5 samples were taken while the GPU was throttled, and set aside" in case["warnings"]


def test_where_all_is_throttled_all_is_kept_and_said(judge, monkeypatch):
    monkeypatch.setattr(machine_state.CpuWatch, "read", lambda self: True)
    case = measured(timed_case(judge), judge, 10, {})
    assert len(case["functions"]["op"]["seconds"]) == 15
    assert any("every sample" in warning for warning in case["warnings"])


def test_reasons_that_are_throttling_and_those_that_are_not():
    assert machine_state.reasons(0x1 | 0x2) == []  # idle, and clocks that someone set
    assert machine_state.reasons(0x4 | 0x40) == ["power cap", "thermal, by hardware"]


def test_what_is_not_there_is_said_in_a_sentence():
    op = described(double_plus_one)
    with pytest.raises(LabError, match="has no case 'large' on cpu; it has 'small', 'odd'"):
        measure.chosen_cases(op, "cpu", ["large"])
    with pytest.raises(LabError, match="has no peer 'liger'; it has 'torch'"):
        measure.chosen_peers(op, ["liger"])
    with pytest.raises(LabError, match="does not take int8 on cpu; it takes float32, float64"):
        measure.chosen_dtypes(op, "cpu", "int8")
    with pytest.raises(LabError, match="has no gradient"):
        measure.check_gradient(described(double_plus_one, GRADIENT=False), True)


def test_ratesof_this_machine(monkeypatch):
    monkeypatch.setitem(ceilings.COPY_BYTES, "cpu", 2**20)
    monkeypatch.setitem(ceilings.MATRIX_SIZE, "cpu", 64)
    rates = ceilings.measure("cpu", (torch.float32, torch.float64))
    assert rates["copy_bytes_per_s"] > 0
    assert set(rates["matrix_flops_per_s"]) == {"float32", "float64"}
