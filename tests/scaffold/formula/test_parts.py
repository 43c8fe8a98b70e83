"""Parts of a tensor's last dimension are operands of their own, with the names of the reference."""

import pytest

pytest.importorskip("torch")

from kernelgen.scaffold.formula.needs import lacking
from tests.scaffold.formula.test_formula import formula, formula_of
from tests.stamped.conftest import REPOSITORY
from tests.worker.test_trace import POINTWISE


def test_parts_have_the_names_of_their_variables():
    traced = formula(POINTWISE, "rotate_half")
    assert traced["forward"] == [
        "out_first = a * cos_first - b * sin_first;",
        "out_second = b * cos_second + a * sin_second;",
    ]
    assert [operand["cpp"] for operand in traced["backward"]["operands"]][:4] == [
        "grad_out_first",
        "grad_out_second",
        "a",
        "b",
    ]
    assert [output["cpp"] for output in traced["backward"]["outputs"]][:2] == ["grad_a", "grad_b"]


def test_parts_in_turns_are_even_and_odd(tmp_path):
    traced = formula_of(tmp_path, "return x.unflatten(-1, (-1, 2)).sum(-1)")
    assert traced["forward"] == ["out = x_even + x_odd;"]
    assert traced["tensors"][0]["cut"] == {"parts": 2, "in_turns": True}


def test_a_result_of_matrices_is_one_of_vectors_for_the_operator(tmp_path):
    body = "a, b = x.unbind(-1); return torch.stack((a, -b, b, a), -1).unflatten(-1, (2, 2))"
    traced = formula_of(tmp_path, body)
    assert traced["signature"]["joins"] == [".unflatten(-1, (2, 2))"]
    assert traced["signature"]["reference"][-1] == "    return _function(x).flatten(-2)"
    assert traced["results"][0]["cut"]["parts"] == 4
    body = "a, b = x.unbind(-1); return torch.stack((a, -b, b, a), -1).unflatten(-1, (2, 2)), a * s"
    traced = formula_of(tmp_path, body, "x: Tensor, s: Tensor", "tuple[Tensor, Tensor]")
    assert traced["signature"]["joins"] == [".unflatten(-1, (2, 2))", ".squeeze(-1)"]


def test_parts_beyond_the_eighth_are_numbered(tmp_path):
    body = "return torch.cat([f(2.0**i * x) for i in range(5) for f in (torch.sin, torch.cos)], -1)"
    outputs = formula_of(tmp_path, body)["outputs"]
    assert [output["cpp"] for output in outputs][6:9] == ["out_seventh", "out_eighth", "out_part_9"]


def test_a_name_that_the_sources_use_gets_that_of_its_tensor():
    """`k` is a loop's."""
    traced = formula(POINTWISE, "three_parts")
    assert [operand["cpp"] for operand in traced["operands"]] == ["q", "x_k", "v"]
    assert [operand["part"] for operand in traced["operands"]] == [0, 1, 2]


def test_only_what_is_read_is_loaded():
    backward = formula(POINTWISE, "three_parts")["backward"]
    assert [operand["cpp"] for operand in backward["operands"] if operand["used"]] == [
        "grad_out0",
        "grad_out1",
        "grad_out2",
        "v",
    ]


def test_a_gradient_that_is_cut_is_never_that_of_a_result():
    """Of three_parts, a part of it is."""
    (gradient,) = formula(POINTWISE, "three_parts")["backward"]["gradients"]
    assert (gradient["same_as"], gradient["copy_of"]) == (None, None)


def test_an_op_without_parts_has_no_key_of_theirs():
    traced = formula(POINTWISE, "gelu_bias")
    assert not {"operands", "outputs", "no_columns"} & {*traced, *traced["backward"]}
    assert not any("cut" in value for value in (*traced["tensors"], *traced["results"]))


def test_a_result_without_parts_may_be_joined_of_whole_tensors():
    traced = formula(POINTWISE, "beside")
    assert [operand["part"] for operand in traced["operands"]] == [None, None]
    assert traced["forward"] == ["out_first = x * y;", "out_second = x - y;"]


def test_a_template_without_parts_is_known(tmp_path):
    """An older project's would write sources that do not compile."""
    traced = formula(POINTWISE, "rotate_half")
    assert lacking(REPOSITORY, traced) is None
    of_epsilon = formula_of(tmp_path, "return F.rms_norm(x, x.shape[-1:])")
    assert lacking(REPOSITORY, of_epsilon) is None
    assert lacking(tmp_path, of_epsilon) == "the epsilon of a number's dtype"
    macros = tmp_path / "template/_macros/formula.jinja"
    assert lacking(tmp_path, traced) == "kernels of parts of a dimension"
    macros.parent.mkdir(parents=True)
    macros.write_text("{% macro parameters() %}{% endmacro %}")
    assert lacking(tmp_path, traced) == "kernels of parts of a dimension"
    assert lacking(tmp_path, formula(POINTWISE, "causal_mask")) == "kernels that depend on where an element lies"
    assert lacking(tmp_path, formula(POINTWISE, "token_shift")) == "kernels that read neighbours of elements"
    assert lacking(tmp_path, formula(POINTWISE, "codes_by")) == "results of integers"
    assert lacking(tmp_path, formula(POINTWISE, "gelu_bias")) is None
    of_rows = formula_of(tmp_path, "return x.logcumsumexp(-1)")
    assert lacking(REPOSITORY, of_rows) is None
    assert lacking(tmp_path, of_rows) == "running maxima, minima and log sums"


def test_all_parts_that_take_turns_are_loaded_where_one_is_read():
    traced = formula(POINTWISE, "first_of_pairs")
    assert [(operand["used"], operand["loaded"]) for operand in traced["operands"]] == [(True, True), (False, True)]
    assert {operand["turns"] for operand in traced["operands"]} == {"x_turns"}


def test_what_only_some_gradients_read_is_left_out_where_they_are_not_needed():
    operands = formula(POINTWISE, "rotate_half")["backward"]["operands"]
    needed_by = {operand["cpp"]: operand.get("needed_by") for operand in operands}
    assert needed_by["a"] == ["cos_needed", "sin_needed"]
    assert needed_by["cos_first"] == ["x_needed"]
    assert needed_by["grad_out_first"] is None
