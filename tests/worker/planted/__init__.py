"""Right ops, and faults of the kinds that engineers make in them: in Python, so that they run at once.

A fault is a function with the signature of one of the right ops below. `kernelgen fuzz` has to find each with its
default cases, and to find nothing in the right ones.
"""

from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from kernelgen.worker.op import Op, read


@dataclass(frozen=True)
class Planted:
    """A fault, of a kind, in a right op; `lab` holds names of lab.py that differ."""

    name: str
    kind: str
    of: str
    function: Callable[..., Any]
    lab: dict[str, Any]

    def op(self) -> Op:
        return described(self.of, self.function, **self.lab)


FAULTS: dict[str, Planted] = {}


def plant(kind: str, of: str, **lab: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Registers a function as a fault of a kind in a right op."""

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        assert function.__name__ not in FAULTS
        FAULTS[function.__name__] = Planted(function.__name__, kind, of, function, lab)
        return function

    return register


def with_gradient(forward: Callable[..., Any], backward: Callable[..., Any]) -> Callable[..., Any]:
    """A function whose gradients are `backward(needed, grad, *args)`."""

    class Differentiable(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, *args: Any) -> Any:
            ctx.others = [None if isinstance(arg, Tensor) else arg for arg in args]
            ctx.save_for_backward(*(arg for arg in args if isinstance(arg, Tensor)))
            ctx.places = [i for i, arg in enumerate(args) if isinstance(arg, Tensor)]
            return forward(*args)

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> Any:
            args = list(ctx.others)
            for place, tensor in zip(ctx.places, ctx.saved_tensors, strict=True):
                args[place] = tensor
            return backward(ctx.needs_input_grad, grad, *args)

    return Differentiable.apply


# ---- Right ops ------------------------------------------------------------------------------------------------


def fma(a: Tensor, b: Tensor, c: Tensor) -> Tensor:
    return a * b + c


def scale(x: Tensor, weight: Tensor | None = None, bias: Tensor | None = None) -> Tensor:
    y = x * 2 if weight is None else x * weight
    return y if bias is None else y + bias


def activate(x: Tensor, kind: int) -> Tensor:
    return (torch.relu, torch.nn.functional.gelu, torch.nn.functional.silu, torch.tanh)[kind](x)


def norm(x: Tensor, weight: Tensor | None, eps: float) -> Tensor:
    wide = x if x.dtype == torch.float64 else x.float()
    centred = wide - wide.mean(-1, keepdim=True)
    y = centred * torch.rsqrt(centred.square().mean(-1, keepdim=True) + eps)
    return (y if weight is None else y * weight).to(x.dtype)


def norm_reference(x: Tensor, weight: Tensor | None, eps: float) -> Tensor:
    centred = x - x.mean(-1, keepdim=True)
    y = centred * torch.rsqrt(centred.square().mean(-1, keepdim=True) + eps)
    return y if weight is None else y * weight


def attend(q: Tensor, k: Tensor, v: Tensor, causal: int, left: int, scale: float | None) -> tuple[Tensor, Tensor]:
    return attention(q, k, v, bool(causal), left, q.shape[-1] ** -0.5 if scale is None else scale)


def attention(
    q: Tensor, k: Tensor, v: Tensor, causal: bool, left: int, scale: float, *, past: int | None = None, edge: int = 0
) -> tuple[Tensor, Tensor]:
    """The output, and the log-sum-exp of the scores. Faults give another `past`, or move the window's `edge`."""
    past = k.shape[0] - q.shape[0] if past is None else past
    distance = torch.arange(k.shape[0]) - torch.arange(q.shape[0]).unsqueeze(1) - past
    masked = (distance > 0) & causal | (distance < -left - edge) & (left > 0)
    masked &= ~masked.all(-1, keepdim=True)
    scores = (q @ k.t() * scale).masked_fill(masked, -torch.inf)
    return torch.softmax(scores, -1) @ v, torch.logsumexp(scores, -1)


def split(x: Tensor) -> tuple[Tensor, Tensor]:
    return x * 2, x * 2


_DTYPES = (torch.float32, torch.float16, torch.bfloat16, torch.float64)


def _norm_inputs(make: Any, rows: int, columns: int, weighted: int, blocks: int, digits: int) -> tuple[Any, ...]:
    shape = (rows, columns) if blocks == 0 else (blocks, rows, columns)
    return make(shape), make((columns,)) if weighted else None, 10.0**-digits


def _attend_inputs(make: Any, queries: int, keys: int, causal: int, left: int, scaled: int) -> tuple[Any, ...]:
    return make((queries, 16)), make((keys, 16)), make((keys, 16)), causal, left, 0.1 if scaled else None


# What a lab.py says of each.
_LABS: dict[str, dict[str, Any]] = {
    "fma": {
        "REFERENCE": fma,
        "DOMAIN": {"rows": (0, 150), "columns": (0, 1200)},
        "inputs": lambda make, rows, columns: tuple(make((rows, columns)) for _ in range(3)),
    },
    "scale": {
        "REFERENCE": scale,
        "DOMAIN": {"rows": (0, 150), "columns": (0, 1200), "weighted": (0, 1), "biased": (0, 1)},
        "inputs": lambda make, rows, columns, weighted, biased: (
            make((rows, columns)),
            make((columns,)) if weighted else None,
            make((columns,)) if biased else None,
        ),
    },
    "activate": {
        "REFERENCE": activate,
        "DOMAIN": {"rows": (0, 100), "columns": (0, 300), "kind": (0, 3)},
        "inputs": lambda make, rows, columns, kind: (make((rows, columns)), kind),
    },
    "norm": {
        "REFERENCE": norm_reference,
        "DOMAIN": {"rows": (0, 100), "columns": (1, 600), "weighted": (0, 1), "blocks": (0, 2), "digits": (0, 6)},
        "inputs": _norm_inputs,
    },
    "attend": {
        "REFERENCE": attend,
        "DTYPES": (torch.float32, torch.float64),
        "DOMAIN": {"queries": (1, 70), "keys": (3, 70), "causal": (0, 1), "left": (0, 2), "scaled": (0, 1)},
        "inputs": _attend_inputs,
    },
    "split": {
        "REFERENCE": split,
        "DOMAIN": {"rows": (0, 100), "columns": (0, 300)},
        "inputs": lambda make, rows, columns: (make((rows, columns)),),
    },
}
RIGHT = {"fma": fma, "scale": scale, "activate": activate, "norm": norm, "attend": attend, "split": split}


def described(of: str, function: Callable[..., Any], **lab: Any) -> Op:
    """An op with the lab.py of a right one."""
    return read(of, SimpleNamespace(**{"OP": function, "DTYPES": _DTYPES, **_LABS[of], **lab}))
