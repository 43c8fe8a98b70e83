"""Functions whose values depend on where an element lies."""

import pytest

torch = pytest.importorskip("torch")

from kernelgen.worker.trace.refusals import RefusedError  # noqa: E402

from .test_trace import POINTWISE, trace, trace_text  # noqa: E402

BOTH = {-1, -2}


def coordinates(graph):
    """Those that the outputs depend on."""
    pending = [output for output in graph["outputs"] if output]
    read = set()
    while pending:
        argument = pending.pop()
        read |= {argument["coordinate"]} if "coordinate" in argument else set()
        pending += graph["nodes"][argument["node"]]["arguments"] if "node" in argument else []
    return read


@pytest.mark.parametrize(
    ("name", "square", "broadcasts"),
    [("causal_mask", False, True), ("distance_bias", True, True), ("sliding_window", False, True)],
)
def test_both_directions_read_the_coordinates(name, square, broadcasts):
    facts = trace(POINTWISE, name)
    (path,) = facts["paths"]
    assert (facts["assumption"]["square"], facts["assumption"]["broadcasts"]) == (square, broadcasts)
    assert coordinates(path["forward"]) == coordinates(path["backward"]) == BOTH


@pytest.mark.parametrize(
    ("body", "read"),
    [
        ("return x.tril()", BOTH),
        ("return x.triu(1) * 2", BOTH),
        ("return x * torch.eye(x.shape[-2], x.shape[-1], dtype=x.dtype)", BOTH),
        ("return x * torch.arange(x.shape[-1]).to(x.dtype)", {-1}),
        ("n = x.shape[-2]; return x / torch.arange(1, n + 1).view(n, 1)", {-2}),
        ("return x.masked_fill(torch.arange(x.shape[-1]) % 2 == 0, 0.0)", {-1}),
    ],
)
def test_coordinates_are_spelled_in_many_ways(tmp_path, body, read):
    assert coordinates(trace_text(tmp_path, body)["paths"][0]["forward"]) == read


def test_only_tensors_beside_the_first_broadcast(tmp_path):
    """The first says how many places there are."""
    body = "return y + x * torch.arange(x.shape[-1])"
    assert not trace_text(tmp_path, body, "y: Tensor, x: Tensor")["assumption"]["broadcasts"]
    assert trace_text(tmp_path, body, "x: Tensor, y: Tensor")["assumption"]["broadcasts"]


def test_places_in_a_row_are_read_beside_what_is_computed_of_it(tmp_path):
    facts = trace_text(tmp_path, "return x.softmax(-1) * torch.arange(x.shape[-1])")
    assert facts["assumption"]["recipe"] == "row_wise"


def test_what_is_computed_of_coordinates_alone_is_float32(tmp_path):
    """So is the result, whatever the tensor is."""
    facts = trace_text(tmp_path, "return x * torch.cos(0.1 * torch.arange(x.shape[-1]))")
    (output,) = facts["paths"][0]["forward"]["outputs"]
    assert output["dtype"] == "float32"


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        # There are two coordinates, and views of tensors are not taken beside them.
        ("return x + torch.arange(x.shape[0]).view(-1, 1, 1)", r"the operator aten\.arange"),
        ("return x[:, None, None] * torch.arange(x.shape[-1])", r"the operator aten\.arange"),
        ("return x.softmax(0) * torch.arange(x.shape[-1])", r"the operator aten\.arange"),
    ],
)
def test_what_has_no_kernels_is_refused(tmp_path, body, reason):
    with pytest.raises(RefusedError, match=reason):
        trace_text(tmp_path, body)
