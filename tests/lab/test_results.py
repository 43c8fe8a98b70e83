"""Files of results: what is kept, and what is refused in a sentence."""

import json

import pytest

from kernelgen.errors import KernelgenError
from kernelgen.lab import results
from kernelgen.protocol import OP
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


def whole(**changes) -> dict:
    """Results of one case; `changes` replace fields of the case, or take them away where they are None."""
    figures = {"seconds": [2.0, 1.0, 4.0], "median": [2.0, 1.0, 4.0]}
    case = {"op": "a", "case": "small", "dtype": "float32", "functions": {OP: figures}, "peers": {}, "faults": []}
    case = {name: value for name, value in {**case, **changes}.items() if value is not None}
    return {**results.new(ENVIRONMENT), "cases": [case]}


def of_op(**changes) -> dict:
    return whole(functions={OP: {"seconds": [2.0, 1.0, 4.0], "median": [2.0, 1.0, 4.0], **changes}})


@pytest.mark.parametrize(
    "content, sentence",
    [
        ({**whole(), "cases": None}, "`cases` should be a list"),
        ({**whole(), "cases": [3]}, "case 1: something else stands where an object should"),
        ({**whole(), "environment": {"gpu": {}, "flags": {}}}, "`name` is missing"),
        ({**whole(), "environment": {"cpu": "A CPU", "flags": {}}}, "`cores` is missing"),
        (whole(op=None), "case 1: `op` is missing"),
        (whole(faults="none"), "`faults` should be a list"),
        (whole(warnings=3), "`warnings` should be a list"),
        (whole(functions={"torch": {}}), "it has no times of the op"),
        (of_op(seconds=[]), "every time should be a number of seconds above 0"),
        (of_op(seconds=[1.0, -2.0, 4.0]), "every time should be"),
        (of_op(seconds=[0, 2.0, 4.0]), "every time should be"),
        (of_op(seconds=[float("nan"), 2.0, 4.0]), "every time should be"),
        (of_op(seconds=[10**400, 2.0, 4.0]), "every time should be"),
        (of_op(seconds=["2", 2.0, 4.0]), "every time should be"),
        (of_op(median=[1.0, 1.0, 1.0]), "its median is given as 1 s, and its samples have 2 s"),
        (
            whole(functions={name: {"seconds": [1.0] * n, "median": [1.0]} for n, name in ((1, OP), (2, "torch"))}),
            "numb",
        ),
    ],
)
def test_a_damaged_file_is_refused_in_a_sentence(tmp_path, run, content, sentence):
    for name in ("whole", "damaged"):
        (tmp_path / f"{name}.json").write_text(json.dumps(whole() if name == "whole" else content))
    outcome = run("compare", tmp_path / "whole.json", tmp_path / "damaged.json")
    assert outcome.code == 3
    assert f"{tmp_path / 'damaged.json'} is damaged: " in outcome.err
    assert sentence in outcome.err
    assert outcome.err.count("\n") == 1


def test_a_file_that_is_nested_too_deep(tmp_path):
    (tmp_path / "file.json").write_text("[" * 100_000)
    with pytest.raises(KernelgenError, match="is not JSON"):
        results.read(tmp_path / "file.json")


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
