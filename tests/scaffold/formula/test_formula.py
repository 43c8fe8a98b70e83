"""Traced graphs become lines of C++ that a person would keep."""

import re
from pathlib import Path

import pytest

pytest.importorskip("torch")

from kernelgen.scaffold.formula.entry import kernels
from kernelgen.scaffold.formula.expressions import number
from kernelgen.scaffold.formula.graph import Name, Node
from kernelgen.scaffold.formula.pointwise import pointwise
from kernelgen.scaffold.formula.row_wise import row_wise
from kernelgen.scaffold.formula.totals import depends_on_totals
from kernelgen.scaffold.schema.from_python import reference
from tests.worker.test_trace import NAMES, POINTWISE, ROW_NAMES, ROWS, trace, trace_text


def formula(path: Path, name: str) -> dict:
    return pointwise(reference.read(path, name).schema.entry(), trace(path, name))


def formula_of(folder: Path, body: str, signature: str = "x: Tensor", result: str = "Tensor") -> dict:
    traced = trace_text(folder, body, signature, result)
    return kernels(reference.read(folder / "text.py", "f").schema.entry(), traced)["traced"]


def test_gelu_with_a_bias():
    traced = formula(POINTWISE, "gelu_bias")
    assert traced["forward"] == [
        "const Number sum = x + bias;",
        "const Number tanh_value = "
        "math::tanh(Number(0.7978845608028654) * (sum + Number(0.044715) * (sum * sum * sum)));",
        "out = 0.5f * sum * (tanh_value + 1);",
    ]
    assert traced["backward"]["lines"][-1] == "grad_bias = grad_x;"
    assert traced["backward"]["schema"]["text"] == (
        "(Tensor grad, Tensor x, Tensor bias, bool x_needed, bool bias_needed) -> (Tensor grad_x, Tensor grad_bias)"
    )


def test_names_of_the_reference_are_kept():
    traced = formula(POINTWISE, "focal")
    assert [line.split(" = ")[0] for line in traced["forward"]] == [
        "const Number difference",
        "const Number cross_entropy",
        "const Number probability",
        "out",
    ]


def test_a_scalar_exponent_is_known_to_the_loops():
    traced = formula(POINTWISE, "focal")
    assert (traced["exponent"], traced["backward"]["exponent"]) == ("gamma", "gamma")
    assert formula(POINTWISE, "gelu_bias")["exponent"] is None


def test_two_results_and_a_mask():
    traced = formula(POINTWISE, "hysteresis")
    assert traced["forward"] == ["const bool higher = x > y;", "out0 = higher ? x : 0.5f * y;", "out1 = higher;"]
    assert [result["dtype"] for result in traced["results"]] == ["float", "bool"]
    assert [grad["name"] for grad in traced["backward"]["grads"]] == ["grad_out0"]


def test_a_bool_argument_is_a_branch():
    assert formula(POINTWISE, "signed_sine")["forward"] == [
        "if (negate) {",
        "  out = -math::sin(x);",
        "} else {",
        "  out = math::sin(x);",
        "}",
    ]


