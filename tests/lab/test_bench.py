"""What the host makes of a worker's samples: results, files and the table."""

import errno
from pathlib import Path
from types import SimpleNamespace

import pytest

from kernelgen.cli import bench as verb
from kernelgen.lab import bench, results
from kernelgen.lab.bench import BenchRun, warnings
from kernelgen.lab.evidence import set_variables


def test_warnings():
    hot = {"celsius": {"max": 85}, "other_processes": 2, "problem": "NVML was not read"}
    sentences = warnings(hot, 0.2, 0, 100)
    assert [any(word in line for line in sentences) for word in ("vary by 20%", "85 °C", "2 other", "NVML")] == [
        True
    ] * 4
    assert warnings({"celsius": {"max": 60}, "other_processes": 0}, 0.05, 0, 100) == []


def test_the_table_shows_no_times_of_wrong_results():
    measured = results.new({"gpu": None, "cpu": "CPU", "cores": 2, "torch": "2.11"})
    measured["ceilings"] = {"copy_bytes_per_s": 1e9, "matrix_flops_per_s": {"float32": 1e12}}
    case = {"op": "a", "case": "small", "dtype": "float32", "backward": False, "warnings": [], "left_out": {}}
    times = {"median": [0.123, 0.12, 0.13], "p95": 0.2, "p99": 0.3, "copy_fraction": 0.5}
    right = {**case, "functions": {"op": times}, "peers": {"torch": [1.5, 1.4, 1.6]}, "faults": []}
    measured["cases"] = [right, {**right, "case": "odd", "faults": ["it cheats"]}]
    measured["notes"] = []
    text = "\n".join(verb._text(measured))
    assert text.count("123 ms") == 1
    assert "50.0%" in text
    assert "torch 1.50 (1.40, 1.60)" in text
    assert "a · odd · float32: WRONG: it cheats" in text


def test_variables_that_make_peers_slow_are_said_once():
    run, steady = BenchRun(), {"OMP_WAIT_POLICY": "passive", "CUDA_HOME": "/usr/local/cuda"}
    for _ in range(2):  # As where a worker is lost, and another takes its place.
        run.add({"event": "environment", "variables": {**steady, "ATEN_CPU_CAPABILITY": "default"}})
    assert run.results["notes"] == [
        "These variables are set, and change what is measured: ATEN_CPU_CAPABILITY=default."
    ]
    assert set_variables({"variables": steady}) == []


def test_events_become_results():
    run = BenchRun()
    run.add({"event": "environment", "device": "cpu"})
    run.add({"event": "case", "op": "a", "case": "small"})
    run.add({"event": "lost", "op": "a", "case": "odd · float32", "reason": "crashed with SIGSEGV"})
    run.add({"event": "skipped", "op": "b", "message": "b has no case."})
    assert run.results["environment"] == {"device": "cpu"}
    assert [case["case"] for case in run.samples] == ["small"]
    assert run.results["failures"][0]["reason"] == "crashed with SIGSEGV"
    assert run.results["notes"] == ["b has no case."]


def whole(op: str) -> dict:
    figures = {"seconds": [0.1] * 3, "median": [0.1] * 3, "p95": 0.1, "p99": 0.1}
    facts = {"op": op, "case": "small", "dtype": "float32", "backward": False, "functions": {"op": figures}}
    return {**facts, "peers": {}, "faults": [], "warnings": [], "left_out": {}}


def two_ops() -> BenchRun:
    environment = {"gpu": {"name": "NVIDIA H200"}, "torch": "2.11", "flags": {}}
    rates = {"copy_bytes_per_s": 1e9, "matrix_flops_per_s": {}}
    content = {**results.new(environment), "ceilings": rates, "cases": [whole("a"), whole("b")], "notes": []}
    return BenchRun(content)


def test_saved_files(tmp_path, run):
    two_ops().save(tmp_path / "all.json", tmp_path)
    assert len(results.read(tmp_path / "all.json")["cases"]) == 2
    assert results.read(tmp_path / "baselines" / "nvidia-h200" / "b.json")["cases"] == [whole("b")]
    assert run("bench", "--samples", 3).code == 2
    assert Path(tmp_path / "baselines").is_dir()


@pytest.fixture
def measured_at_once(monkeypatch, tmp_path):
    """`kernelgen bench`, which finds a project and measures it without a worker; returns the calls of `measure`."""
    calls = []
    monkeypatch.setattr(verb.lab, "find", lambda options: SimpleNamespace(root=tmp_path))
    monkeypatch.setattr(verb.lab, "bring_up_to_date", lambda selection, options: None)
    monkeypatch.setattr(bench, "measure", lambda *arguments, **options: calls.append(options) or two_ops())
    return calls


def test_where_results_are_to_go_is_tried_before_anything_is_measured(measured_at_once, run, tmp_path):
    (tmp_path / "file").write_text("")
    for out in (tmp_path, tmp_path / "file" / "all.json"):
        outcome = run("bench", "--out", out)
        assert outcome.code == 2
        assert f"{out} cannot be written: " in outcome.err
    assert not measured_at_once
    assert run("bench", "--out", tmp_path / "new" / "all.json").code == 0
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["all.json"]


def test_a_failed_write_still_shows_the_table(measured_at_once, run, tmp_path, monkeypatch):
    def full(*arguments):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(results, "write", full)
    outcome = run("bench", "--out", tmp_path / "all.json")
    assert outcome.code == 2
    assert "a · small · float32" in outcome.out
    assert f"{tmp_path / 'all.json'} cannot be written: No space left on device" in outcome.err
    assert "written" not in outcome.out


@pytest.mark.parametrize(
    ("facts", "sentence"),
    [
        ({"bytes": 3e9, "flops": 1}, "it moves 296% of what a copy does"),
        ({"bytes": 1e9, "flops": 5e12}, "it computes 500% of what a matrix product does"),
        ({"bytes": 2e9, "flops": 2e12}, ""),
        ({"bytes": 4e7, "flops": None}, ""),  # All of it fits the caches.
        ({"bytes": 3e9, "flops": 5e12, "method": "cpu clock"}, ""),  # The judge's own clock, which needs no ceiling.
    ],
)
def test_an_op_that_is_faster_than_the_gpu_is_wrong(facts, sentence):
    rates = {"copy_bytes_per_s": 1e9, "matrix_flops_per_s": {"float32": 1e12}, "cache_bytes": 4e7}
    seconds = {"op": [1.0] * 10 if facts["bytes"] > 1e8 else [1e-3] * 10}
    measured = {"method": "cuda events", **facts, "seconds": seconds, "throttled": [False] * 10, "state": {}, "seed": 0}
    measured |= {"dtype": "float32", "remarks": [], "doubts": [], "watched": 1, "faults": []}
    assert " ".join(bench.described(measured, rates)["faults"]).startswith(sentence)
    assert bool(bench.described(measured, rates)["faults"]) == bool(sentence)
