"""Functions that cut the last dimension into parts, or join results of parts, are traced part by part."""

import contextlib

import pytest

torch = pytest.importorskip("torch")

from kernelgen.worker.trace.cost import Cost  # noqa: E402
from kernelgen.worker.trace.refusals import RefusedError  # noqa: E402

from .test_trace import POINTWISE, ROWS, trace, trace_text  # noqa: E402

HALVES, TURNS = {"parts": 2, "in_turns": False}, {"parts": 2, "in_turns": True}
WHOLE = {"parts": 1, "in_turns": False}


@pytest.mark.parametrize(
    ("name", "arguments", "results"),
    [
        ("gelu_bias", None, None),
        ("chunked_geglu", {"x": HALVES}, [WHOLE]),
        ("sliced_swiglu", {"x": HALVES, "bias": HALVES}, [WHOLE]),
        ("pair_norm", {"x": TURNS}, [WHOLE]),
        ("rotate_half", {"x": HALVES, "cos": HALVES, "sin": HALVES}, [HALVES]),
        ("rotate_pairs", {"x": TURNS}, [TURNS]),
        ("three_parts", {"x": {"parts": 3, "in_turns": False}}, [WHOLE] * 3),
        ("beside", {}, [HALVES]),
        ("masked_gate", {"x": HALVES}, [WHOLE]),
    ],
)
def test_the_last_dimension_may_be_cut_into_parts(name, arguments, results):
    facts = trace(POINTWISE, name)
    assert facts["assumption"].get("cuts") == arguments
    assert facts["paths"][0]["forward"].get("cuts") == results


@pytest.mark.parametrize(
    "body",
    [
        "return F.glu(x)",
        "a, b = torch.split(x, x.size(-1) // 2, dim=-1); return a * b.sigmoid()",
        "n = x.shape[-1] // 2; return x.narrow(-1, 0, n) * x.narrow(-1, n, n).sigmoid()",
        "n = x.shape[-1] // 2; return x[..., :n] * x[..., n:].sigmoid()",
        "a, b = x.unflatten(-1, (2, -1)).unbind(-2); return a * b.sigmoid()",
        "y = x.reshape(*x.shape[:-1], 2, -1); return y[..., 0, :] * y[..., 1, :].sigmoid()",
        "a, b = x.tensor_split(2, -1); return a * b.sigmoid()",
    ],
)
def test_halves_are_spelled_in_many_ways(tmp_path, body):
    assert trace_text(tmp_path, body)["assumption"]["cuts"] == {"x": HALVES}


@pytest.mark.parametrize(
    ("body", "cut"),
    [
        ("y = torch.empty_like(x); y[..., ::2] = x[..., ::2] * 2; y[..., 1::2] = -x[..., ::2]; return y", TURNS),
        ("n = x.shape[-1] // 2; y = x.clone(); y[..., :n] = x[..., n:].exp(); return y", HALVES),
        ("y = x.clone(); z = y.clone(); y[..., ::2].clamp_(0, 2); return y + z", TURNS),
        ("y = x.clone(); a, b = y[..., ::2], y[..., 1::2]; c = a + b; a.mul_(2); b.copy_(c); return y", TURNS),
    ],
)
def test_what_is_written_to_a_part_is_a_part_of_the_whole(tmp_path, body, cut):
    facts = trace_text(tmp_path, body)
    assert facts["paths"][0]["forward"]["cuts"] == [cut]
    assert facts["assumption"]["composed"] is None


def test_sums_of_parts_are_sums_of_operands(tmp_path):
    path = trace_text(tmp_path, "return x.unflatten(-1, (-1, 3)).mean(-1)")["paths"][0]
    assert [node["op"] for node in path["forward"]["nodes"]] == ["add", "add", "div"]


def test_what_cuts_the_last_dimension_may_refuse_one_without_elements(tmp_path):
    of_a_third = "q, k, v = x.split(x.shape[-1] // 3, dim=-1); return q * k * v"
    assert not trace_text(tmp_path, of_a_third)["assumption"]["no_columns"]
    assert trace_text(tmp_path, "q, k, v = x.chunk(3, -1); return q * k * v")["assumption"]["no_columns"]
    in_turns = "y = x.reshape(*x.shape[:-1], -1, 2); return y[..., 0] * y[..., 1]"
    assert not trace_text(tmp_path, in_turns)["assumption"]["no_rows"]