@pytest.mark.parametrize(
    ("body", "line"),
    [
        ("return x * 1.0 + 0.0", "out = x;"),
        ("return x**2 - x**3", "out = x * x - x * x * x;"),
        ("return x - (x.exp() - x.sin())", "out = x - (math::exp(x) - math::sin(x));"),
        ("return x / (x.exp() * x.sin())", "out = math::quotient(x, math::exp(x) * math::sin(x));"),
        # Truth values and whole numbers are no numbers in C++, whose templates take one type and whose `/` truncates.
        ("return (x > 1) / (x < 2)", "out = math::quotient(Number(x > 1), Number(x < 2));"),
        ("return x / ((x > 1) + 1)", "out = math::quotient(x, Number((x > 1) + 1));"),
        ("return 1 / (x > 1)", "out = 1 / Number(x > 1);"),
        ("return (1.5 * (x > 1)).sqrt() * x", "out = math::sqrt(Number(1.5f * (x > 1))) * x;"),
        ("return ((x > 1) + 1).sqrt()", "out = math::sqrt(Number((x > 1) + 1));"),
        ("return torch.where(x > 1, 3, 2) // 2 * x", "out = math::floor((x > 1 ? Number(3) : 2) / 2) * x;"),
        ("return x.exp() * x / x", "out = math::cancelled(math::exp(x), x);"),
        ("return -(x.exp() + 1)", "out = -(math::exp(x) + 1);"),
        ("return x + -x.exp()", "out = x - math::exp(x);"),
        ("return torch.where(x > 0, x, 1.0) * x", "out = (x > 0 ? x : 1) * x;"),
        ("return (x > 0) * x", "out = (x > 0) * x;"),
        ("return ((x > 0) * (x < 9) + (x < -9)) * x", "out = ((x > 0 && x < 9) || x < -9) * x;"),
        ("return x.clamp(max=0.1)", "out = math::minimum(x, Number(0.1));"),
    ],
)
def test_expressions_have_the_parentheses_they_need(tmp_path, body, line):
    assert formula_of(tmp_path, body)["forward"] == [line]


@pytest.mark.parametrize(
    ("value", "text"),
    [(2.0, "2"), (-3.0, "-3"), (0.5, "0.5f"), (0.1, "Number(0.1)"), (float("inf"), "math::kInfinity<Number>")],
)
def test_numbers_are_exact_in_both_types(value, text):
    assert number(value).text == text


def test_a_word_of_cpp_is_no_variable(tmp_path):
    traced = formula_of(tmp_path, "register = x.exp()\n    return register * register")
    assert traced["forward"][0] == "const Number register_ = math::exp(x);"


def test_numbers_that_scalars_alone_make_are_computed_once_in_double(tmp_path):
    """float32 has four digits of 1 - 0.999."""
    body = "v = b2 * v + (1 - b2) * grad * grad\n    return lr * v / (1 - b2**t), v / b2"
    signature = "v: Tensor, grad: Tensor, t: int = 3, lr: float = 0.001, b2: float = 0.999"
    traced = formula_of(tmp_path, body, signature, "tuple[Tensor, Tensor]")
    assert traced["computed"] == {
        "arguments": ["t", "b2"],
        "names": ["one_minus_b2", "difference", "inverse_b2"],
        "lines": ["one_minus_b2 = 1 - b2;", "difference = 1 - std::pow(b2, t);", "inverse_b2 = 1 / b2;"],
    }
    assert traced["forward"][0] == "const Number v_2 = v * b2 + grad * one_minus_b2 * grad;"
    given = ["lr", "b2", "scalars.one_minus_b2", "scalars.difference", "scalars.inverse_b2"]
    assert [scalar["given"] for scalar in traced["formula_scalars"]] == given
    assert traced["backward"]["formula_scalars"] == traced["formula_scalars"]
    assert traced["backward"]["computed_of"] == traced["computed_of"] == ["t", "b2"]


def test_an_exponent_that_is_an_argument_may_be_that_of_a_root(tmp_path):
    """PyTorch's sqrt(-inf) is NaN, and C's pow(-inf, 0.5) is not."""
    traced = formula_of(tmp_path, "return x**e + x**y", "x: Tensor, y: Tensor, e: float = 0.5")
    assert traced["forward"] == ["out = math::scalar_power(x, e) + math::pow(x, y);"]


@pytest.mark.parametrize(
    ("body", "scalar", "lines"),
    [
        # Of the forward alone.
        ("return F.huber_loss(x, x.detach() + 1, delta=a)", "a: float = 1.0", ["product = 0.5 * a;"]),
        # Whole numbers, exactly: what is rounded may lie halfway.
        ("return (x * (2 ** (bits - 1) - 1)).round()", "bits: int = 8", ["difference = std::pow(2, bits - 1) - 1;"]),
        ("return x * (3 << bits)", "bits: int = 8", ["product = 3 * std::pow(2, bits);"]),
        ("return x + math.lgamma(a / 2)", "a: float = 4.0", ["lgamma = std::lgamma(a / 2);"]),
        ("return x * 2.0**-bits", "bits: int = 8", ["power = std::pow(2, -bits);"]),
    ],
)
def test_numbers_of_scalars_are_those_of_python(tmp_path, body, scalar, lines):
    traced = formula_of(tmp_path, body, f"x: Tensor, {scalar}")
    assert traced["computed"]["lines"][: len(lines)] == lines


