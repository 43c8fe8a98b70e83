"""What a lab.py has to say, and what is said where it does not."""

from types import SimpleNamespace

import pytest
import torch

from kernelgen.errors import LabError
from kernelgen.worker import op


def inputs(make, rows, columns):
    return (make((rows, columns)),)


def module(**changes) -> SimpleNamespace:
    names = {
        "OP": torch.relu,
        "REFERENCE": torch.relu,
        "DTYPES": (torch.float32, torch.float64),
        "DOMAIN": {"rows": (0, 300), "columns": (1, 5000)},
        "inputs": inputs,
        **changes,
    }
    return SimpleNamespace(**{name: value for name, value in names.items() if value is not None})


def test_what_is_left_out_has_a_default():
    described = op.read("relu", module())
    assert described.bench_dtypes == (torch.float32,)
    assert (described.cases, described.cpu_cases, described.peers, described.tunables) == ({}, {}, {}, {})
    assert (described.repeatable, described.gradient, described.huge, described.flops) == (True, True, None, None)


def test_the_cpu_measures_the_cases_of_the_gpu_if_it_has_none_of_its_own():
    cases = {"small": {"rows": 1, "columns": 2}}
    assert op.read("relu", module(CASES=cases)).cpu_cases == cases


def test_the_cpu_may_take_other_dtypes_than_the_gpu():
    assert list(op.read("relu", module()).dtypes_on("cpu")) == list(op.read("relu", module()).dtypes_on("cuda"))
    described = op.read("relu", module(CPU_DTYPES=(torch.float32, torch.float16)))
    assert described.dtypes_on("cpu") == {"float32": torch.float32, "float16": torch.float16}
    assert list(described.dtypes_on("cuda:1")) == ["float32", "float64"]


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"OP": None}, "OP is missing"),
        ({"inputs": None}, "inputs is missing"),
        ({"REFERENCE": 3}, "REFERENCE should be a function"),
        ({"DTYPES": ("float32",)}, "DTYPES should hold torch dtypes"),
        ({"DTYPES": ()}, "DTYPES should hold torch dtypes"),
        ({"CPU_DTYPES": (8,)}, "CPU_DTYPES should hold torch dtypes"),
        ({"BENCH_DTYPES": (torch.int8,)}, "BENCH_DTYPES should be some of DTYPES, and of CPU_DTYPES"),
        ({"DOMAIN": {"rows": (5, 1), "columns": (1, 2)}}, r"DOMAIN should hold \(smallest, largest\) by size"),
        ({"DOMAIN": {"rows": (0, 3)}}, "DOMAIN names rows, and inputs takes rows, columns"),
        ({"DOMAIN": {"dtype": (0, 3)}}, "no size can be named dtype, layout, values, alias, requires_grad, call"),
        ({"CASES": {"one": {"rows": 3}}}, "CASES\\['one'\\] should give rows, columns"),
        ({"HUGE": {"rows": 3}}, "HUGE should give rows, columns"),
        ({"REPEATABLE": "no"}, "REPEATABLE should be True, a tolerance or a function of the sizes"),
    ],
)
def test_one_sentence_for_what_is_wrong(changes, sentence):
    with pytest.raises(LabError, match=rf"^relu/lab\.py: {sentence}\.$"):
        op.read("relu", module(**changes))


@pytest.fixture
def package(tmp_path, monkeypatch):
    """The name of a package with one op, `mine`, that has the given lab.py."""

    def write(name: str, lab: str | None, library: str = "missing = {'CPU': None, 'CUDA': 'no library'}") -> str:
        folder = tmp_path / name / "ops" / "mine"
        folder.mkdir(parents=True)
        for file in (tmp_path / name / "__init__.py", folder.parent / "__init__.py", folder / "__init__.py"):
            file.touch()
        (tmp_path / name / "_library.py").write_text(library)
        if lab is not None:
            (folder / "lab.py").write_text(lab)
        return name

    monkeypatch.syspath_prepend(tmp_path)
    return write


def test_no_lab_file(package):
    with pytest.raises(LabError, match=r"mine has no lab\.py"):
        op.load(package("lab_without_file", None), "mine")


def test_a_lab_file_that_needs_something_else(package):
    with pytest.raises(LabError, match="pip install not_there_at_all"):
        op.load(package("lab_with_import", "import not_there_at_all"), "mine")


def test_a_lab_file_that_fails(package):
    with pytest.raises(LabError, match="does not import: ZeroDivisionError: division by zero"):
        op.load(package("lab_that_fails", "1 / 0"), "mine")


def test_a_kernel_that_is_not_there(package):
    name = package("lab_library", "")
    with pytest.raises(LabError, match="cannot run on cuda: no library, or with `kernelgen build`"):
        op.require_kernel(name, "mine", "cuda")
    torch.library.define(f"{name}::mine", "(Tensor x) -> Tensor")
    with pytest.raises(LabError, match="its CPU kernel is not written yet"):
        op.require_kernel(name, "mine", "cpu")