def test_roundings_to_float32_are_no_other_path(tmp_path):
    """Of a difference of products: had they been taken for another path, x would be taken for a mask."""
    body = """y = x.float().reshape(*x.shape[:-1], -1, 2); a, b = y[..., 0], y[..., 1]
    return torch.stack((a * cos - b * sin, a * sin + b * cos), -1).flatten(-2).type_as(x)"""
    facts = trace_text(tmp_path, body, "x: Tensor, cos: Tensor, sin: Tensor")
    assert facts["assumption"]["dtypes"] == dict.fromkeys(("x", "cos", "sin"), "float")
    assert not facts["takes_float64"]


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("y = x.unflatten(-1, (-1, 3)); return (y * y.mean(-1, keepdim=True).roll(1, -1)).flatten(-2)", "aten.roll"),
        ("a, b = x.chunk(2, -1); return a * b.flip(-1)", "the operator aten.split"),
        ("a, b = x.chunk(2, 1); return a * b.mT", "the operator aten.split"),
    ],
)
def test_elements_of_other_places_are_no_parts(tmp_path, body, reason):
    with pytest.raises(RefusedError, match=reason):
        trace_text(tmp_path, body)


@pytest.mark.parametrize(("name", "joined"), [("gated_halves", 1), ("turned_norm", 2)])
def test_rows_are_parts_of_longer_ones(name, joined):
    facts = trace(ROWS, name)
    (path,) = facts["paths"]
    assert (facts["assumption"]["recipe"], facts["assumption"]["composed"]) == ("row_wise", None)
    assert facts["assumption"]["cuts"]["x"] == {"parts": 2, "in_turns": False}
    assert [cut["parts"] for cut in path["forward"]["cuts"]] == [joined]


@pytest.mark.parametrize(
    "body",
    [
        "a, b = x.chunk(2, -1); return a * b.softmax(-1)",
        "a, b = x.chunk(2, -1); return torch.nn.functional.layer_norm(a, (a.shape[-1],)), b.softmax(-1)",
        "a, b = x.chunk(2, -1); return (a - b).abs().amax(-1)",
        "a, b, c = x.chunk(3, -1); return torch.cat((a.softmax(-1), b.softmax(-1), c.softmax(-1)), -1)",
        "n = x.shape[-1] // 2; return x[..., :n] * x[..., n:].mean(-1, keepdim=True)",
        "y = x / x.amax(-1, keepdim=True); return y[..., : y.shape[-1] // 2] + y[..., y.shape[-1] // 2 :]",
    ],
)
def test_parts_of_rows_are_reduced_in_many_ways(tmp_path, body):
    facts = trace_text(tmp_path, body)
    assert facts["assumption"]["recipe"] == "row_wise"
    assert facts["assumption"]["composed"] is None


def test_rows_of_parts_that_take_turns_have_no_kernels(tmp_path):
    with pytest.raises(RefusedError, match=r"the operator aten\.amax"):
        trace_text(tmp_path, "return x[..., ::2] * x[..., 1::2].softmax(-1)")


def test_an_index_beyond_the_samples_is_another_path(tmp_path):
    """Of fewer than 65 elements, x[..., :64] is all of x."""
    with pytest.raises(RefusedError, match="the operator"):
        trace_text(tmp_path, "return torch.cat((x[..., :n].tanh(), x[..., n:]), -1)", "x: Tensor, n: int = 64")


@pytest.mark.parametrize(
    ("source", "largest"),
    [
        ("def f(x):\n    return x[..., :32] - 100 * x[..., 32:]", 32),
        ("def f(x, d: int = 64):\n    return x[..., :d]", 64),
        ("def f(x, *, d: int = 64):\n    return x.narrow(-1, 0, d)", 64),
        ("D = 48\ndef f(x):\n    return x[..., : 2 * D]", 146),
        ("def f(x):\n    n = 2 * 20\n    return x.split(n, -1)[0]", 62),
        ("def f(x):\n    n = x.shape[-1] // 2\n    return 100 * x[..., :n]", 1),
    ],
)
def test_samples_reach_beyond_every_number_that_an_index_may_be(source, largest):
    from kernelgen.worker.trace.function import load

    assert load(f"{source}\n", "f", [{"name": "x"}]).largest_bound == largest


@pytest.mark.parametrize(("name", "parts"), [("quaternion_product", 4), ("angular_momentum", 3)])
def test_points_have_so_many_numbers_and_no_more(name, parts):
    facts = trace(POINTWISE, name)
    assert facts["assumption"]["exact"]
    assert facts["paths"][0]["forward"]["cuts"] == [{"parts": parts, "in_turns": True}]


def test_a_dimension_of_any_size_is_no_point():
    assert not trace(POINTWISE, "rotate_pairs")["assumption"]["exact"]


@pytest.mark.parametrize(
    ("body", "numbers"),
    [
        ("return 0.299 * x[..., 0] + 0.587 * x[..., 1] + 0.114 * x[..., 2]", 3),
        ("return torch.atan2(x[..., 1], x[..., 0])", 2),
    ],
)
def test_a_function_that_reads_the_first_numbers_of_a_row_has_points_of_so_many(tmp_path, body, numbers):
    facts = trace_text(tmp_path, body)["assumption"]
    assert (facts["exact"], facts["any_size"]) == (True, True)
    assert facts["cuts"] == {"x": {"parts": numbers, "in_turns": True}}