def test_parts_of_a_tensor_that_is_repeated_meet_rows_that_are_not_cut(tmp_path):
    """As the modulation of a diffusion transformer, which has a vector of parameters for each sample."""
    body = (
        "shift, scale, gate = params.chunk(3, dim=-1)\n    y = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True))\n    "
    )
    body += "return gate[:, None] * (y * (1 + scale[:, None]) + shift[:, None])"
    traced = formula_of(tmp_path, body, "x: Tensor, params: Tensor")
    assert [(tensor["shape"], tensor.get("cut")) for tensor in traced["tensors"]] == [
        ("rows", None),
        ("spread", {"parts": 3, "in_turns": False}),
    ]
    assert [gradient["cpp"] for gradient in traced["backward"]["outputs"]] == [
        *("grad_x", "grad_params_first", "grad_params_second", "grad_params_third")
    ]


def test_arguments_may_be_called_as_gradients_are(tmp_path):
    signature = "x: Tensor, grad: Tensor, grad_x: Tensor, x_needed: Tensor"
    backward = formula_of(tmp_path, "return x * grad + grad_x * x_needed", signature)["backward"]
    assert backward["schema"]["text"] == (
        "(Tensor grad_out, Tensor x, Tensor grad, Tensor grad_x, Tensor x_needed, "
        "bool x_needed_2, bool grad_needed, bool grad_x_needed, bool x_needed_needed) -> "
        "(Tensor grad_x_2, Tensor grad_grad, Tensor grad_grad_x, Tensor grad_x_needed)"
    )
    assert backward["gradients"][0]["needed"] == "x_needed_2"


@pytest.mark.parametrize("name", NAMES)
def test_no_line_is_too_long(name):
    traced = formula(POINTWISE, name)
    for line in [*traced["forward"], *(traced["backward"] or {"lines": []})["lines"]]:
        assert len(line) <= 118


def test_what_decides_a_step_stays_a_division(tmp_path):
    """A product with the inverse differs in the last bit, which rounding may turn into a whole one."""
    body, signature = "return torch.round(x / scale) * scale + x / scale", "x: Tensor, scale: float = 0.3"
    assert formula_of(tmp_path, body, signature)["forward"][0] == "const Number quotient = x / scale;"
    assert formula_of(tmp_path, "return x / scale", signature)["forward"] == ["out = x * inverse_scale;"]
    assert formula_of(tmp_path, "return x / 6")["forward"] == ["out = x * Number(1.0 / 6);"]


def test_softmax_is_three_passes_two_of_which_share_the_exponential():
    traced = row_wise(reference.read(ROWS, "softmax").schema.entry(), trace(ROWS, "softmax"))
    assert traced["forward"] == [
        "const Number row_max = row.max([&](Number x) { return x; });",
        "auto kept = row.keep(Inputs<0>(), [&](Number x) { return math::exp(x - row_max); });",
        "const Number row_sum = kept.sum([&](Number exponential, Number) { return exponential; });",
        "const Number inverse = 1 / row_sum;",
        "kept.write([&](Number exponential, Number, Number& out) { out = exponential * inverse; });",
    ]


