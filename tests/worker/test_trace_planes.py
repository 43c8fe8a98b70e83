"""Functions of rows that depend on which row of a plane one is, and of tensors that have some of the dimensions."""

import pytest

torch = pytest.importorskip("torch")

from kernelgen.scaffold.formula.entry import kernels  # noqa: E402
from kernelgen.scaffold.schema.from_python import reference  # noqa: E402
from kernelgen.worker.trace.later_sums import later_sum  # noqa: E402
from kernelgen.worker.trace.refusals import RefusedError  # noqa: E402
from tests.worker.test_trace import ROWS, trace, trace_text  # noqa: E402
from tests.worker.test_trace_shapes import refusal_of_shapes  # noqa: E402

PAIR = "x: Tensor, s: Tensor"


def op_of(name: str) -> dict:
    return kernels(reference.read(ROWS, name).schema.entry(), trace(ROWS, name))


@pytest.mark.parametrize(("name", "square", "least"), [("causal_softmax", False, 2), ("sloped_softmax", True, 3)])
def test_rows_of_planes_are_those_of_the_last_dimension(name, square, least):
    assumption = trace(ROWS, name)["assumption"]
    assert (assumption["rows"], assumption["ranks"]) == ({"dims": [-1]}, [least, None])
    assert assumption["square"] == square


def test_a_formula_asks_the_row_for_its_place():
    traced = op_of("causal_softmax")["traced"]
    assert traced["forward"][0] == "const Number line = row.line();"
    assert "Number(place) <= line" in traced["backward"]["lines"][-2]
    assert traced["rows"]["planes"]


@pytest.mark.parametrize(
    ("body", "dims"),
    [
        ("return x.softmax(-1) * s[:, None]", [-3, -1]),
        ("return x.softmax(-1) * s.unsqueeze(1)", [-3, -1]),
        ("return torch.einsum('bsd,bd->bsd', x.softmax(-1), s)", [-3, -1]),
        ("return x.softmax(-1) * s.view(s.shape[0], 1, s.shape[1])", [-3, -1]),
        ("return x.softmax(-1) * (1 + s)[:, None, None]", [-3]),
        ("return x.softmax(-1) * s[None, :, None]", [-2]),
    ],
)
def test_a_tensor_has_some_of_the_dimensions(tmp_path, body, dims):
    facts = trace_text(tmp_path, body, PAIR)
    assert facts["assumption"]["spreads"] == {"s": dims}
    (_, of_s) = facts["paths"][0]["backward"]["outputs"]
    assert of_s["summed"] == [dim for dim in range(3) if dim - 3 not in dims]


def test_numbers_of_rows_are_still_numbers_of_rows(tmp_path):
    facts = trace_text(tmp_path, "return x * s[:, None, None]", PAIR)
    assert facts["assumption"]["kinds"] == {"x": "element", "s": "row"}


@pytest.mark.parametrize(
    ("shapes", "reason"),
    [
        ({"x": [2, 5, 7], "s": [2, 7]}, None),
        ({"x": [2, 5, 7], "s": [1, 7]}, "that s has the shape (1, 7)"),
    ],
)
def test_shapes_that_are_said_have_to_be_those(tmp_path, shapes, reason):
    dtypes = dict.fromkeys(shapes, "float32")
    calls = [{"arguments": shapes, "dtypes": dtypes, "results": [shapes["x"]]}]
    assert refusal_of_shapes(tmp_path, "return x.softmax(-1) * s[:, None]", PAIR, calls) == reason


def test_a_square_is_needed_where_the_function_needs_one(tmp_path):
    plain = "place = torch.arange(x.shape[-1]); return x.masked_fill(place[:, None] < place, -1.0).softmax(-1)"
    calls = [{"arguments": {"x": [2, 5, 7]}, "dtypes": {"x": "float32"}, "results": [[2, 5, 7]]}]
    assert refusal_of_shapes(tmp_path, plain, "x: Tensor", calls) == "that x has the shape (2, 5, 7)"


def test_the_tensor_of_rows_comes_first_whatever_the_function_calls_first():
    op = op_of("padded_scores")
    assert [argument["name"] for argument in op["schema"]["arguments"]] == ["scores", "lengths"]
    signature = op["traced"]["signature"]
    assert [argument["name"] for argument in signature["arguments"]] == ["lengths", "scores"]
    assert signature["by_name"] == ["scores", "lengths"]
    assert signature["reference"][-1] == "    return _function(scores=scores, lengths=lengths)"


def test_pieces_with_bounds_are_cut_and_new_dimensions_are_not(tmp_path):
    """`x[:, None]` alone does not lead to thousands of assumptions about parts."""
    from kernelgen.worker.trace.function import load

    def may_cut(body: str) -> bool:
        return load(f"def f(x):\n    return {body}\n", "f", [{"name": "x"}]).may_cut

    assert [may_cut(body) for body in ("x[:, None]", "x[..., None]", "x[None]")] == [False] * 3
    assert [may_cut(body) for body in ("x[..., ::2]", "x[:, 0]", "x[..., 0]", "x[1:]")] == [True] * 4


def test_an_angle_of_many_turns_has_no_kernels(tmp_path):
    """Of positional encodings computed in float32, the last digits of the frequencies decide."""
    body = "d = torch.arange(x.shape[-1]); t = torch.arange(x.shape[-2])[:, None]; return x + torch.sin(t * 0.9**d)"
    with pytest.raises(RefusedError, match="few digits"):
        trace_text(tmp_path, body)


def test_sums_that_are_taken_later_are_linear():
    summed = {"summed": (1,)}
    assert later_sum("mul", [summed, {}]) == later_sum("add", [summed, summed]) == summed
    assert later_sum("exp", [{}]) == {}
    for op, arguments in (("mul", [summed, summed]), ("add", [summed, {}]), ("div", [{}, summed]), ("exp", [summed])):
        with pytest.raises(RefusedError):
            later_sum(op, arguments)


def test_slopes_of_heads_have_a_gradient_that_is_summed_in_two_steps(tmp_path):
    """Over the batch before the product with distances, over the plane behind it; and they are no truth values."""
    body = (
        "q, k = x.shape[-2:]; d = torch.arange(k) - torch.arange(q)[:, None]; return x + slopes.view(1, -1, 1, 1) * d"
    )
    facts = trace_text(tmp_path, body, "x: Tensor, slopes: Tensor")
    assert facts["assumption"]["dtypes"] == {"x": "float", "slopes": "float"}
    (_, of_slopes) = facts["paths"][0]["backward"]["outputs"]
    assert of_slopes["summed"] == [0, 2, 3]


def test_a_sum_of_all_elements_of_a_plane(tmp_path):
    """As of a contrastive loss by sigmoids."""
    body = "n = x.shape[0]; return -F.logsigmoid((2 * torch.eye(n) - 1) * x).sum() / n"
    facts = trace_text(tmp_path, body)
    assert [output["kind"] for output in facts["paths"][0]["forward"]["outputs"]] == ["total"]
