"""Cases that no table of the recipes has: odd, prime, short, long, few, many and strided, in every dtype.

`CASES` lists them by recipe, a line a case; `make` draws the arguments of one, and `PEERS` has functions of the same
arguments. No recipe is tuned to them: whoever tunes one adds other cases here.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel

# Rows, columns, dtype, and how they lie: one after the other; as a slice of wider rows, at multiples of 16 bytes or
# not; as the heads of a fused projection; from one element past an aligned address on.
_NORMS = """
1 768 bfloat16 contiguous | 1 5120 float16 contiguous | 2 12288 bfloat16 contiguous | 3 4096 float32 contiguous
7 1536 bfloat16 contiguous | 16 8192 bfloat16 contiguous | 16 5001 bfloat16 contiguous | 33 2304 float64 contiguous
64 8193 float16 contiguous | 64 3584 bfloat16 contiguous | 100 5120 float32 contiguous | 128 6144 bfloat16 contiguous
128 1000 float16 contiguous | 300 4100 bfloat16 contiguous | 257 2880 float32 contiguous | 500 12289 bfloat16 contiguous
262144 128 bfloat16 contiguous | 300000 64 float16 contiguous | 131072 96 bfloat16 contiguous
100003 192 float32 contiguous | 131072 256 bfloat16 contiguous | 65537 80 float64 contiguous
200000 40 float32 contiguous | 262144 127 bfloat16 contiguous | 131072 65 float32 contiguous
500000 32 bfloat16 contiguous | 32768 320 float16 contiguous | 50000 48 bfloat16 contiguous
4099 4099 float16 contiguous | 8192 5003 float32 contiguous | 16384 1021 bfloat16 contiguous
2003 2053 float64 contiguous | 10007 769 float16 contiguous | 997 10007 bfloat16 contiguous
4096 5001 float64 contiguous | 131072 768 bfloat16 contiguous | 20480 1280 float32 contiguous
12000 2560 bfloat16 contiguous | 16384 3072 float16 contiguous | 8192 5120 bfloat16 contiguous
6000 6144 float32 contiguous | 3072 12288 bfloat16 contiguous | 2048 18432 float64 contiguous
512 65536 bfloat16 contiguous | 512 200001 bfloat16 contiguous | 100 131072 float32 contiguous
16 1048576 bfloat16 contiguous | 5 300007 float32 contiguous
16384 1024 bfloat16 slice | 8192 4096 float16 slice | 4096 2048 float32 odd-slice | 8192 128 bfloat16 heads
3000 4096 bfloat16 shifted | 20000 512 float16 shifted
"""
_SWIGLUS = """
1 11008 bfloat16 contiguous | 2 5632 float16 contiguous | 7 8960 bfloat16 contiguous | 16 14336 float32 contiguous
33 4864 bfloat16 halves | 64 11008 bfloat16 contiguous | 64 13824 float16 halves | 64 18944 float32 halves
100 8192 bfloat16 halves | 128 2731 bfloat16 contiguous | 128 14336 bfloat16 halves | 200 5461 float16 halves
256 7680 float64 contiguous | 300 4100 bfloat16 halves | 513 6400 bfloat16 contiguous | 1000 1001 float32 contiguous
1024 3072 bfloat16 halves | 2000 11008 bfloat16 halves | 3001 5504 float16 contiguous | 4096 10922 bfloat16 contiguous
4099 4099 float32 halves | 5000 8960 bfloat16 contiguous | 6000 6912 float16 halves | 8192 5632 float64 contiguous
8192 2816 bfloat16 halves | 10007 1537 bfloat16 contiguous | 12288 3584 float32 contiguous | 16384 1365 bfloat16 halves
20000 768 bfloat16 contiguous | 32768 352 float16 contiguous | 65537 160 bfloat16 halves | 100003 96 float32 contiguous
131072 64 bfloat16 contiguous | 200000 33 bfloat16 contiguous | 262144 24 float16 halves | 1000000 8 bfloat16 contiguous
100 131072 bfloat16 contiguous | 33 200001 float32 contiguous | 5 1000003 bfloat16 contiguous
4096 4096 bfloat16 slice | 3000 2048 float32 odd-slice | 5000 4096 float16 shifted
"""
# Rows, inner size, columns, dtype, activation.
_LINEARS = """
1 5120 5120 bfloat16 silu | 5 4096 11008 bfloat16 gelu | 17 2048 8192 float16 relu | 33 8192 1024 bfloat16 none
64 4096 11008 bfloat16 silu | 64 5120 5120 float16 gelu | 72 3072 9216 bfloat16 gelu_tanh | 96 4096 4096 bfloat16 none
100 1280 5120 float16 gelu | 128 2048 8192 bfloat16 relu | 128 11008 4096 bfloat16 none | 150 4096 4096 bfloat16 silu
192 5120 1280 float16 none | 200 4096 14336 bfloat16 gelu | 256 768 3072 bfloat16 gelu | 256 3072 768 bfloat16 none
300 4096 4096 bfloat16 relu | 300 1152 4304 float16 gelu_tanh | 333 5120 5120 bfloat16 none
400 2048 2048 bfloat16 silu | 448 4096 11008 bfloat16 gelu | 500 8192 1024 float16 none | 512 5120 5120 bfloat16 gelu
577 1024 4096 bfloat16 gelu | 600 4096 4096 bfloat16 none | 640 3584 4608 bfloat16 silu | 700 2560 10240 float16 relu
768 768 3072 bfloat16 gelu | 800 4096 4096 bfloat16 silu | 900 5120 5120 bfloat16 none | 1000 1000 1000 float16 gelu
1000 4096 4096 bfloat16 gelu | 1024 2048 8192 bfloat16 silu | 1024 11008 4096 bfloat16 none
1500 1280 5120 bfloat16 gelu | 2000 4096 4096 float16 silu | 3000 768 3072 bfloat16 gelu | 5000 1024 1024 bfloat16 relu
10000 320 1280 float16 silu | 20000 256 256 bfloat16 relu | 997 1001 2003 bfloat16 gelu | 300 512 512 float32 gelu
"""
# Batch, queries, keys, heads, heads of keys, dimension, dtype, mask.
_ATTENTIONS = """
1 333 333 32 8 128 bfloat16 causal | 1 1000 1000 16 16 64 float16 full | 2 777 777 12 12 64 bfloat16 full
4 197 197 12 12 64 float16 full | 8 257 257 16 16 80 bfloat16 full | 16 50 50 12 12 64 bfloat16 full
3 1500 1500 20 20 64 float16 full | 1 2047 2047 32 8 128 bfloat16 causal | 1 4097 4097 16 2 128 bfloat16 causal
2 3000 3000 24 8 128 float16 causal | 1 8191 8191 8 8 128 bfloat16 causal | 1 6000 6000 14 2 64 bfloat16 causal
1 1025 1025 9 3 96 bfloat16 causal | 4 640 640 8 8 40 float16 full | 2 4096 77 8 8 40 float16 full
2 1024 77 8 8 80 bfloat16 full | 1 100 5000 16 16 128 bfloat16 full | 1 17 4000 32 8 128 bfloat16 full
7 129 129 10 5 72 bfloat16 causal | 64 64 64 8 8 32 bfloat16 full | 32 100 100 4 4 56 float16 full
1 12345 12345 4 4 64 bfloat16 causal | 1 20000 20000 2 1 128 bfloat16 causal | 5 555 555 5 5 104 bfloat16 full
1 1 999 32 8 128 bfloat16 full | 8 1 3000 32 32 128 bfloat16 full | 16 1 700 40 8 128 float16 full
1 1 50000 8 1 128 bfloat16 full | 3 2 10001 28 4 128 bfloat16 full | 32 1 5000 16 16 64 bfloat16 full
2 2304 2304 16 16 88 bfloat16 full | 1 5000 5000 32 32 64 float16 causal | 6 900 900 6 6 48 bfloat16 causal
2 1800 1800 25 25 64 float16 causal | 1 3333 3333 40 40 128 bfloat16 causal | 4 1111 1111 20 4 128 float16 causal
10 400 400 32 32 112 bfloat16 causal | 128 33 33 16 16 64 bfloat16 causal | 1 2500 10000 16 4 128 bfloat16 full
1 16 64000 8 8 64 float16 full | 24 512 512 7 7 120 bfloat16 full | 1 768 768 64 64 128 bfloat16 causal
"""

Function = Callable[..., Any]


@dataclass(frozen=True)
class Case:
    recipe: str
    sizes: tuple[int, ...]
    dtype: torch.dtype
    kind: str  # The layout, the activation or the mask.

    @property
    def name(self) -> str:
        return f"{' x '.join(map(str, self.sizes))}, {self.kind}"

    @property
    def has_gradient(self) -> bool:
        """Whether its gradient is measured: not where a single query makes it a decoding step."""
        return self.recipe != "flash_attention" or self.sizes[1] > 16

    @property
    def is_measured_in_training(self) -> bool:
        """Whether its forward keeps what its gradient needs: the recipe and torch.compile then do the same."""
        return self.recipe in ("rms_norm", "layer_norm", "swiglu")


def _cases(recipe: str, table: str) -> list[Case]:
    lines = (line.split() for line in table.replace("\n", "|").split("|") if line.strip())
    return [Case(recipe, tuple(map(int, sizes)), getattr(torch, dtype), kind) for *sizes, dtype, kind in lines]


CASES = {
    "rms_norm": _cases("rms_norm", _NORMS),
    "layer_norm": _cases("layer_norm", _NORMS),
    "swiglu": _cases("swiglu", _SWIGLUS),
    "linear_activation": _cases("linear_activation", _LINEARS),
    "flash_attention": _cases("flash_attention", _ATTENTIONS),
}


def make(case: Case, device: str = "cuda") -> tuple[Any, ...]:
    """The arguments of a call."""
    torch.manual_seed(1)

    def draw(*shape: int, scale: float = 1) -> Tensor:
        return torch.randn(shape, device=device, dtype=case.dtype) * scale

    if case.recipe == "linear_activation":
        m, k, n = case.sizes
        return draw(m, k), draw(n, k, scale=k**-0.5), draw(n), case.kind
    if case.recipe == "flash_attention":
        batch, queries, keys, heads, kv_heads, dim = case.sizes
        shapes = (batch, queries, heads, dim), (batch, keys, kv_heads, dim), (batch, keys, kv_heads, dim)
        return *(draw(*shape) for shape in shapes), case.kind == "causal"
    if case.recipe == "swiglu":
        if case.kind == "halves":
            return draw(case.sizes[0], 2 * case.sizes[1]), None
        return _rows(case, draw), _rows(case, draw)
    bias = (draw(case.sizes[1]),) if case.recipe == "layer_norm" else ()
    return _rows(case, draw), draw(case.sizes[1]), *bias


def _rows(case: Case, draw: Function) -> Tensor:
    rows, columns = case.sizes
    match case.kind:
        case "slice":
            return draw(rows, 3 * columns)[:, columns : 2 * columns]
        case "odd-slice":
            return draw(rows, columns + 3)[:, 1 : columns + 1]
        case "heads":
            return draw(rows, 3, 16, columns)[:, 1]
        case "shifted":
            return draw(rows * columns + 1)[1:].view(rows, columns)
    return draw(rows, columns)


def elements(case: Case) -> int:
    """Of the result: the size by which the picture orders the cases."""
    match case.recipe:
        case "linear_activation":
            return case.sizes[0] * case.sizes[2]
        case "flash_attention":
            batch, queries, _, heads, _, dim = case.sizes
            return batch * queries * heads * dim
    return math.prod(case.sizes) * (16 if case.kind == "heads" else 1)


# ---- The recipes and PyTorch's functions with the arguments above -------------------------------------------------


def recipe_call(function: Function, case: Case) -> Function:
    if case.recipe == "flash_attention":
        return lambda q, k, v, causal: function(q, k, v, causal=causal)
    return function


def _rms_norm(x: Tensor, weight: Tensor) -> Tensor:
    return functional.rms_norm(x, x.shape[-1:], weight, 1e-6)


def _layer_norm(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return functional.layer_norm(x, x.shape[-1:], weight, bias, 1e-5)


def _swiglu(gate: Tensor, up: Tensor | None) -> Tensor:
    if up is None:
        gate, up = gate.chunk(2, -1)
    return functional.silu(gate) * up


ACTIVATIONS: dict[str, Function] = {
    "none": lambda x: x,
    "relu": functional.relu,
    "gelu": functional.gelu,
    "gelu_tanh": lambda x: functional.gelu(x, approximate="tanh"),
    "silu": functional.silu,
}


def _linear_activation(x: Tensor, weight: Tensor, bias: Tensor, activation: str) -> Tensor:
    return ACTIVATIONS[activation](functional.linear(x, weight, bias))


def _linear(x: Tensor, weight: Tensor, bias: Tensor, activation: str) -> Tensor:
    return functional.linear(x, weight, bias)


def _attention(backend: SDPBackend) -> Function:
    def attention(q: Tensor, k: Tensor, v: Tensor, causal: bool) -> Tensor:
        q, k, v = (tensor.transpose(1, 2) for tensor in (q, k, v))
        with sdpa_kernel(backend):
            out = functional.scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=q.shape[1] > k.shape[1])
        return out.transpose(1, 2)

    return attention


EAGER: dict[str, dict[str, Function]] = {
    "rms_norm": {"torch": _rms_norm},
    "layer_norm": {"torch": _layer_norm},
    "swiglu": {"torch": _swiglu},
    "linear_activation": {"torch": _linear_activation},
    "flash_attention": {
        "torch flash": _attention(SDPBackend.FLASH_ATTENTION),
        "torch cudnn": _attention(SDPBackend.CUDNN_ATTENTION),
        "torch efficient": _attention(SDPBackend.EFFICIENT_ATTENTION),
    },
}
# Less than the recipe computes: no peer, but what cuBLAS takes for the product.
PARTIAL: dict[str, dict[str, Function]] = {"linear_activation": {"cuBLAS": _linear}}


def peers(case: Case, backward: bool) -> dict[str, Function]:
    """PyTorch's functions, and torch.compile's of the first for this very shape.

    torch.compile calls the same kernels as PyTorch does for attention and for the gradient of a linear layer.
    """
    functions = dict(EAGER[case.recipe])
    if case.is_measured_in_training or (case.recipe == "linear_activation" and not backward):
        functions["torch.compile"] = torch.compile(next(iter(functions.values())), dynamic=False)
    return functions