@pytest.mark.parametrize(
    ("body", "direction", "factor"),
    [
        ("return F.log_softmax(x, -1)", "backward", "math::exp(x - row_max) * inverse"),
        ("return F.log_softmax(x, -1).exp()", "forward", "exponential * inverse"),
        # Where the max is infinite, exp(x - max) is 0 or NaN, as the gradient is.
        ("return x.logsumexp(-1)", "backward", "math::exp(x - row_max) * chosen"),
    ],
)
def test_an_exponential_with_the_logarithm_of_a_sum_is_one_of_its_terms_over_it(tmp_path, body, direction, factor):
    traced = formula_of(tmp_path, body)
    lines = "\n".join(traced["forward"] if direction == "forward" else traced["backward"]["lines"])
    assert lines.count("math::exp(") == lines.count("math::exp(x - row_max)") == 1
    assert "math::log(" not in lines
    assert factor in lines
    assert ("row.save(1, is_equal ? 1 : inverse);" in traced["forward"]) == ("chosen" in factor)


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ("return torch.exp(x - x.exp().sum(-1, keepdim=True).log())", "the sum may overflow"),
        ("return torch.exp(y - x.logsumexp(-1, keepdim=True))", "other elements"),
        ("return torch.exp(x - 1 - x.logsumexp(-1, keepdim=True))", "another difference"),
        ("return (8 * F.log_softmax(x, -1).exp()).round()", "what decides a step"),
    ],
)
def test_other_exponentials_stay(tmp_path, body, why):
    signature = "x: Tensor, y: Tensor" if "(y " in body else "x: Tensor"
    lines = "\n".join(formula_of(tmp_path, body, signature)["forward"])
    assert "math::log(" in lines, why


def test_what_no_number_of_a_row_decides_is_kept_for_all_rows():
    kept = [line for line in formula_of_rows("gated_rms")["forward"] if "row.keep" in line]
    assert kept == ["auto kept = row.keep_for_rows(Inputs<1>(), [&](Number gate) { return math::sigmoid(gate); });"]


def test_a_gpu_holds_a_long_function_in_registers(tmp_path):
    """Which it computes once then; a short one is computed in each pass, and keeps no registers."""
    capped = formula_of(tmp_path, "return torch.softmax(30 * torch.tanh(x / 30), -1)")
    assert [line for line in capped["forward"] if "row.hold" in line] == [
        "auto kept = row.hold_for_rows(Inputs<0>(), [&](Number x) { return math::tanh(x * inverse); });"
    ]
    assert capped["holds"]
    assert not formula_of_rows("softmax")["holds"]


def test_half_of_what_passes_compute_again_is_not_held(tmp_path):
    body = """p, q = x.softmax(-1), y.softmax(-1)
    m = (p + q) / 2
    return (p * (p / m).log()).sum(-1) + (q * (q / m).log()).sum(-1)"""
    assert not formula_of(tmp_path, body, "x: Tensor, y: Tensor")["backward"]["holds"]


def test_nothing_is_kept_for_one_pass():
    assert "kept" not in " ".join(formula_of_rows("rms")["forward"] + formula_of_rows("log_sum_exp")["forward"])


def test_a_loss_is_a_number_for_each_row():
    traced = row_wise(reference.read(ROWS, "soft_cross_entropy").schema.entry(), trace(ROWS, "soft_cross_entropy"))
    assert "row.put(0, -row_sum_2);" in traced["forward"]
    assert traced["backward"]["lines"][0] == "const Number grad = row.number(0);"


def test_up_to_four_sums_are_one_pass():
    traced = formula_of_rows("cosine")
    assert traced["reductions"] == 1
    summed = [line.split(" = ")[1].rstrip(";") for line in traced["forward"] if "_term = " in line]
    assert summed == ["a * b", "a * a", "b * b"]


def test_a_mean_is_corrected_by_the_pass_that_adds_up_squares(tmp_path):
    layer = formula_of_rows("layer")
    assert layer["reductions"] == 2
    text = "\n".join(layer["forward"])
    assert "const Number corrected_mean = math::corrected_mean(mean, correction);" in text
    assert "const Number centred = x - corrected_mean;" in text
    assert re.search(r"variance = math::corrected_squares\(row_sum_\d, correction, row_sum_\d\) / columns;", text)
    # What is summed in the same pass is corrected after it.
    body = "c = x - x.mean(-1, keepdim=True)\n    return (c * y).sum(-1) / (c * c).sum(-1)"
    summed = "\n".join(formula_of(tmp_path, body, "x: Tensor, y: Tensor")["forward"])
    assert re.search(r"math::corrected_sum\(row_sum_\d, correction, row_sum(_\d)?\)", summed)
    # The gradient has the corrected mean of the forward.
    assert "row.save(0, corrected_mean);" in layer["forward"]
    assert "const Number mean = row.saved(0);" in layer["backward"]["lines"]
    assert layer["backward"]["reductions"] == 1


