"""The stamped suite and the lab have the same rules for inputs and tolerances, each in code of its own."""

import functools
import importlib.util
import os
import subprocess
import sys
from types import ModuleType

import pytest
import torch

from kernelgen.worker import inputs as lab_inputs
from kernelgen.worker import tensor_comparison as oracle
from kernelgen.worker import tolerance
from kernelgen.worker.mismatch import MismatchError

from .conftest import REPOSITORY, stamp


def module(name: str) -> ModuleType:
    """A module of template/tests/suite/ that is stamped as it is."""
    file = REPOSITORY / "template" / "tests" / "suite" / f"{name}.py"
    spec = importlib.util.spec_from_file_location(f"suite_{name}", file)
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return loaded


inputs, tolerances = module("inputs"), module("tolerances")

DTYPES = (torch.float32, torch.float16, torch.bfloat16, torch.float64)
SHAPES = ((4, 33), (17,), (1,), (2, 3, 64), (5, 1))


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("layout", [layout for layout in inputs.LAYOUTS if layout != "mixed"])
def test_a_layout_has_the_lab_s_strides(layout, shape):
    ours = inputs.Make("cpu", torch.float32, layout)(shape)
    theirs = lab_inputs.Make("cpu", torch.float32, layout=layout)(shape)
    assert (ours.stride(), ours.storage_offset()) == (theirs.stride(), theirs.storage_offset())


def accepts(check, *arguments: object) -> bool:
    try:
        check(*arguments)
    except (AssertionError, MismatchError):
        return False
    return True


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_an_error_is_allowed_where_the_lab_allows_it(dtype):
    """Results with errors around what is allowed, in one element or in all, on one draw or on three."""
    generator = torch.Generator().manual_seed(0)
    sums = 1e-12 if dtype == torch.float64 else 1e-6
    verdicts = set()
    for i in range(300):
        draws = (torch.randn(50, generator=generator, dtype=torch.float64) for _ in range(i % 3 + 1))
        exact = [draw * 10 ** (i % 5 - 2) for draw in draws]
        plain = [value.to(dtype) for value in exact]
        largest = max(value.abs().max() for value in exact)
        error = i / 100 * (torch.finfo(dtype).eps + sums) * largest
        results = [value.clone() for value in plain]
        places = slice(None) if i % 2 else slice(7, 8)
        results[-1][places] = (exact[-1][places] + error).to(dtype)
        verdict = accepts(tolerances.assert_accurate, results, plain, exact)
        assert verdict == accepts(oracle.compare, "output 0", results, plain, exact), i
        verdicts.add(verdict)
    assert verdicts == {True, False}


@pytest.mark.parametrize(("result", "right"), [(1.0, True), (-1.0, False), (0.5, False)])
def test_what_a_dtype_does_not_hold_is_infinity(result, right):
    exact = [torch.tensor([3.0, 5e5], dtype=torch.float64)]
    plain = [value.half() for value in exact]
    results = [torch.tensor([3.0, result * torch.inf if abs(result) == 1 else 6e4]).half()]
    assert accepts(tolerances.assert_accurate, results, plain, exact) is right
    assert accepts(oracle.compare, "output 0", results, plain, exact) is right


FP8 = (torch.float8_e4m3fn, torch.float8_e5m2)


def numbers_of(dtype: torch.dtype) -> torch.Tensor:
    """All finite numbers of an 8-bit format, in order."""
    numbers = torch.arange(256, dtype=torch.uint8).view(dtype).double()
    return numbers[numbers.isfinite()].unique()


@pytest.mark.parametrize("dtype", FP8, ids=str)
def test_half_a_step_is_what_rounding_to_8_bits_may_be_off_by(dtype):
    """Between any two neighbours the middle is exactly so far from both."""
    numbers = numbers_of(dtype)
    middles = (numbers[:-1] + numbers[1:]) / 2
    half = (numbers[1:] - numbers[:-1]) / 2
    for half_a_step in (tolerances.half_a_step, tolerance.half_a_step):
        assert torch.equal(half_a_step(dtype, middles), half)