def test_points_that_the_source_takes_apart_come_before_parts_of_any_size(tmp_path, monkeypatch):
    """Of a long function no other assumption has to be traced."""
    cost = Cost()
    monkeypatch.setattr("kernelgen.worker.trace.Cost", lambda: cost)
    body = "s = (x[..., 2:] - x[..., :2]) * (y[..., 2:] - y[..., :2]); return s[..., 0] * s[..., 1] + x[..., 3]"
    cuts = trace_text(tmp_path, body, "x: Tensor, y: Tensor")["assumption"]["cuts"]
    assert cuts == {name: {"parts": 4, "in_turns": True} for name in "xy"}
    assert cost.spent < 4_000


def test_numbers_that_are_not_read_are_part_of_a_point_where_shapes_say_so(tmp_path):
    body = "return x[..., 0] - x[..., 2]"
    with pytest.raises(RefusedError):
        trace_text(tmp_path, body)
    calls = [{"arguments": {"x": (5, 4)}, "dtypes": {"x": "float"}, "results": [(5,)]}]
    facts = trace_text(tmp_path, body, calls=calls)["assumption"]
    assert facts["cuts"] == {"x": {"parts": 4, "in_turns": True}}


@pytest.mark.parametrize(
    ("body", "flat"),
    [
        ("a, b = x.chunk(2, dim=1); return a * b.sigmoid()", {"dim": 1, "exact": False, "results": [1]}),
        ("return F.glu(x, 1)", {"dim": 1, "exact": False, "results": [1]}),
        ("a, b = x.chunk(2); return b + 7.5 * (a - b)", {"dim": 0, "exact": False, "results": [1]}),
        (
            "a, b = x.split(x.shape[-2] // 2, -2); return torch.cat((b, -a), -2)",
            {"dim": -2, "exact": False, "results": [2]},
        ),
        ("return torch.cat((x.relu(), (-x).relu()), 1)", {"dim": 1, "exact": False, "results": [2]}),
        ("return 0.3 * x[:, 0] + 0.6 * x[:, 1] + 0.1 * x[:, 2]", {"dim": 1, "exact": True, "results": [0]}),
        ("r, g, b = x.unbind(-3); return r + g - b", {"dim": -3, "exact": True, "results": [0]}),
    ],
)
def test_another_dimension_than_the_last_may_be_cut(tmp_path, body, flat):
    assert trace_text(tmp_path, body)["assumption"]["flat"] == flat


@pytest.mark.parametrize(
    "body",
    [
        "return torch.cat((x[:, :64].tanh(), x[:, 64:]), 1)",  # Of fewer than 65 it is all of x.
        "a, b = x.chunk(2, 1); return a * b.amax(1, keepdim=True)",  # Of one element, the largest is that one.
        "a, b = x.chunk(2, 1); return a * b + torch.arange(b.shape[-1])",
        "a, b = x.chunk(2, 1); return torch.cat((a[..., :64].tanh() * b[..., :64], a[..., 64:]), -1)",
    ],
)
def test_a_dimension_that_is_more_than_cut_has_no_such_kernels(tmp_path, body):
    with contextlib.suppress(RefusedError):
        assert "flat" not in trace_text(tmp_path, body)["assumption"]


def test_numbers_that_are_not_read_may_be_of_another_dimension(tmp_path):
    body = "return x[:, 3] - x[:, 1]"
    with pytest.raises(RefusedError, match="x, some of whose numbers are not read; --shapes says"):
        trace_text(tmp_path, body)
    calls = [{"arguments": {"x": (5, 4, 3)}, "dtypes": {"x": "float"}, "results": [(5, 3)]}]
    assert trace_text(tmp_path, body, calls=calls)["assumption"]["flat"]["exact"]
    calls[0]["arguments"]["x"] = (5, 6, 3)
    with pytest.raises(RefusedError, match=r"that x has the shape \(5, 6, 3\)"):
        trace_text(tmp_path, body, calls=calls)


@pytest.mark.parametrize(
    ("body", "signature", "numbers", "matrices"),
    [
        ("a, b = x.unbind(-1); return torch.stack((a * s, b - s), -1)", "x: Tensor, s: Tensor", ["s"], False),
        ("return (x[..., 0] - x[..., 1]) * s", "s: Tensor, x: Tensor", ["s"], False),
        ("return torch.cat((x[:, :2] - x[:, 2:], x[:, 2:]), 1) * s[:, None]", "x: Tensor, s: Tensor", ["s"], True),
    ],
)
def test_some_tensors_have_a_number_for_each_point(tmp_path, body, signature, numbers, matrices):
    assumption = trace_text(tmp_path, body, signature)["assumption"]
    assert (assumption["numbers"], assumption["matrices"]) == (numbers, matrices)
    assert "s" not in assumption["cuts"]