def test_a_mean_that_nothing_is_squared_about_is_a_sum(tmp_path):
    lines = formula_of(tmp_path, "return (x - x.mean(-1, keepdim=True)).abs().sum(-1)")["forward"]
    assert "correct" not in "\n".join(lines)


def test_a_weighted_sum_of_logarithms_of_probabilities_waits_for_the_logarithm():
    """Without it an infinite weight of the largest element, of which the logarithm is 0 then, would be NaN."""
    assert formula_of_rows("soft_cross_entropy")["reductions"] == 3


@pytest.mark.parametrize("name", ROW_NAMES)
def test_no_line_of_rows_is_too_long(name):
    traced = formula_of_rows(name)
    backward = traced["backward"] or {"lines": []}
    assert all(len(line) <= 118 for line in [*traced["forward"], *backward["lines"]])


@pytest.mark.parametrize(
    ("body", "signature", "least", "drawn"),
    [
        ("return x - x.mean((-2, -1), keepdim=True)", "x: Tensor", 2, 3),
        ("return x * s[:, :, None, None]", "x: Tensor, s: Tensor", 4, 4),
    ],
)
def test_tensors_are_drawn_with_more_dimensions_than_a_row_has(tmp_path, body, signature, least, drawn):
    traced = formula_of(tmp_path, body, signature)
    assert (traced["rows"]["least"], traced["rows"]["drawn"]) == (least, drawn)


def test_a_mean_over_rows_is_finished_when_all_rows_are_added_up():
    traced = formula_of_rows("cross_entropy")
    assert traced["results"][0]["kind"] == "total"
    assert {"row.add(0, Number(differs));", "row.add(1, differs ? -row_sum_2 : 0);"} <= {*traced["forward"]}
    assert "totals.put_total(0, total_2 / total);" in traced["totals"]["lines"]
    # The number of targets that count is a sum over all rows, too, which the forward saves.
    assert traced["totals"]["lines"][-1] == "totals.save(0, total);"
    assert traced["backward"]["totals"] is None
    assert "const Number total = row.saved_total(0);" in traced["backward"]["lines"]


def test_running_totals_are_the_pass_that_writes():
    traced = formula_of_rows("running_sum")
    assert traced["forward"] == [
        "const auto term = [&](Number x, Number mask) { return mask ? x : 0; };",
        "row.write_running_sums(term, [&](Number, Number, Number running_sum, Number& out) { out = running_sum; });",
    ]
    assert "row.write_running_sums_back(" in "\n".join(traced["backward"]["lines"])
    assert traced["reductions"] == 1


@pytest.mark.parametrize("name", ("running_product", "sum_from_here"))
def test_a_gradient_that_does_not_decompose_is_composed(name):
    """cumprod's is not made of operators that are known here; a weight beside a running total would need two."""
    traced = formula_of_rows(name)
    assert traced["backward"] is None
    assert traced["composed"]


def formula_of_rows(name: str) -> dict:
    return kernels(reference.read(ROWS, name).schema.entry(), trace(ROWS, name))["traced"]


def test_sums_that_need_each_other_less_than_they_seem_are_one_pass():
    """The inverse that the terms of a sum have in common is multiplied once, so that the sum waits for none."""
    backward = formula_of_rows("rows_bias")["backward"]
    assert backward["reductions"] == 1
    assert "{ return grad * exponential; }" in "\n".join(backward["lines"])
    # The forward saves what the exponentials need: the sum of the gradients is all that is left.
    assert formula_of_rows("log_softmax")["backward"]["reductions"] == 1