@pytest.mark.parametrize("dtype", FP8, ids=str)
def test_numbers_of_8_bits_are_roundings_of_what_their_reference_says(dtype):
    """To nearest is right; to zero, by a step more, without subnormal numbers and NaN are not."""
    generator = torch.Generator().manual_seed(0)
    exact = [torch.randn(2000, generator=generator, dtype=torch.float64) * torch.finfo(dtype).max / 5]
    exact[0][:1000] *= 2.0 ** -torch.arange(1000).remainder(34)
    nearest = [value.clamp(-torch.finfo(dtype).max, torch.finfo(dtype).max).float().to(dtype) for value in exact]
    exact = [value.clamp(-torch.finfo(dtype).max, torch.finfo(dtype).max) for value in exact]
    numbers = numbers_of(dtype)
    below = numbers[(torch.searchsorted(numbers, exact[0].abs(), right=True) - 1).clamp(min=0)] * exact[0].sign()
    smallest = torch.finfo(dtype).smallest_normal
    steps = (nearest[0].view(torch.uint8).int() + torch.where(nearest[0].double().abs() < 1, 1, 0)).to(torch.uint8)
    wrong = {
        "to zero": below.float().to(dtype),
        "a step more": steps.view(dtype),
        "no subnormal numbers": torch.where(exact[0].abs() < smallest / 2, 0, nearest[0].float()).to(dtype),
        "not a number": torch.where(exact[0] == exact[0].max(), torch.nan, nearest[0].float()).to(dtype),
    }
    for check in (tolerances.assert_accurate, functools.partial(oracle.compare, "output 0")):
        assert accepts(check, nearest, nearest, exact)
        for name, result in wrong.items():
            assert not accepts(check, [result], nearest, exact), name


# PyTorch's own sum is exact for these inputs, and off by 1 for those a rounding away.
LUCKY = """
import sys
import torch
from suite import Make
from suite.values import ValueTests

class Lucky(ValueTests):
    op = staticmethod(lambda x: x + float(sys.argv[1]))
    reference = staticmethod(lambda x: (x + 256) - 256)
    def inputs(self, case, make):
        return (torch.full((1000,), 130.0, dtype=make.dtype),)

Lucky().check_accuracy(None, Make("cpu", getattr(torch, sys.argv[2])), 1)
"""


@pytest.mark.parametrize(
    "error, dtype, passes",
    [
        *((2, "bfloat16", True), (8, "bfloat16", False), (2e-5, "float32", True), (2e-3, "float32", False)),
        *((4e-14, "float64", True), (4e-9, "float64", False)),
    ],
)
def test_where_the_reference_is_exact_by_luck_its_error_nearby_counts(tmp_path, error, dtype, passes):
    folder = stamp(tmp_path / "project", recipes=[]) / "tests"
    environment = {**os.environ, "PYTHONPATH": "../src"}
    script = [sys.executable, "-c", LUCKY, str(error), dtype]
    done = subprocess.run(script, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode == 0) == passes, done.stderr
    assert passes or "an error of" in done.stderr


# The mean of many numbers, which no rounding of each alone moves: PyTorch rounds it to nearly its exact value.
LUCKY_MEAN = """
import sys
import torch
from suite.values import ValueTests, Make

def reference(x):
    return 1 - x.double().mean().to(x.dtype)

class Lucky(ValueTests):
    op = staticmethod(lambda x: reference(x) + float(sys.argv[1]))
    reference = staticmethod(reference)
    def inputs(self, case, make):
        drawn = (torch.rand(4096, generator=torch.Generator().manual_seed(seed)) / 2 + 0.74 for seed in range(10_000))
        return (next(x for x in drawn if abs(reference(x) - reference(x.double())) < 1e-10),)

Lucky().check_accuracy(None, Make("cpu", torch.float32), 1)
"""


@pytest.mark.parametrize("error, passes", [(4e-8, True), (4e-7, False)])
def test_where_a_mean_is_exact_by_luck_its_error_for_other_means_counts(tmp_path, error, passes):
    folder = stamp(tmp_path / "project", recipes=[]) / "tests"
    environment = {**os.environ, "PYTHONPATH": "../src"}
    script = [sys.executable, "-c", LUCKY_MEAN, str(error)]
    done = subprocess.run(script, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode == 0) == passes, done.stderr
    assert passes or "an error of" in done.stderr


@pytest.mark.parametrize(
    "dtype", (*DTYPES, torch.complex64, torch.int32, torch.int64, torch.uint8, torch.bool), ids=str
)
def test_new_values_are_drawn_for_any_dtype(dtype):
    """For a CUDA graph's replay an op's outputs need cotangents, and not every output is floating-point."""
    tensor = torch.zeros(6, 50, dtype=dtype).t()
    drawn = inputs.random_like(tensor)
    assert (drawn.shape, drawn.dtype, drawn.device) == (tensor.shape, tensor.dtype, tensor.device)
    assert len(set(drawn.flatten().tolist())) > 1
