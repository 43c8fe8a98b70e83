"""Files of results: what is kept, and what is refused in a sentence."""

import json

import pytest

from kernelgen.errors import KernelgenError
from kernelgen.lab import results
from kernelgen.worker.environment import describe

ENVIRONMENT = {"gpu": None, "cpu": "A Fine CPU (R) @ 3 GHz", "cores": 8, "flags": {}}


def test_what_is_written_is_read(tmp_path):
    content = results.new(ENVIRONMENT)
    results.write(content, tmp_path / "deep" / "file.json")
    assert results.read(tmp_path / "deep" / "file.json") == content
    assert [path.name for path in (tmp_path / "deep").iterdir()] == ["file.json"]


@pytest.mark.parametrize(
    "content, sentence",
    [
        (None, "cannot be read"),
        ("{", "is not JSON"),
        ("[]", "does not hold results"),
        ('{"kind": "something else"}', "does not hold results"),
        (json.dumps({"kind": results.KIND, "version": results.VERSION + 1}), "of the results' schema"),
    ],
)
def test_what_is_refused(tmp_path, content, sentence):
    path = tmp_path / "file.json"
    if content is not None:
        path.write_text(content)
    with pytest.raises(KernelgenError, match=sentence) as caught:
        results.read(path)
    assert str(path) in str(caught.value)


def test_the_name_of_a_machine_and_its_baseline(tmp_path):
    assert results.machine(ENVIRONMENT) == "A Fine CPU (R) @ 3 GHz, 8 cores"
    gpu = {**ENVIRONMENT, "gpu": {"name": "NVIDIA H200"}}
    assert results.baseline(tmp_path, gpu, "op") == tmp_path / "baselines" / "nvidia-h200" / "op.json"
    assert results.baseline(tmp_path, ENVIRONMENT, "op").parent.name == "a-fine-cpu-r-3-ghz-8-cores"


def test_the_part_of_one_op():
    content = {**results.new(ENVIRONMENT), "cases": [{"op": "a"}, {"op": "b"}], "failures": [{"op": "b"}]}
    part = results.of_op(content, "a")
    assert (part["cases"], part["failures"]) == ([{"op": "a"}], [])


@pytest.mark.parametrize("value, text", [(1.5, "1.5 s"), (0.00151, "1.51 ms"), (2.5e-6, "2.5 µs"), (3e-9, "3 ns")])
def test_times_in_words(value, text):
    assert results.seconds(value) == text


def test_the_environment_of_this_process(tmp_path):
    pytest.importorskip("torch")
    environment = describe("cpu", tmp_path, {"seed": 1})
    assert environment["git"] is None
    assert environment["gpu"] is None
    assert {"cpu", "cores", "threads", "python", "torch", "cuda", "system", "flags"} <= set(environment)
    json.dumps(environment)
