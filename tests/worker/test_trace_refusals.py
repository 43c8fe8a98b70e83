"""Of a function that no kernel is written of, what was in the way is named."""

import json

import pytest

pytest.importorskip("torch")

from kernelgen.worker.trace.refusals import RefusedError
from tests.worker.test_trace import HELPERS, new_trace, trace_text


@pytest.mark.parametrize(
    ("body", "signature", "reason"),
    [
        ("return x @ x.mT", "x: Tensor", "the operator aten.bmm"),
        ("return (x @ y * x).sum(-1)", "x: Tensor, y: Tensor", "the operator matmul"),
        ("return torch.einsum('nd,md->nm', x, y)", "x: Tensor, y: Tensor", "the operator aten.bmm, which einsum runs"),
        ("return x - x.mean(0, True) - x.mean(1, True)", "x: Tensor", "mean over several sets of dimensions"),
        ("return x.median(-1).values", "x: Tensor", "the operator aten.median"),
        ("return x.cumsum(-1) + x.flip(-1)", "x: Tensor", "the operator aten.flip of some rows beside others"),
        ("return x.sort(-1).values", "x: Tensor", "the operator aten.sort"),
        ("return ((x > 0) + 1).prod(-1) * 0.5", "x: Tensor", "prod of whole numbers"),
        ("return x.unbind(-1)[0]", "x: Tensor", "the operator aten.unbind.int"),
        ("return x.softmax(-1).topk(2).values", "x: Tensor", "the operator aten.topk"),
        ("return x.logsumexp(-1) - x[..., 0]", "x: Tensor", "the operator aten.select.int"),
        ("return x.double().logsumexp(-1)", "x: Tensor", "a result of dtype float64"),
        ("return (x.argmax(-1) == 3).int()", "x: Tensor", "a result of dtype int32"),
        ("assert x.dtype == torch.int8; return x", "x: Tensor", "an AssertionError while it was called"),
        ("return x.exp() if alpha == 0 else x * alpha", "x: Tensor, alpha: float", "where alpha is 0.0"),
        ("return x if x.sum() > 0 else -x", "x: Tensor", "depends on the tensors' elements"),
        ("return x * x.shape[-1] ** 3", "x: Tensor", "depends on the sizes"),
        ("return x.exp() if mode == 'exp' else x", "x: Tensor, mode: str", "mode, which is a str"),
        ("return xs[0] + xs[1]", "xs: list[Tensor]", "xs, which is a Tensor[]"),
        ("return x.double()", "x: Tensor", "a result of dtype float64"),
        ("return x + torch.rand_like(x)", "x: Tensor", "the operator aten.rand_like"),
        ("return F.dropout(x, 0.1, on)", "x: Tensor, on: bool = True", "bernoulli_.float, which dropout"),
        ("return x / x.max().item()", "x: Tensor", "a number that Python reads from a tensor, as by item()"),
        ("return F.one_hot(x.argmax(-1), 10)", "x: Tensor", "the operator one_hot"),
        (
            "a, b = x.clone().chunk(2, -1)\n    a.mul_(b)\n    return a",
            "x: Tensor",
            "a write that PyTorch has no gradient",
        ),
        ("return x.view(torch.int32)", "x: Tensor", "the operator aten.view.dtype"),
        ("return x * x.cummax(-1).indices", "x: Tensor", "the places of aten.cummax"),
        ("return x / x.quantile(0.9, -1, True)", "x: Tensor", "the operator aten.sort, which quantile runs"),
        (
            "return (x.mean((2, 3), keepdim=True) + y).amax(1)",
            "x: Tensor, y: Tensor",
            "over several sets of dimensions",
        ),
        ("return x.to(torch.bfloat16).to(x.dtype) * 2", "x: Tensor", "a cast to bfloat16 in between"),
        ("return x.clamp(min=torch.finfo(x.dtype).tiny).log()", "x: Tensor", "another one for each dtype"),
        ("return x.masked_fill(x > 1, torch.finfo(x.dtype).min).amax(-1)", "x: Tensor", "largest number of bfloat16"),
        ("return torch.nan_to_num(x)", "x: Tensor", "a result that may be the largest number of bfloat16"),
        ("return x // 3.0", "x: Tensor", "aten.floor_divide, which has no derivative in PyTorch"),
        (
            "m = torch.arange(x.size(1))[None, :] < n[:, None]\n    return (x * m.unsqueeze(-1)).sum(1) / n[:, None]",
            "x: Tensor, n: Tensor",
            "the operator aten.arange",
        ),
    ],
)
def test_what_was_in_the_way_is_named(tmp_path, body, signature, reason):
    with pytest.raises(RefusedError, match=reason.replace("[", r"\[").replace("]", r"\]")):
        trace_text(tmp_path, body, signature)


@pytest.mark.parametrize(
    "body",
    ["x.mul_(0.9).add_(y); return x - y", "x -= x.amax(-1, True); return x.exp()", "y[..., 0] = 1; return x + y"],
)
def test_what_a_function_writes_to_is_named(tmp_path, body):
    with pytest.raises(RefusedError, match="that it writes to"):
        trace_text(tmp_path, body, "x: Tensor, y: Tensor")


def test_a_number_of_the_file_is_a_constant_and_a_table_is_refused(tmp_path):
    file = tmp_path / "helpers.py"
    file.write_text(HELPERS)
    (node,) = json.loads(new_trace(file, "scaled"))["paths"][0]["forward"]["nodes"]
    assert node["arguments"][1]["constant"] == 0.7
    with pytest.raises(RefusedError, match="TABLE, a tensor of 4 numbers in its file"):
        new_trace(file, "looked_up")
