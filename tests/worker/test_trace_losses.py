"""Losses and masks: targets, lengths and truth values of rows, counts, and results of dtypes of their own."""

import pytest

torch = pytest.importorskip("torch")

from kernelgen.worker.trace.refusals import RefusedError  # noqa: E402

from .test_trace import POINTWISE, ROWS, trace, trace_text  # noqa: E402
from .test_trace_integers import dtypes  # noqa: E402


@pytest.mark.parametrize(
    ("path", "name", "expected"),
    [
        (ROWS, "wide_loss", ["float32"]),
        (ROWS, "brier", ["float"]),
        (ROWS, "flags_and_counts", ["bool", "int", "float32"]),
        (ROWS, "margin_by_pair", ["float"]),
        (ROWS, "padded_softmax", ["float"]),
        (POINTWISE, "rounded_parts", ["bfloat16", "float32"]),
    ],
)
def test_results_have_the_dtypes_of_the_function(path, name, expected):
    facts = trace(path, name)
    assert dtypes(facts) == expected
    assert facts["paths"][0]["backward"] is not None


@pytest.mark.parametrize("start", ["0, ", "2, "])
def test_arange_of_a_row_is_the_place_of_its_elements(tmp_path, start):
    end = "x.shape[-1]" if start == "0, " else "x.shape[-1] + 2"
    facts = trace_text(tmp_path, f"return torch.where(torch.arange({start}{end}) < n[:, None], x, 0.0).amax(-1)", PAIR)
    assert facts["assumption"]["dtypes"] == {"x": "float", "n": "int"}


PAIR = "x: Tensor, n: Tensor"


def test_classes_are_expected_where_probabilities_would_do(tmp_path):
    """Without a mean, probabilities are rows as any others."""
    facts = trace_text(tmp_path, 'return F.cross_entropy(x, n, reduction="none")', PAIR)
    assert facts["assumption"]["dtypes"] == {"x": "float", "n": "int"}
    weighted = 'return F.cross_entropy(x, n, w, reduction="none", label_smoothing=0.1)'
    facts = trace_text(tmp_path, weighted, f"{PAIR}, w: Tensor")
    assert facts["assumption"]["dtypes"] == {"x": "float", "n": "int", "w": "float"}
    assert facts["assumption"]["kinds"] == {"x": "element", "n": "row", "w": "column"}


@pytest.mark.parametrize(
    "body",
    [
        "return x.gather(-1, n[..., None])[..., 0]",
        "return x.gather(-1, n[..., None]).squeeze(-1)",
        "return x.gather(-1, n.clamp(min=0).unsqueeze(-1))[:, 0]",
        "return x.softmax(-1).gather(1, n.view(-1, 1)).view(-1)",
        "return (x * torch.nn.functional.one_hot(n, x.shape[-1])).sum(-1)",
        "return (x * (n.unsqueeze(-1) == torch.arange(x.shape[-1]))).sum(-1)",
    ],
)
def test_an_element_of_each_row_is_picked_in_many_ways(tmp_path, body):
    facts = trace_text(tmp_path, body, PAIR)
    assert facts["assumption"]["composed"] is None
    assert any(node["op"] == "eq" for node in facts["paths"][0]["forward"]["nodes"])


@pytest.mark.parametrize(
    "body",
    [
        "return x.scatter(-1, t.unsqueeze(-1), -1e4).softmax(-1)",
        "m = (x - x.gather(1, t[:, None]) + 1).clamp(min=0); return m.scatter(1, t[:, None], 0).sum(1)",
    ],
)
def test_an_element_of_each_row_is_set(tmp_path, body):
    facts = trace_text(tmp_path, body, "x: Tensor, t: Tensor")
    assert facts["assumption"]["dtypes"]["t"] == "int"
    assert facts["paths"][0]["backward"]


@pytest.mark.parametrize(
    ("body", "dtype"),
    [
        ("return (x > 0).any(-1)", "bool"),
        ("return torch.isfinite(x).all(dim=-1, keepdim=True)", "bool"),
        ("return (x > 0.5).sum(-1)", "int"),
        ("return x.isnan().count_nonzero(-1)", "int"),
    ],
)
def test_a_row_has_truth_values_and_counts(tmp_path, body, dtype):
    assert dtypes(trace_text(tmp_path, body)) == [dtype]


def test_the_first_of_the_largest_is_the_largest(tmp_path):
    assert dtypes(trace_text(tmp_path, "return tuple(x.softmax(-1).topk(1))")) == ["float", "int"]
    with pytest.raises(RefusedError, match=r"the operator aten\.topk"):
        trace_text(tmp_path, "return tuple(x.topk(2))")


def test_what_a_mask_chooses_is_set(tmp_path):
    facts = trace_text(tmp_path, "y = x.clone(); y[y < 0] = 0; y += 1; return y.mul_(2)")
    assert [node["op"] for node in facts["paths"][0]["forward"]["nodes"]] == ["lt", "where", "add", "mul"]


