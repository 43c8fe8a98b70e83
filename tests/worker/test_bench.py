"""What a measurement holds, on the CPU; how long anything takes is not asserted."""

import json
from pathlib import Path

import pytest
import torch

from kernelgen.cli import bench
from kernelgen.errors import LabError
from kernelgen.lab import results
from kernelgen.lab.remarks import remarks
from kernelgen.worker import bench as measure
from kernelgen.worker import ceilings, clock, integrity, machine_state
from kernelgen.worker.timed_case import Subject

from .bench_ops import described, double_plus_one


def subject(op, **options) -> Subject:
    made = Subject(op, {"n": 1000}, torch.float32, "cpu", {}, **options)
    measure._enlist(made, {results.OP: op.function, **op.peers}, lambda: None)
    return made


@pytest.fixture(autouse=True)
def _short_warm_up(monkeypatch):
    monkeypatch.setattr(clock, "WARM_UP_S", 0.01)
    monkeypatch.setattr(clock.warm_up, "__defaults__", (0.01,))


@pytest.mark.parametrize("backward", [False, True])
def test_a_case_is_measured_whole(backward):
    top = {"copy_bytes_per_s": 1e9, "matrix_flops_per_s": {"float32": 1e9}}
    found = measure.measure(subject(described(double_plus_one), backward=backward), 25, top)
    json.dumps(found)
    assert found["faults"] == []
    assert found["watched"] == 9  # 25 samples in blocks of three
    for times in found["functions"].values():
        assert len(times["seconds"]) == 25
        value, low, high = times["median"]
        assert low <= value <= high
        assert times["p50"] <= times["p95"] <= times["p99"]
    op = found["functions"]["op"]
    if backward:
        assert "copy_fraction" not in op  # its lab.py does not say what the gradient moves
    else:
        assert op["copy_fraction"] == pytest.approx(8000 / op["median"][0] / 1e9)
        assert op["matrix_fraction"] == pytest.approx(2000 / op["median"][0] / 1e9)
    ratio, low, high = found["peers"]["torch"]
    assert low <= ratio <= high


def test_what_could_not_be_compared_in_full_is_said_once(monkeypatch):
    monkeypatch.setattr(integrity, "watched", lambda *_: integrity.Finding(remark=integrity.COARSELY))
    found = measure.measure(subject(described(double_plus_one)), 25, {})
    assert found["warnings"].count(integrity.COARSELY) == 1
    assert found["watched"] == 9
    case = {"op": "tested", "case": "small", "dtype": "float32", "backward": False, "left_out": {}, **found}
    assert f"tested · small · float32: {integrity.COARSELY}" in remarks([case])


def test_the_same_seed_draws_the_same_inputs_and_never_zeros():
    op = described(double_plus_one)
    first, second, other = (subject(op, seed=seed) for seed in (1, 1, 2))
    for one in (first, second, other):
        one.fresh()
    drawn = [[inputs.args[0] for inputs in one.sets] for one in (first, second, other)]
    assert all(torch.equal(a, b) for a, b in zip(drawn[0], drawn[1], strict=True))
    assert not torch.equal(drawn[0][0], drawn[2][0])
    assert len({float(x.sum()) for x in drawn[0]}) == len(drawn[0])
    assert all(x.any() for x in drawn[0])


def test_fresh_inputs_differ_from_block_to_block():
    one = subject(described(double_plus_one))
    one.fresh()
    before = one.sets[0].args[0].clone()
    one.fresh()
    assert not torch.equal(one.sets[0].args[0], before)


def test_a_sample_never_takes_a_set_twice_and_rotates():
    one = subject(described(double_plus_one))
    one.fresh()
    one.calls_a_sample = 5
    taken = [one.take() for _ in range(3)]
    assert all(len(set(indices)) == 5 for indices in taken)
    assert taken[0] != taken[1]


def test_op_and_peers_take_turns_in_random_order(monkeypatch):
    order = []
    one = subject(described(double_plus_one))
    rounds = measure._Rounds(one)
    sample = Subject.sample
    monkeypatch.setattr(Subject, "sample", lambda self, name: (order.append(name), sample(self, name))[1])
    rounds.run(20, lambda: None)
    pairs = [tuple(order[i : i + 2]) for i in range(0, len(order), 2)]
    assert len(pairs) == 20
    assert set(pairs) == {("op", "torch"), ("torch", "op")}


