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


@pytest.mark.parametrize(
    ("body", "ops"),
    [
        ("return (q + 3) // 4", ["add", "floor_divide"]),
        ("return (q * 31).remainder(7)", ["mul", "remainder"]),
        (
            "return ((q >> 3) & 7) | (q << 2)",
            ["bitwise_right_shift", "bitwise_and", "bitwise_left_shift", "bitwise_or"],
        ),
        ("return torch.where(q < 0, -q, ~q)", ["lt", "neg", "bitwise_not", "where"]),
        ("return q.clamp(-3, 3).abs()", ["maximum", "minimum", "abs"]),
        ("return torch.div(q, 3, rounding_mode='trunc')", ["trunc_divide"]),
    ],
)
@pytest.mark.parametrize("dtype", ["int8", "int64"])
def test_integers_are_computed_of_integers(tmp_path, body, ops, dtype):
    forward = trace_text(tmp_path, body, "q: Tensor", said={"q": dtype})["paths"][0]["forward"]
    assert [node["op"] for node in forward["nodes"]] == ops
    assert {node["dtype"] for node in forward["nodes"] if node["op"] != "lt"} == {dtype}


def test_integers_are_promoted_as_pytorch_does(tmp_path):
    facts = trace_text(
        tmp_path, "return (a + b) * s", "a: Tensor, b: Tensor, s: Tensor", said={"a": "int8", "b": "int32"}
    )
    nodes = [(node["op"], node["dtype"]) for node in facts["paths"][0]["forward"]["nodes"]]
    assert nodes == [("to_int32", "int32"), ("add", "int32"), ("to_float", "float"), ("mul", "float")]


def test_an_int_argument_is_an_integer_beside_int64(tmp_path):
    body = "return torch.where(ids == pad, ids, (ids ^ 5) * 3 + salt)"
    facts = trace_text(tmp_path, body, "ids: Tensor, salt: int = 2, pad: int = 0", said={"ids": "int64"})
    arguments = [argument for node in facts["paths"][0]["forward"]["nodes"] for argument in node["arguments"]]
    assert {a["scalar"]: a["dtype"] for a in arguments if "scalar" in a} == {"salt": "int64", "pad": "int64"}


@pytest.mark.parametrize(
    ("body", "signature", "reason"),
    [
        ("return a // b", "a: Tensor, b: Tensor", "integers that may hold 0 among the divisors"),
        ("return a << b", "a: Tensor, b: Tensor", "bitwise_left_shift of int32 by bits that no number says"),
        ("return (a + 2**31) * b", "a: Tensor, b: Tensor", "add of int32 with the number"),
        ("return a * n + b", "a: Tensor, b: Tensor, n: int", "arithmetic of int32 with an argument"),
        ("return a.long() % n + b", "a: Tensor, b: Tensor, n: int", "remainder of int64 by an argument"),
    ],
)
def test_arithmetic_that_has_no_kernels_is_named(tmp_path, body, signature, reason):
    with pytest.raises(RefusedError, match=reason):
        trace_text(tmp_path, body, signature, said={"a": "int32", "b": "int32"})


def test_numbers_of_8_bits_are_codes(tmp_path):
    body = "return q.to(torch.float32) * scale, (x / scale).to(torch.float8_e5m2)"
    signature = "q: Tensor, x: Tensor, scale: Tensor"
    facts = trace_text(tmp_path, body, signature, "tuple[Tensor, Tensor]", said={"q": "float8_e4m3fn"})
    assert dtypes(facts) == ["float32", "float8_e5m2"]
    assert facts["paths"][0]["backward"] is None


def test_dtypes_that_nobody_says_are_told_by_names_and_operators(tmp_path):
    assert trace_text(tmp_path, "return ids * 2 + 1", "ids: Tensor")["assumption"]["guessed"] == {"ids": "int64"}
    facts = trace_text(tmp_path, "return (x & 15).to(torch.uint8)", "x: Tensor")
    assert facts["assumption"]["guessed"] == {"x": "uint8"}
    assert trace_text(tmp_path, "return x * 2", "x: Tensor")["assumption"]["guessed"] == {}


