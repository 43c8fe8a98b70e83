"""benchmarks/results: what results_file.py writes, one record a line."""

import importlib.util
import json
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"


@pytest.fixture(scope="module")
def results_file():
    spec = importlib.util.spec_from_file_location("results_file", BENCHMARKS / "results_file.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_each_record_has_a_line_and_each_key_above_it(results_file, tmp_path):
    value = {"machine": {"cores": 2}, "runs": [{"gpus": 1, "rows": [{"a": [1, 2]}, {"a": []}]}], "none": []}
    value["sizes"] = [["relu", 8, {"op": 1.5}], ["silu", 16, {"op": 2.5}]]
    results_file.write(tmp_path / "some.json", value)
    text = (tmp_path / "some.json").read_text()
    assert json.loads(text) == value
    assert [line.strip() for line in text.splitlines()] == [
        "{",
        '"machine": {"cores": 2},',
        '"runs": [',
        "{",
        '"gpus": 1,',
        '"rows": [',
        '{"a": [1, 2]},',
        '{"a": []}',
        "]",
        "}",
        "],",
        '"none": [],',
        '"sizes": [',
        '["relu", 8, {"op": 1.5}],',
        '["silu", 16, {"op": 2.5}]',
        "]",
        "}",
    ]


@pytest.mark.parametrize("path", sorted(BENCHMARKS.glob("results/*.json")), ids=lambda path: path.stem)
def test_the_results_here_have_that_form(results_file, path):
    text = path.read_text(encoding="utf-8")
    assert results_file.as_text(json.loads(text)) + "\n" == text
