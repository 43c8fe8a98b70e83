"""Functions that read neighbours of elements: what is traced of them, and which are no such."""

import pytest

torch = pytest.importorskip("torch")

from kernelgen.scaffold.formula.entry import kernels  # noqa: E402
from kernelgen.scaffold.schema.from_python import reference  # noqa: E402
from kernelgen.worker.trace import placed_expressions  # noqa: E402
from kernelgen.worker.trace.refusals import RefusedError  # noqa: E402
from tests.worker.test_trace import POINTWISE, trace, trace_text  # noqa: E402


def traced(name: str) -> dict:
    return kernels(reference.read(POINTWISE, name).schema.entry(), trace(POINTWISE, name))["traced"]


@pytest.mark.parametrize(
    ("body", "border", "least", "rank"),
    [
        ("return x[..., 1:] - x[..., :-1]", [0, -1], [0, 1], None),
        ("return torch.diff(x, n=2)", [0, -2], [0, 2], None),
        ("return torch.diff(x, dim=1, prepend=x[:, :1])", [0, 0], [1, 0], 3),
        ("return x.narrow(-1, 1, x.shape[-1] - 1).exp()", [0, -1], [0, 1], None),
        ("return x * x.roll(1, -1)", [0, 0], [0, 0], None),
        ("return x * torch.roll(x, (1, -2), (-1, -2))", [0, 0], [0, 0], None),
        ("return torch.cat((x[..., 1:], x[..., :1]), -1) * x", [0, 0], [0, 1], None),
        ("return torch.sigmoid(x) * torch.cat((torch.zeros_like(x[:, :1]), x[:, :-1]), 1)", [0, 0], [1, 0], 3),
        ("return x + F.pad(x, (1, 0))[..., :-1]", [0, 0], [0, 0], None),
        ("return F.pad(x, (1, 1, 1, 1))[:, :, 2:, 1:-1] - x", [0, 0], [0, 0], 4),
        ("return torch.nn.ZeroPad2d((0, 0, 1, -1))(x) - x", [0, 0], [1, 0], None),
        ("return torch.gradient(x, dim=-1)[0]", [0, 0], [0, 2], None),
        ("return F.pad(x, (2, 1), mode='reflect')[..., 3:] - x", [0, 0], [1, 3], 3),
        ("return F.pad(x, (1, 1), mode='replicate').square()", [0, 2], [1, 1], 3),
        ("return F.pad(x, (1, 1, 1, 1), mode='circular')[..., 2:, 1:-1] * x", [0, 0], [1, 1], 4),
        ("return F.avg_pool1d(x, 3, 1, padding=1) - x", [0, 0], [1, 1], 3),
        ("return F.avg_pool2d(x, (2, 3), 1)", [-1, -2], [2, 3], 4),
        ("return x * x.flip(-1)", [0, 0], [0, 0], None),
        ("return F.pad(x.flip(-2), (0, 0, 1, 0))[..., :-1, :].flip(-2) - x", [0, 0], [0, 0], None),
        ("return torch.slice_scatter(x, 2 * x[..., 1:], -1, 0, -1)", [0, 0], [0, 1], None),
        ("return torch.select_scatter(x, 2 * x[..., 1], -1, 0)", [0, 0], [0, 2], None),
        ("y = x.clone(); y[..., 1:] -= 0.9 * x[..., :-1]; y[..., 0] = 0.5; return y", [0, 0], [0, 1], None),
        ("y = torch.zeros_like(x); y[:, 1:] = x[:, :-1]; y[:, :1].add_(1); return y * x", [0, 0], [1, 0], 3),
        ("y = x * 2; y[..., 1:].mul_(3); y[..., 1:-1].add_(x[..., :-2]); return y", [0, 0], [0, 2], None),
        ("return torch.cat((x[..., 0].exp().unsqueeze(-1), x[..., 1:]), -1)", [0, 0], [0, 1], None),
    ],
)
def test_neighbours_are_read_at_a_distance(tmp_path, body, border, least, rank):
    known = trace_text(tmp_path, body)["assumption"]["neighbours"]
    assert (known["border"], known["least"], known["rank"]) == (border, least, rank)


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("return (x[..., 1:] - x[..., :-1]).abs().mean()", "the operator aten.mean of neighbours of elements"),
        ("return x[..., 1:], x[..., :-2]", "results of several sizes, of neighbours of elements"),
        ("return x[..., 20:] - x[..., :-20]", "a neighbour farther away than 8"),
        ("return x[..., 2::2] - x[..., :-2:2]", "the operator aten.slice"),
        ("return x * x.roll(1, -1).flip(-1)", "a flip of elements that wrap around"),
        ("return F.max_pool1d(x, 3, 1, padding=1)", "the operator aten.max_pool2d_with_indices, which max_pool1d runs"),
        ("return torch.roll(F.pad(x, (1, 0))[..., :-1], 1, -1)", "the operator aten.constant_pad_nd"),
    ],
)
def test_what_no_kernel_reads_is_named(tmp_path, body, reason):
    with pytest.raises(RefusedError) as refused:
        trace_text(tmp_path, body)
    assert str(refused.value) == reason or str(refused.value).startswith(f"{reason} ")


def test_an_element_that_a_pad_repeats_has_the_gradients_of_all():
    """The second from either end has that of the one beyond it, too."""
    gradient = traced("warped")["backward"]["lines"]
    assert any("has_previous_column" in line and "has_2_columns_before" in line for line in gradient)