def test_what_is_left_of_one_by_a_power_of_an_argument(tmp_path):
    """In float32, 1 - 0.999**step would lose digits: Python's own expression is for the host, in double."""
    facts = trace_text(tmp_path, "return x / (1 - 0.999**step)", "x: Tensor, step: int")
    nodes = facts["paths"][0]["forward"]["nodes"]
    assert [(node["op"], node["kind"]) for node in nodes] == [("pow", "scalar"), ("sub", "scalar"), ("div", "element")]


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "int32", "int64"])
def test_tensors_may_be_of_integers(tmp_path, dtype):
    facts = trace_text(tmp_path, "return q.to(torch.float32) * scale", "q: Tensor, scale: Tensor", said={"q": dtype})
    assert facts["assumption"]["dtypes"] == {"q": dtype, "scale": "float"}
    forward = facts["paths"][0]["forward"]
    assert [node["op"] for node in forward["nodes"]] == ["to_float", "mul"]
    assert facts["paths"][0]["backward"]["outputs"][0] is not None
    assert len(facts["paths"][0]["backward"]["outputs"]) == 1  # Integers have no gradient.


@pytest.mark.parametrize("body", ["return torch.where(a == b, x, 0.0)", "return torch.where(a != -100, x, b * 1.0)"])
def test_integers_are_compared_as_they_are(tmp_path, body):
    """As numbers of float32, large ones would be rounded."""
    said = {"a": "int64", "b": "int64"}
    facts = trace_text(tmp_path, body, "a: Tensor, b: Tensor, x: Tensor", said=said)
    comparison = next(node for node in facts["paths"][0]["forward"]["nodes"] if node["op"] in ("eq", "ne"))
    assert comparison["arguments"][0] == {"input": "a", "kind": "element", "dtype": "int64"}


def test_integers_have_to_be_what_is_said_of_the_shapes(tmp_path):
    call = {"arguments": {"q": (3, 4), "scale": (3, 1)}, "dtypes": {"q": "int8", "scale": "float32"}}
    calls = [call | {"results": [(3, 4)]}]
    signature = "q: Tensor, scale: Tensor"
    facts = trace_text(tmp_path, "return q.float() * scale", signature, calls=calls, said={"q": "int8"})
    assert facts["assumption"]["dtypes"]["q"] == "int8"
    alone = [{"arguments": {"q": (3, 4)}, "dtypes": {"q": "int8"}, "results": [(3, 4)]}]
    with pytest.raises(RefusedError, match="that q is of int8"):
        trace_text(tmp_path, "return q.float() * 2", "q: Tensor", calls=alone, said={})


@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_truth_values_may_be_added_up_to_integers(tmp_path, dtype):
    assert dtypes(trace_text(tmp_path, f"return (x > 0).to(torch.{dtype}) * 2 + (x > 1).to(torch.{dtype})")) == [dtype]


def test_functions_of_statistics(tmp_path):
    body = "return torch.lgamma(x) - x * torch.digamma(x) + torch.erfinv(torch.tanh(x))"
    facts = trace_text(tmp_path, body)
    forward, backward = ({node["op"] for node in facts["paths"][0][key]["nodes"]} for key in ("forward", "backward"))
    assert {"lgamma", "digamma", "erfinv"} <= forward
    assert {"digamma", "trigamma"} <= backward
    with pytest.raises(RefusedError, match=r"the operator aten\.polygamma of order 2"):
        trace_text(tmp_path, "return torch.polygamma(2, x)")


def test_rows_have_a_tensor_of_floating_point_numbers(tmp_path):
    with pytest.raises(RefusedError, match="rows of which no tensor is of floating-point numbers"):
        trace_text(tmp_path, "return (x & y).sum(-1)", "x: Tensor, y: Tensor", said={"x": "bool", "y": "bool"})