@pytest.mark.parametrize("function", ["sqrt", "log", "log1p", "exp"])
def test_a_number_is_a_function_of_a_scalar(tmp_path, function):
    facts = trace_text(tmp_path, f"import math; return x / math.{function}(mu)", "x: Tensor, mu: float = 2.0")
    assert function in [node["op"] for node in facts["paths"][0]["forward"]["nodes"]]


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_a_cast_is_a_result_of_that_dtype(tmp_path, dtype):
    facts = trace_text(tmp_path, f"return (2 * x).to(torch.{dtype})")
    assert dtypes(facts) == [dtype]
    assert not facts["takes_float64"]


def test_a_rounding_in_between_is_another_function(tmp_path):
    with pytest.raises(RefusedError, match="a cast to bfloat16 in between"):
        trace_text(tmp_path, "return x - x.to(torch.bfloat16)")


def test_dtypes_that_follow_in_another_way_are_refused(tmp_path):
    with pytest.raises(RefusedError, match="a result of dtype float64"):
        trace_text(tmp_path, "return x.double()")


def test_a_sum_over_the_rows_is_no_kernel_of_rows(tmp_path):
    """The lines of a row would call a function that there is not; a number for each row is what is meant."""
    body = "return v * (g / v.norm(dim=-1)).unsqueeze(-1)"
    facts = trace_text(tmp_path, body, "v: Tensor, g: Tensor")
    assert facts["assumption"]["kinds"] == {"v": "element", "g": "row"}
    assert facts["assumption"]["ranks"] == [1, None]
    assert all(node["op"] != "column_sum" for node in facts["paths"][0]["forward"]["nodes"])


def test_a_number_for_each_row_is_taken_of_any_number_of_dimensions(tmp_path):
    facts = trace_text(
        tmp_path, "return x * a.unsqueeze(-1) + y * b.unsqueeze(-1)", "x: Tensor, y: Tensor, a: Tensor, b: Tensor"
    )
    assert facts["assumption"]["rows"] == {"dims": [-1]}
    assert facts["assumption"]["ranks"] == [1, None]


@pytest.mark.parametrize("body", ["return F.log_softmax(x.float(), -1)", "return x.softmax(-1, dtype=torch.float32)"])
def test_elements_of_rows_may_be_of_float32(tmp_path, body):
    facts = trace_text(tmp_path, body)
    assert dtypes(facts) == ["float32"]
    assert facts["assumption"]["ranks"] == [1, None]  # float32's roundings are no other function.


@pytest.mark.parametrize(
    ("body", "is_derivative"),
    [
        ("return x + (x.round() - x).detach()", False),
        ("return x * x.softmax(-1).detach()", False),
        ("return (x * 3).round() + x", True),
        ("return x * x.softmax(-1)", True),
    ],
)
def test_whether_a_gradient_is_the_derivative_is_known(tmp_path, body, is_derivative):
    """Numerical derivatives are of no use to test the others."""
    assert trace_text(tmp_path, body)["assumption"]["derivative"] == is_derivative


def test_roundings_of_float32_are_no_other_path(tmp_path):
    """A gradient of rows loses more than a result: under another assumption, the mask would be no tensor of numbers."""
    body = (
        "s = cap * torch.tanh(s / cap) + bias; s = s.masked_fill(mask == 0, torch.finfo(s.dtype).min); "
        "return F.softmax(s, dim=-1, dtype=torch.float32).to(s.dtype)"
    )
    facts = trace_text(tmp_path, body, "s: Tensor, bias: Tensor, mask: Tensor, cap: float = 50.0")
    assert facts["assumption"]["dtypes"] == {"s": "float", "bias": "float", "mask": "float"}
    assert facts["assumption"]["compared"] == ["mask"]


@pytest.mark.parametrize(
    ("body", "compared"),
    [
        ("return torch.where(n != -100, x, 0.0)", ["n"]),
        ("return torch.where(x == math.inf, 0.0, x) + n", []),
        ("return torch.where(n > 0, x, 0.0)", []),
    ],
)
def test_tensors_that_may_be_integers_are_known(tmp_path, body, compared):
    assert trace_text(tmp_path, body, PAIR)["assumption"]["compared"] == compared


def test_a_result_of_the_shape_of_one_tensor_does_not_broadcast(tmp_path):
    facts = trace_text(tmp_path, "return x + n, torch.full_like(x, 0.5)", PAIR, "tuple[Tensor, Tensor]")
    assert (facts["assumption"]["recipe"], facts["assumption"]["broadcasts"]) == ("pointwise", False)


def test_a_function_of_integers_is_told_how_to_say_so(tmp_path):
    with pytest.raises(RefusedError, match="write their dtype as --shapes"):
        trace_text(tmp_path, "return (n >> x).float()", PAIR)
