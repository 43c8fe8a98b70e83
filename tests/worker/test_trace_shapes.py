"""Kernels take the shapes and dtypes that are given, or it is said what was in the way."""

from pathlib import Path

import pytest

pytest.importorskip("torch")

from kernelgen.worker.trace.refusals import RefusedError
from tests.worker.test_trace import trace_text


def refusal_of_shapes(folder: Path, body: str, signature: str, calls: list[dict]) -> str | None:
    """What is in the way of kernels for these shapes of arguments and results."""
    try:
        trace_text(folder, body, signature, calls=calls)
    except RefusedError as refused:
        return str(refused)
    return None


@pytest.mark.parametrize(
    ("body", "x", "w", "results", "reason"),
    [
        ("return x @ w", (4, 33), (33,), [(4,)], None),
        ("return x @ w", (4, 33), (33, 20), [(4, 20)], "the operator aten.mm"),
        ("return x * w", (2, 4, 33), (4, 33), [(2, 4, 33)], None),
        ("return x.softmax(-1) * w", (2, 4, 33), (33,), [(2, 4, 33)], None),
        ("return F.layer_norm(x, w.shape, w)", (2, 4, 33), (4, 33), [(2, 4, 33)], None),
        ("return F.layer_norm(x, x.shape[-1:], w)", (2, 4, 33), (33,), [(2, 4, 33)], None),
        ("return x.softmax(-1) * F.relu(w)", (2, 4, 33), (4, 1), [(2, 4, 33)], None),
        ("return x.amax(-1) + w", (2, 4, 33), (1,), [(2, 4)], "that w has the shape (1,)"),
    ],
)
def test_given_shapes_are_those_of_the_kernels(tmp_path, body, x, w, results, reason):
    calls = [{"arguments": {"x": x, "w": w}, "dtypes": {"x": "float", "w": "float"}, "results": results}]
    refusal = refusal_of_shapes(tmp_path, body, "x: Tensor, w: Tensor", calls)
    assert (refusal or "") == (reason or "")


@pytest.mark.parametrize(
    ("body", "y", "z"),
    [
        ("return (x - y).abs().mean(-1) * (x + z).amax(-1)", "broadcast", "broadcast"),
        # A sum of what is small alone has one term, where both are.
        ("return x * (y * z).sum(-1, keepdim=True)", "either", "either"),
        # A number of float32 that is none of a row decides over no dtype.
        ("return x.mean(-1) - y.float().mean(-1) * (x + z).amax(-1)", None, None),
    ],
)
def test_tensors_that_broadcast_do_so_together(tmp_path, body, y, z):
    vectors = trace_text(tmp_path, body, "x: Tensor, y: Tensor, z: Tensor")["assumption"]["vectors"]
    assert (vectors.get("y"), vectors.get("z")) == (y, z)


def test_given_results_are_those_of_the_function(tmp_path):
    """Of one tensor, for which few assumptions are tried."""
    calls = [{"arguments": {"x": (4, 33)}, "dtypes": {"x": "float"}, "results": [(33,)]}]
    refusal = refusal_of_shapes(tmp_path, "return x.softmax(-1)", "x: Tensor", calls)
    assert refusal == "that --shapes is not what it returns"


def test_kernels_of_one_dtype_are_not_those_of_a_weight_of_another(tmp_path):
    shapes, dtypes = {"x": (4, 33), "w": (33,)}, {"x": "float", "w": "float32"}
    calls = [{"arguments": shapes, "dtypes": dtypes, "results": [(4, 33)]}]
    refusal = refusal_of_shapes(tmp_path, "return x.softmax(-1) * w", "x: Tensor, w: Tensor", calls)
    assert refusal == "that w is of float32"
