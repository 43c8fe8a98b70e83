"""What a measurement holds, on the CPU; how long anything takes is not asserted."""

import json

import pytest
import torch

from kernelgen.errors import LabError
from kernelgen.lab import bench as figures
from kernelgen.lab.remarks import remarks
from kernelgen.protocol import OP
from kernelgen.worker import bench as measure
from kernelgen.worker import ceilings, clock, integrity, machine_state
from kernelgen.worker.timed_case import TimedCase

from .bench_ops import described, double_plus_one


def timed_case(op, **options) -> TimedCase:
    timed = TimedCase(op, {"n": 1000}, torch.float32, "cpu", {}, **options)
    measure.add_functions(timed, {OP: op.function, **op.peers})
    return timed


def measured(timed: TimedCase, samples: int, ceilings: dict) -> dict:
    """The samples, and the figures that are made of them."""
    event = {"dtype": "float32", **measure.measure(timed, samples)}
    return figures.described(json.loads(json.dumps(event)), ceilings)


@pytest.fixture(autouse=True)
def _short_warm_up(monkeypatch):
    monkeypatch.setattr(clock, "WARM_UP_S", 0.01)
    monkeypatch.setattr(clock.warm_up, "__defaults__", (0.01,))


@pytest.mark.parametrize("backward", [False, True])
def test_a_case_is_measured_whole(backward):
    rates = {"copy_bytes_per_s": 1e9, "matrix_flops_per_s": {"float32": 1e9}}
    case = measured(timed_case(described(double_plus_one), backward=backward), 25, rates)
    json.dumps(case)
    assert case["faults"] == []
    assert case["watched"] == 9  # 25 samples in blocks of three
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


def test_what_could_not_be_compared_in_full_is_said_once(monkeypatch):
    monkeypatch.setattr(integrity, "check_sample", lambda *_: integrity.CheckResult(remark=integrity.COARSELY))
    case = measured(timed_case(described(double_plus_one)), 25, {})
    assert case["warnings"].count(integrity.COARSELY) == 1
    assert case["watched"] == 9
    case |= {"op": "tested", "case": "small", "backward": False}
    assert f"tested · small · float32: {integrity.COARSELY}" in remarks([case])


def test_the_same_seed_draws_the_same_inputs_and_never_zeros():
    op = described(double_plus_one)
    first, second, other = (timed_case(op, seed=seed) for seed in (1, 1, 2))
    for timed in (first, second, other):
        timed.fresh()
    drawn = [[inputs.args[0] for inputs in timed.sets] for timed in (first, second, other)]
    assert all(torch.equal(a, b) for a, b in zip(drawn[0], drawn[1], strict=True))
    assert not torch.equal(drawn[0][0], drawn[2][0])
    assert len({float(x.sum()) for x in drawn[0]}) == len(drawn[0])
    assert all(x.any() for x in drawn[0])


def test_fresh_inputs_differ_from_block_to_block():
    timed = timed_case(described(double_plus_one))
    timed.fresh()
    before = timed.sets[0].args[0].clone()
    timed.fresh()
    assert not torch.equal(timed.sets[0].args[0], before)


def test_a_sample_never_takes_a_set_twice_and_rotates():
    timed = timed_case(described(double_plus_one))
    timed.fresh()
    timed.calls_a_sample = 5
    taken = [timed.take() for _ in range(3)]
    assert all(len(set(indices)) == 5 for indices in taken)
    assert taken[0] != taken[1]


def test_op_and_peers_take_turns_in_random_order(monkeypatch):
    order = []
    timed = timed_case(described(double_plus_one))
    rounds = measure._Rounds(timed)
    sample = TimedCase.sample
    monkeypatch.setattr(TimedCase, "sample", lambda self, name: (order.append(name), sample(self, name))[1])
    rounds.run(20, lambda: None)
    pairs = [tuple(order[i : i + 2]) for i in range(0, len(order), 2)]
    assert len(pairs) == 20
    assert set(pairs) == {("op", "torch"), ("torch", "op")}


def test_a_peer_that_cannot_run_is_left_out_with_the_reason():
    def broken(x):
        raise ImportError("no such library")

    op = described(double_plus_one)
    op.peers["broken"] = broken
    timed = TimedCase(op, {"n": 1000}, torch.float32, "cpu", {})
    assert measure.add_functions(timed, {"op": op.function, **op.peers}) == {"broken": "ImportError: no such library"}
    assert list(timed.functions) == ["op", "torch"]


def test_throttled_samples_are_set_aside_counted_and_made_up_for(monkeypatch):
    readings = iter([True, False] * 5 + [False] * 1000)
    monkeypatch.setattr(machine_state.CpuWatch, "read", lambda self: next(readings))
    case = measured(timed_case(described(double_plus_one)), 20, {})
    assert case["set_aside"] == 5
    assert len(case["functions"]["op"]["seconds"]) == 20
    assert "5 samples were taken while the GPU was throttled, and set aside" in case["warnings"]


def test_where_all_is_throttled_all_is_kept_and_said(monkeypatch):
    monkeypatch.setattr(machine_state.CpuWatch, "read", lambda self: True)
    case = measured(timed_case(described(double_plus_one)), 10, {})
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
