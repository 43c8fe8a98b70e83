"""What the host makes of a worker's samples: results, files and the table."""

from pathlib import Path

from kernelgen.cli import bench as verb
from kernelgen.lab import results
from kernelgen.lab.bench import BenchRun, warnings


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


def test_saved_files(tmp_path, run):
    measured = BenchRun({**results.new({"gpu": {"name": "NVIDIA H200"}}), "cases": [{"op": "a"}, {"op": "b"}]})
    measured.save(tmp_path / "all.json", tmp_path)
    assert len(results.read(tmp_path / "all.json")["cases"]) == 2
    assert results.read(tmp_path / "baselines" / "nvidia-h200" / "b.json")["cases"] == [{"op": "b"}]
    assert run("bench", "--samples", 3).code == 2
    assert Path(tmp_path / "baselines").is_dir()
