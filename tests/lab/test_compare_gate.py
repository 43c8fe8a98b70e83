"""benchmarks/compare_gate.py without its measurements: who goes on with earlier runs counts each comparison once."""

import importlib.util
import itertools
import json
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "compare_gate.py"


@pytest.fixture
def gate(monkeypatch, tmp_path, capsys):
    """The script; returns its exit code, what it wrote, the seeds that it took and what it complained of."""
    spec = importlib.util.spec_from_file_location("compare_gate", SCRIPT)
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    row = {"delta": 0.0, "p": 1.0, "before_s": 1e-3, "seconds": 1.0, "faults": []}
    seeds, measured = [], itertools.count(1)

    def around(ratio):  # Each time others, and as many above as below.
        off = 1e-6 * next(measured)
        return [ratio - off, ratio + off] * 20

    def compare(before, after, options, first, count):
        seeds.extend(range(first, first + count))
        verdict, ratio = ("regression", 1.05) if after.name == "slow" else ("no difference", 1.0)
        return [row | {"verdict": verdict, "ratio": [1, 1, 1], "ratios": around(ratio)} for _ in range(count)]

    monkeypatch.setattr(script, "compare", compare)
    monkeypatch.setattr(script, "plant", lambda device, share: (3, [1 + share] * 3))

    def call(*arguments):
        seeds.clear()
        monkeypatch.setattr("sys.argv", ["compare_gate.py", *map(str, arguments), "--json", str(tmp_path / "out.json")])
        try:
            code = script.main()
        except SystemExit as end:
            code = end.code
        written = json.loads((tmp_path / "out.json").read_text()) if not code else None
        return code, written, list(seeds), capsys.readouterr().err

    return call


@pytest.fixture
def earlier(gate, tmp_path) -> Path:
    _, written, _, _ = gate("--comparisons", 20)
    (tmp_path / "earlier.json").write_text(json.dumps(written))
    return tmp_path / "earlier.json"


def test_a_run_goes_on_with_an_earlier_one(gate, earlier):
    code, written, seeds, _ = gate("--comparisons", 30, "--add", earlier)
    assert code == 0
    assert sorted(set(seeds)) == [*range(20, 50)]
    assert {name: len(rows) for name, rows in written["comparisons"].items()} == {"A/A": 50, "3.0% slower": 50}
    assert [run["comparisons"] for run in written["runs"]] == [20, 30]
    assert [summary["comparisons"] for summary in written["summaries"]] == [50, 50]
    assert written["summaries"][1]["confirmed_regressions"] == 50


def test_files_are_merged_without_measuring(gate, earlier, tmp_path):
    _, other, _, _ = gate("--comparisons", 10)
    (tmp_path / "other.json").write_text(json.dumps(other))
    code, written, seeds, _ = gate("--comparisons", 0, "--add", earlier, tmp_path / "other.json")
    assert (code, seeds) == (0, [])
    assert len(written["comparisons"]["A/A"]) == 30
    assert [run["comparisons"] for run in written["runs"]] == [20, 10]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("--blocks", 12), "was measured with 100 blocks, not 12"),
        (("--slowdown", 0.05), "holds '3.0% slower', not '5.0% slower'"),
    ],
)
def test_what_does_not_belong_together(gate, earlier, arguments, sentence):
    code, _, seeds, complaint = gate("--comparisons", 10, "--add", earlier, *arguments)
    assert (code, seeds) == (2, [])
    assert sentence in complaint


def test_nothing_is_counted_twice(gate, earlier):
    code, _, seeds, complaint = gate("--comparisons", 10, "--add", earlier, earlier)
    assert (code, seeds) == (2, [])
    assert "holds comparisons that were added already" in complaint


@pytest.mark.parametrize("device", ["cpu", "h200"])
def test_the_results_that_are_kept_can_be_gone_on_with(device):
    kept = json.loads((SCRIPT.parent / "results" / f"compare_gate_{device}.json").read_text())
    assert sum(run["comparisons"] for run in kept["runs"]) == len(kept["comparisons"]["A/A"])
    assert all({"machine", "planted_ratio"} <= run.keys() for run in kept["runs"])