@pytest.mark.parametrize("name", ["softmax", "masked_softmax", "softmax_temperature"])
def test_a_gradient_reads_a_result_that_is_a_factor_of_it(name):
    backward = formula_of_rows(name)["backward"]
    assert (backward["reads"], backward["reductions"]) == ([0], 1)
    assert backward["schema"]["text"].startswith("(Tensor grad, Tensor out, ")
    assert not backward["tensors"][2]["used"]
    assert "grad * out - out * row_sum" in "\n".join(backward["lines"])


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ("return torch.log_softmax(x, -1)", "the gradient has it as an exponent"),
        ("return torch.tanh(x - x.mean(-1, keepdim=True))", "the gradient has its square"),
        ("return torch.sigmoid(x - x.sum(-1, keepdim=True))", "the gradient subtracts it from 1"),
        ("return torch.exp(x) * x.sum(-1, keepdim=True)", "no reduction less"),
        ("return torch.softmax(x, -1) + 1", "it is no result"),
    ],
)
def test_a_gradient_computes_again_what_it_would_magnify_or_gain_nothing_by(tmp_path, body, why):
    assert formula_of(tmp_path, body)["backward"]["reads"] == [], why


@pytest.mark.parametrize(
    ("name", "saved", "reductions"),
    [
        ("log_sum_exp", ["row_max", "chosen"], 0),
        ("cross_entropy", ["row_max", "total", "inverse"], 0),
        ("margin_by_pair", ["difference"], 0),
        # Reductions, where more numbers are computed of them.
        ("kl", ["row_max", "row_sum", "row_max_2", "row_sum_2"], 1),
    ],
)
def test_a_forward_saves_numbers_that_spare_its_gradient_reductions(name, saved, reductions):
    traced = formula_of_rows(name)
    assert [number["name"] for number in traced["saved"]] == saved
    assert traced["backward"]["reductions"] == reductions
    assert traced["operator"]["text"].endswith(f", Tensor {', Tensor '.join(saved)})")
    given = [tensor["name"] for tensor in traced["backward"]["tensors"] if tensor["dtype"] == "saved"]
    assert given == saved


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ("return x * torch.rsqrt(x.square().mean(-1, keepdim=True))", "its own sum is of the same pass"),
        ("return torch.softmax(x, -1)", "it reads the result"),
        ("return x.sum(-1)", "it has no reduction"),
        ("return torch.tanh(x.amax(-1, keepdim=True) * x).sum(-1) / x.sum(-1)", "its own sum waits for nothing else"),
    ],
)
def test_nothing_is_saved_that_spares_no_pass(tmp_path, body, why):
    assert "saved" not in formula_of(tmp_path, body), why


def test_gradients_of_tensors_that_may_be_vectors_are_added_up_by_the_kernel():
    assert formula_of_rows("layer")["backward"]["summed"] == 0b110
    # A target is mostly one for each row, but all rows may have it in common.
    assert formula_of_rows("smooth_cross_entropy")["backward"]["summed"] == 0b10
    # Beside many reductions too: sums take no registers.
    assert formula_of_rows("kl")["backward"]["summed"] == 0b10
    assert formula_of_rows("softmax")["backward"]["summed"] == 0


def test_the_place_of_an_element_is_a_parameter_where_it_is_needed():
    traced = formula_of_rows("largest")
    assert [result["dtype"] for result in traced["results"]] == ["float", "int"]
    assert traced["forward"][-1] == "row.put_place(0, place_of_max);"
    assert "[&](int64_t place, Number, Number& grad_x)" in traced["backward"]["lines"][-1]


def test_a_value_that_is_used_again_and_again_is_looked_at_once():
    """Sixty doublings are sixty nodes, on 2^60 paths."""
    value = Name("x", "float", "element")
    for index in range(60):
        value = Node(index, "add", (value, value), "float", "element")
    assert not depends_on_totals(value)
    assert depends_on_totals(Node(60, "add", (value, Name("total", "float", "total")), "float", "element"))