def test_a_gradient_of_too_many_operators_is_pytorchs(tmp_path, monkeypatch):
    """As that of an SSIM, which reads neighbours of neighbours."""
    monkeypatch.setattr(placed_expressions, "_MOST_OPERATORS", 4)
    facts = trace_text(tmp_path, "return (x[..., 1:] - x[..., :-1]).square().tanh()", said={})
    assert facts["assumption"]["composed"] == "more than 4 operators on neighbours for each element"


def test_tensors_of_several_lengths_that_are_joined_are_for_the_reference(tmp_path):
    text = "import torch\nfrom torch import Tensor\n\n\ndef f(a: Tensor, b: Tensor) -> Tensor:\n"
    (tmp_path / "f.py").write_text(text + "    return torch.cat((a, b), 1).exp()\n")
    signature = kernels(reference.read(tmp_path / "f.py", "f").schema.entry(), trace(tmp_path / "f.py", "f"))
    signature = signature["traced"]["signature"]
    assert signature["fallback"] == ["    if b.shape[1:2] != a.shape[1:2]:", "        return _function(a, b)"]
    assert signature["lengths"] == ["b"]


def test_a_gradient_reads_the_other_way():
    """An element has no gradient of what is beyond the end: no neighbour is read there, and 0 is."""
    op = traced("advected")
    assert [read["shift"] for read in op["shifted"] if "shift" in read] == [[0, -1], [0, 1], [0, -1], [0, 1]]
    assert all(read["wraps"] for read in op["shifted"] if "shift" in read)
    shift = traced("token_shift")
    assert shift["forward"] == ["out = x * mix + x_previous_row * (1 - mix);"]
    gradient = "grad_x = grad * mix + (has_next_row ? grad_next_row * (1 - mix_next_row) : 0);"
    assert shift["backward"]["lines"][0] == gradient
    assert shift["backward"]["coordinates"] == [{"cpp": "has_next_row", "dim": -2, "distance": 1}]


def test_a_bound_that_the_tensor_has_itself_is_not_asked_for(tmp_path):
    """Beyond its end a tensor is read as 0."""
    facts = trace_text(tmp_path, "return 3 * x[..., 1:-1] - x[..., 2:] / 2 - x[..., :-2]")
    assert "where" not in {node["op"] for node in facts["paths"][0]["backward"]["nodes"]}


@pytest.mark.parametrize(
    ("body", "dim"),
    [
        ("return x[1:] - x[:-1]", 0),
        ("return x[:, 1:] - x[:, :-1]", 1),
        ("return x * x.roll(1, 1)", 1),
        ("return x[:, :, 1:] - x[:, :, :-1]", 2),
    ],
)
def test_any_dimensions_are_behind_one_that_counts_from_the_front(tmp_path, body, dim):
    known = trace_text(tmp_path, body)["assumption"]["neighbours"]
    assert (known["is_in_front"], known["rank"] - 2) == (True, dim)


def test_tensors_that_count_from_the_front_are_of_one_shape(tmp_path):
    """Of x as well, which does not broadcast, as its neighbours are read."""
    body = "return y + torch.cat((x[:, 1:], torch.zeros_like(x[:, :1])), 1) - x"
    facts = trace_text(tmp_path, body, "y: Tensor, x: Tensor")
    assert facts["assumption"]["neighbours"]["is_in_front"]
    text = "import torch\nfrom torch import Tensor\n\n\ndef f(y: Tensor, x: Tensor) -> Tensor:\n    " + body
    (tmp_path / "f.py").write_text(text)
    signature = kernels(reference.read(tmp_path / "f.py", "f").schema.entry(), facts)["traced"]["signature"]
    assert signature["fallback"] == [
        "    if y.ndim < 2 or y.shape[1] < 1 or x.shape != y.shape:",
        "        return _function(y, x)",
        "    behind = y.shape[2:]",
        "    y = _pointwise.one_behind(y, 1)",
        "    x = _pointwise.one_behind(x, 1)",
    ]


def test_shapes_that_are_said_are_taken(tmp_path):
    calls = [{"arguments": {"x": (5, 4, 3, 2)}, "dtypes": {"x": "float"}, "results": [(5, 3, 3, 2)]}]
    body = "return x[:, 1:] - x[:, :-1]"
    assert trace_text(tmp_path, body, calls=calls)["assumption"]["neighbours"]["is_in_front"]
    calls[0]["results"] = [(5, 4, 3, 2)]
    with pytest.raises(RefusedError):
        trace_text(tmp_path, "return x + F.pad(x[:, :-1], (0, 0, 1, 0))", calls=calls)


def test_integers_have_neighbours(tmp_path):
    body = "return torch.where(ids[:, 1:] == ids[:, :-1], 0.0, x[:, 1:])"
    facts = trace_text(tmp_path, body, "x: Tensor, ids: Tensor")
    assert facts["assumption"]["dtypes"] == {"x": "float", "ids": "int64"}


def test_other_ranks_and_smaller_tensors_are_for_the_reference():
    op = traced("token_shift")["signature"]
    assert op["fallback"] == ["    if x.ndim != 3 or x.shape[-2] < 1:", "        return _function(x, mix)"]
    assert op["kernels_are_for"] == ["x of 3 dimensions and 1 or more rows"]
    assert "signature" not in traced("advected")


def test_tensors_that_are_smaller_than_the_results_are_read_within_their_bounds():
    assert [read.get("shift") for read in traced("fenced")["shifted"]] == [[0, -1], [0, -1]]
    of_differences = traced("differences")["backward"]["shifted"]
    assert [(read["cpp"], read.get("shift")) for read in of_differences[:2]] == [
        ("grad", [0, 0]),
        ("grad_previous_column", [0, -1]),
    ]
