"""Formulas whose results are integers that numbers are cast to, and of coordinates."""

import pytest

pytest.importorskip("torch")

from kernelgen.scaffold.formula.entry import kernels
from kernelgen.scaffold.schema.from_python import reference
from tests.scaffold.formula.test_formula import formula, formula_of
from tests.worker.test_trace import POINTWISE, trace_text


def test_a_division_before_integers_alone_may_be_approximate(tmp_path):
    """Few integers may be off by one; PyTorch's own division in 16 bits is coarser."""
    (line,) = formula_of(tmp_path, "return (x / (1 + x.abs())).round().to(torch.int8)")["forward"]
    assert "math::round(math::quotient(x, " in line


def test_a_division_before_integers_that_others_are_computed_of_is_exact():
    codes, _ = formula(POINTWISE, "codes_and_errors")["forward"]
    assert "math::round((x - shift) / step)" in codes
    assert codes.startswith("out0 = static_cast<uint8_t>(")


def test_a_gradient_is_that_of_the_second_result():
    """By the places of the results that have a gradient."""
    of_x, of_shift = formula(POINTWISE, "codes_and_errors")["backward"]["gradients"]
    assert (of_x["same_as"], of_shift["same_as"]) == (0, None)


def test_some_gradient_is_computed(tmp_path):
    """The operator of the gradient is called."""
    (gradient,) = formula_of(tmp_path, "return x + 1")["backward"]["gradients"]
    assert gradient["same_as"] is None


def test_coordinates_are_parameters():
    traced = formula(POINTWISE, "causal_mask")
    assert traced["forward"] == ["out = column <= row ? x : -10000;"]
    assert traced["backward"]["lines"] == ["grad_x = column <= row ? grad : 0;"]
    assert traced["coordinates"] == traced["backward"]["coordinates"] == ["row", "column"]


def test_integers_are_read_as_they_are(tmp_path):
    signature = "q: Tensor, labels: Tensor, scale: Tensor"
    body = "return torch.where(labels != -100, q.float() * scale, 0.0)"
    facts = trace_text(tmp_path, body, signature, said={"q": "int8", "labels": "int64"})
    traced = kernels(reference.read(tmp_path / "text.py", "f").schema.entry(), facts)["traced"]
    assert traced["forward"] == ["out = labels != -100 ? Number(q) * scale : 0;"]
    assert [tensor["element"] for tensor in traced["tensors"]] == ["int8_t", "int64_t", "T"]
    assert [tensor["number"] for tensor in traced["tensors"]] == ["int8_t", "int64_t", "Number"]


def test_arithmetic_of_integers_wraps_around(tmp_path):
    facts = trace_text(
        tmp_path, "return ((q + 200) & 0xFF) >> 4, -q // 3", "q: Tensor", "tuple[Tensor, Tensor]", said={"q": "int32"}
    )
    traced = kernels(reference.read(tmp_path / "text.py", "f").schema.entry(), facts)["traced"]
    assert traced["forward"] == [
        "out0 = (integers::add<int32_t>(q, 200) & 0xff) >> 4;",
        "out1 = integers::floor_divide<int32_t>(integers::neg<int32_t>(q), 3);",
    ]
    assert (traced["functions"], traced["dtypes"], traced["integers"]) == ("integers.h", ["float32"], True)


def test_numbers_of_8_bits_are_made_by_functions(tmp_path):
    traced = formula_of(tmp_path, "return (x / 3).to(torch.float8_e4m3fn).to(x.dtype)")
    assert "float8::of_e4m3(float8::to_e4m3(" in " ".join(traced["forward"])
    assert traced["functions"] == "float8.h"


def test_functions_of_statistics_have_a_header_of_their_own(tmp_path):
    assert formula_of(tmp_path, "return torch.lgamma(x)")["functions"] == "special_functions.h"
    assert formula_of(tmp_path, "return torch.digamma(x).sum(-1)")["functions"] == "special_functions.h"
    assert "functions" not in formula_of(tmp_path, "return torch.exp(x)")


def test_rows_of_float32_have_gradients_of_tensors_of_float32(tmp_path):
    """_row_wise.py casts the tensors."""
    traced = formula_of(tmp_path, "return F.log_softmax(x.float(), -1)")
    assert [result["dtype"] for result in traced["results"]] == ["float32"]
    assert [grad["dtype"] for grad in traced["backward"]["grads"]] == ["float", "saved", "saved"]
