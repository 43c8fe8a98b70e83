"""A graph has one path: a function that takes others for some arguments has no kernels, or kernels of its defaults."""

import pytest

pytest.importorskip("torch")

from kernelgen.worker.trace.refusals import RefusedError

from .test_trace import trace_text

A, B = "x: Tensor, a: float", "x: Tensor, a: float, b: float"


@pytest.mark.parametrize(
    ("body", "signature", "reason"),
    [
        # Sizes: compared, divided, converted; their sum, their number.
        ("return x.sin() if x.shape[-1] > 1024 else x.cos()", "x: Tensor", "tensors of 2 x 3 x 1025"),
        ("return x.softmax(-1) * (2 if x.size(-2) == 64 else 1)", "x: Tensor", "tensors of 2 x 64 x 7"),
        ("return x.sin() if x.numel() > 5000 else x.cos()", "x: Tensor", "another path that it takes for tensors"),
        ("return x.softmax(-1) * max(1, len(x) // 4096)", "x: Tensor", "another path that it takes for tensors"),
        ("return x.softmax(-1) * max(1, int(0.1 * x.shape[-1]))", "x: Tensor", "tensors of 2 x 3 x 33"),
        ("s = x.shape[-1] / 32; return x.softmax(-1) * math.ceil(s)", "x: Tensor", "tensors of 2 x 3 x 33"),
        ("return x * 2 if x.shape[-1] == x.shape[-2] else x", "x: Tensor", "another path that it takes for tensors"),
        ("for _ in range(x.shape[-1] - 50): x = x * 2\n    return x.sin()", "x: Tensor", "tensors of 2 x 3 x 51"),
        ("return x.softmax(-1) * max(5, x.shape[-1].bit_length())", "x: Tensor", "tensors of 2 x 3 x 33"),
        # Scalars, beside numbers and beside one another.
        ("return x * 2 if a * b > 100 else x", B, "another path that it takes where a is"),
        ("return x * 2 if math.floor(a) == 17 else x", A, "another path that it takes where a is 17"),
        ("return x * ([1.0] * 12 + [5.0] * 3)[n]", "x: Tensor, n: int", "another path that it takes where n is"),
        ("return x * ([5.0] * 3 + [1.0] * 12)[-n]", "x: Tensor, n: int", "another path that it takes where n is"),
        ("return x * sum(([0.0] * 12 + [5.0] * 3)[:n])", "x: Tensor, n: int", "another path that it takes where n is"),
        ("return x * (1.0 + (a > 42))", A, "another path that it takes where a is 42"),
        ("return x * 2 if a > 1 and x.shape[-1] > 10**9 else x", A, "of which no arguments led to another side"),
        # What kernels do not tell apart.
        ("return x * 2 if x.dtype == torch.float16 else x * 3", "x: Tensor", "another one for float16"),
        ("return x.exp() if x.dtype == torch.bfloat16 else x.sin()", "x: Tensor", "path that it takes for bfloat16"),
        ("return x / (x.abs().sum(-1) + torch.finfo(x.dtype).eps)[..., None]", "x: Tensor", "those of torch.finfo"),
        ("return x * 2 if x.is_cuda else x * 3", "x: Tensor", "where a tensor lies, in `return x * 2"),
        ("return x * 2 if x.device.type == 'cuda' else x * 3", "x: Tensor", "where a tensor lies, in `return x * 2"),
        ("d = x.device.type; return x * 2 if d == 'cuda' else x * 3", "x: Tensor", "where a tensor lies, in `d = x."),
        ("return x * 2 if x.is_contiguous() else x * 3", "x: Tensor", "that do not lie contiguously"),
        ("return x * 2 if torch.is_grad_enabled() else x * 3", "x: Tensor", "where no gradients are wanted"),
    ],
)
def test_another_path_is_seen(tmp_path, body, signature, reason):
    with pytest.raises(RefusedError) as refused:
        trace_text(tmp_path, body, signature)
    assert reason in str(refused.value)


@pytest.mark.parametrize(
    ("body", "signature"),
    [
        ("d = x.shape[-1] // 2; return x[..., :d] * torch.sigmoid(x[..., d:])", "x: Tensor"),
        ("assert x.shape[-1] < 10**9; return x * 2", "x: Tensor"),
        ("if x.numel() == 0: return x\n    return x.sin()", "x: Tensor"),
        ("if not 0 <= a <= 1: raise ValueError(a)\n    return x * a", A),
        ("if not x.is_contiguous(): x = x.contiguous()\n    return x.sin()", "x: Tensor"),
        ("assert x.device == y.device; return x * y.to(x.device)", "x: Tensor, y: Tensor"),
        (
            "with torch.autocast(x.device.type, enabled=False): y = x.float().sin()\n    return y.to(x.dtype)",
            "x: Tensor",
        ),
        ("d = x.device.type; d = d if d != 'mps' else 'cpu'\n    with torch.autocast(d): return x.sin()", "x: Tensor"),
        ("return x.masked_fill(mask, torch.finfo(x.dtype).min).softmax(-1)", "x: Tensor, mask: Tensor"),
        ("return x * (0.5 * (1 + math.cos(math.pi * min(1.0, a / b))))", B),
        # Divided by 0 where a is 1.
        ("return x.abs().pow(1 - a) / (1 - a)", A),
        ("return x * min(a / b, (b / a) ** 0.5, 3.0)", B),
    ],
)
def test_what_is_the_same_on_every_side_is_taken(tmp_path, body, signature):
    """And a number that Python chooses, where it is an expression of the scalars."""
    names = [argument.partition(":")[0].strip() for argument in signature.split(",")]
    assert trace_text(tmp_path, body, signature)["arguments"] == names


def test_kernels_are_for_the_ranks_of_one_path(tmp_path):
    facts = trace_text(tmp_path, "return x.sin() if x.dim() == 6 else x.cos()")
    assert facts["assumption"]["ranks"] == [1, 5]


def test_kernels_are_for_the_default_of_what_chooses_a_path(tmp_path):
    """The stamped function runs the reference for others."""
    body = "return x.sum(-1) if p == 2.0 else x.abs().pow(p).sum(-1)"
    assert trace_text(tmp_path, body, "x: Tensor, p: float = 2.0")["arguments"] == ["x"]