def test_a_peer_that_cannot_run_is_left_out_with_the_reason():
    def broken(x):
        raise ImportError("no such library")

    op = described(double_plus_one)
    op.peers["broken"] = broken
    made = Subject(op, {"n": 1000}, torch.float32, "cpu", {})
    assert measure._enlist(made, {"op": op.function, **op.peers}, lambda: None) == {
        "broken": "ImportError: no such library"
    }
    assert list(made.functions) == ["op", "torch"]


def test_throttled_samples_are_set_aside_counted_and_made_up_for(monkeypatch):
    readings = iter([True, False] * 5 + [False] * 1000)
    monkeypatch.setattr(machine_state.CpuWatch, "read", lambda self: next(readings))
    found = measure.measure(subject(described(double_plus_one)), 20, {})
    assert found["set_aside"] == 5
    assert len(found["functions"]["op"]["seconds"]) == 20
    assert "5 samples were taken while the GPU was throttled, and set aside" in found["warnings"]


def test_where_all_is_throttled_all_is_kept_and_said(monkeypatch):
    monkeypatch.setattr(machine_state.CpuWatch, "read", lambda self: True)
    found = measure.measure(subject(described(double_plus_one)), 10, {})
    assert len(found["functions"]["op"]["seconds"]) == 15
    assert any("every sample" in warning for warning in found["warnings"])


def test_warnings():
    hot = {"celsius": {"max": 85}, "other_processes": 2, "problem": "NVML was not read"}
    found = machine_state.warnings(hot, 0.2, 0, 100)
    assert [any(word in line for line in found) for word in ("vary by 20%", "85 °C", "2 other", "NVML")] == [True] * 4
    assert machine_state.warnings({"celsius": {"max": 60}, "other_processes": 0}, 0.05, 0, 100) == []


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


def test_ceilings_of_this_machine(monkeypatch):
    monkeypatch.setitem(ceilings.COPY_BYTES, "cpu", 2**20)
    monkeypatch.setitem(ceilings.MATRIX_SIZE, "cpu", 64)
    found = ceilings.measure("cpu", (torch.float32, torch.float64))
    assert found["copy_bytes_per_s"] > 0
    assert set(found["matrix_flops_per_s"]) == {"float32", "float64"}


def test_the_table_shows_no_times_of_wrong_results():
    found = results.new({"gpu": None, "cpu": "CPU", "cores": 2, "torch": "2.11"})
    found["ceilings"] = {"copy_bytes_per_s": 1e9, "matrix_flops_per_s": {"float32": 1e12}}
    case = {"op": "a", "case": "small", "dtype": "float32", "backward": False, "warnings": [], "left_out": {}}
    times = {"median": [0.123, 0.12, 0.13], "p95": 0.2, "p99": 0.3, "copy_fraction": 0.5}
    right = {**case, "functions": {"op": times}, "peers": {"torch": [1.5, 1.4, 1.6]}, "faults": []}
    found["cases"] = [right, {**right, "case": "odd", "faults": ["it cheats"]}]
    found["notes"] = []
    text = "\n".join(bench._text(found))
    assert text.count("123 ms") == 1
    assert "50.0%" in text
    assert "torch 1.50 (1.40, 1.60)" in text
    assert "a · odd · float32: WRONG: it cheats" in text


def test_events_become_results():
    found, notes = results.new({}), []
    bench._take({"event": "environment", "device": "cpu"}, found, notes)
    bench._take({"event": "case", "op": "a", "case": "small"}, found, notes)
    bench._take({"event": "lost", "op": "a", "case": "odd · float32", "reason": "crashed with SIGSEGV"}, found, notes)
    bench._take({"event": "skipped", "op": "b", "message": "b has no case."}, found, notes)
    assert found["environment"] == {"device": "cpu"}
    assert [case["case"] for case in found["cases"]] == ["small"]
    assert found["failures"][0]["reason"] == "crashed with SIGSEGV"
    assert notes == ["b has no case."]


def test_saved_files(tmp_path, run):
    from types import SimpleNamespace

    found = results.new({"gpu": {"name": "NVIDIA H200"}})
    found["cases"] = [{"op": "a"}, {"op": "b"}]
    options = SimpleNamespace(out=tmp_path / "all.json", save_baseline=True)
    bench._save(found, options, SimpleNamespace(root=tmp_path))
    assert len(results.read(tmp_path / "all.json")["cases"]) == 2
    assert results.read(tmp_path / "baselines" / "nvidia-h200" / "b.json")["cases"] == [{"op": "b"}]
    assert run("bench", "--samples", 3).code == 2
    assert Path(tmp_path / "baselines").is_dir()
