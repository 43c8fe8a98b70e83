"""Results of integers that numbers are cast to, and numbers that are powers of an argument."""

import pytest

torch = pytest.importorskip("torch")

from kernelgen.worker.trace.refusals import RefusedError  # noqa: E402

from .test_trace import POINTWISE, ROWS, trace, trace_text  # noqa: E402


def dtypes(facts):
    return [output["dtype"] for output in facts["paths"][0]["forward"]["outputs"]]


@pytest.mark.parametrize(
    ("path", "name", "expected"),
    [
        (POINTWISE, "codes_by", ["int8"]),
        (POINTWISE, "codes_and_errors", ["uint8", "float"]),
        (ROWS, "quantized", ["int8", "float"]),
    ],
)
def test_results_may_be_integers(path, name, expected):
    assert dtypes(trace(path, name)) == expected


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "int32", "int64"])
def test_every_integer_is_a_cast(tmp_path, dtype):
    facts = trace_text(tmp_path, f"return x.abs().floor().to(torch.{dtype})")
    assert dtypes(facts) == [dtype]
    assert facts["paths"][0]["backward"] is None


def test_a_truth_value_may_be_an_integer(tmp_path):
    assert dtypes(trace_text(tmp_path, "return (x > 0.5).to(torch.int8)")) == ["int8"]


def test_an_integer_is_a_number_beside_numbers(tmp_path):
    facts = trace_text(tmp_path, "return (x * 8).to(torch.int8).to(x.dtype) / 8")
    assert [node["op"] for node in facts["paths"][0]["forward"]["nodes"]] == ["mul", "to_int8", "to_float", "div"]


def test_arithmetic_of_integers_has_no_kernels(tmp_path):
    with pytest.raises(RefusedError, match="add of int8"):
        trace_text(tmp_path, "y = x.to(torch.int8); return y + y")


def test_what_is_left_of_one_by_a_power_of_an_argument(tmp_path):
    """In float32, 1 - 0.999**step would lose digits."""
    facts = trace_text(tmp_path, "return x / (1 - 0.999**step)", "x: Tensor, step: int")
    ops = [node["op"] for node in facts["paths"][0]["forward"]["nodes"]]
    assert ops == ["mul", "expm1", "neg", "div"]
