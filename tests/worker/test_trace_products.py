"""Products of matrices are sums of rows or of points where a factor is a vector, or small; other matrices are named."""

import pytest

pytest.importorskip("torch")

from kernelgen.worker.trace.refusals import RefusedError

from .test_trace import trace_text


@pytest.mark.parametrize(
    ("body", "tensors"),
    [
        ("return x @ w", "x: Tensor, w: Tensor"),
        ("return x.mT @ w", "x: Tensor, w: Tensor"),
        ("return F.linear(x, w, b).sigmoid()", "x: Tensor, w: Tensor, b: Tensor"),
        ("return F.silu(x @ w + b)", "x: Tensor, w: Tensor, b: Tensor"),
    ],
)
def test_a_product_with_a_matrix_is_no_product_with_a_vector(tmp_path, body, tensors):
    """PyTorch's products take either; kernels row by row would refuse the one that most callers pass."""
    with pytest.raises(RefusedError, match=r"the operator aten\.(mm|bmm|addmm)"):
        trace_text(tmp_path, body, tensors)
    assert trace_text(tmp_path, "return torch.mv(x, w)", "x: Tensor, w: Tensor")["assumption"]["kinds"]["w"] == "column"


@pytest.mark.parametrize(
    ("body", "signature"),
    [
        ("return torch.einsum('bhd,bhd->bh', x, y)", "x: Tensor, y: Tensor"),
        ("return torch.einsum('...d,d->...', x, y)", "x: Tensor, y: Tensor"),
        ("return torch.matmul(x.unsqueeze(-2), y.unsqueeze(-1)).squeeze(-1).squeeze(-1)", "x: Tensor, y: Tensor"),
        ("return torch.einsum('bsd,bs->bd', x, y)", "x: Tensor, y: Tensor"),
    ],
)
def test_a_product_of_vectors_is_a_sum_of_rows(tmp_path, body, signature):
    facts = trace_text(tmp_path, body, signature)
    assert [node["op"] for node in facts["paths"][0]["forward"]["nodes"]] == ["mul", "row_sum"]
    assert facts["paths"][0]["backward"]


@pytest.mark.parametrize(
    "body",
    [
        "R = torch.stack((torch.stack((c, -s), -1), torch.stack((s, c), -1)), -2); return (R @ x[..., None])[..., 0]",
        "R = torch.stack((c, -s, s, c), -1).unflatten(-1, (2, 2)); return torch.einsum('...ij,...j->...i', R, x)",
    ],
)
def test_points_are_turned_by_matrices(tmp_path, body):
    facts = trace_text(tmp_path, f"c, s = angle.cos(), angle.sin(); {body}", "x: Tensor, angle: Tensor")
    assert facts["assumption"]["numbers"] == ["angle"]
    assert facts["paths"][0]["backward"]


@pytest.mark.parametrize(
    ("body", "signature", "sizes"),
    [
        ("a, b = x.unbind(-1); return torch.stack((a, -b, b, a), -1).unflatten(-1, (2, 2))", "x: Tensor", [[2, 2]]),
        (
            "a, b = x.unbind(-1); return torch.stack((a, b, b, a, a, b), -1).view(*s.shape, 2, 3), x * s[..., None]",
            "x: Tensor, s: Tensor",
            [[2, 3], None],
        ),
    ],
)
def test_a_result_may_be_a_matrix_for_each_point(tmp_path, body, signature, sizes):
    result = "Tensor" if len(sizes) == 1 else "tuple[Tensor, Tensor]"
    facts = trace_text(tmp_path, body, signature, result)
    assert facts["assumption"]["matrix_sizes"] == sizes
    assert facts["paths"][0]["backward"]


@pytest.mark.parametrize(
    ("body", "constants"),
    [
        ("return x * torch.tensor([1.0, -2.0, 0.25], dtype=x.dtype)", {-2.0, 0.25}),
        ("return (x * x.new_tensor((0.2, 0.7, 0.1))).sum(-1)", {0.2, 0.7, 0.1}),
        ("return x @ torch.tensor([[0.3, 0.6], [-0.1, 0.4]], dtype=x.dtype).T", {0.3, 0.6, -0.1, 0.4}),
    ],
)
def test_numbers_of_points_may_be_written_in_the_function(tmp_path, body, constants):
    nodes = trace_text(tmp_path, body)["paths"][0]["forward"]["nodes"]
    assert {a["constant"] for node in nodes for a in node["arguments"] if "constant" in a} - {1.0} == constants
