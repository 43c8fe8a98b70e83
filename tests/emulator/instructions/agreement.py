"""When two results agree: to the bit where PTX defines the bits, else within the error that it documents."""

from collections.abc import Callable
from dataclasses import dataclass

import torch

_FRACTION_BITS = {"f16": 10, "bf16": 7, "f32": 23, "f64": 52}
_LEAST_EXPONENT = {"f16": -14, "bf16": -126, "f32": -126, "f64": -1022}


@dataclass(frozen=True)
class Agreement:
    name: str
    differ: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]  # Of words, a mask of those that do not agree.
    show: Callable[[int], str]


def _hexadecimal(word: int) -> str:
    return f"{word % 2**64:#x}"


def same_bits() -> Agreement:
    return Agreement("bits", lambda a, b: a != b, _hexadecimal)


def values(words: torch.Tensor, kind: str) -> torch.Tensor:
    """The numbers in the lower bits of words, in double precision; of f16x2 and bf16x2, two for each word."""
    if kind == "f64":
        return words.contiguous().view(torch.float64)
    if kind == "f32":
        return words.to(torch.int32).view(torch.float32).double()
    dtype = torch.float16 if kind.startswith("f16") else torch.bfloat16
    halves = [words, words >> 16] if kind.endswith("x2") else [words]
    return torch.stack([half.to(torch.int16).view(dtype).double() for half in halves], -1).squeeze(-1)


def within(kind: str, *, ulps: float = 0, relative: float = 0, absolute: float = 0) -> Agreement:
    """Numbers of a type that differ by no more than the sum of the errors; NaN and infinities must be the same."""

    def differ(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        x, y = values(a, kind), values(b, kind)
        scalar = kind.removesuffix("x2")
        exponents = torch.frexp(y.abs())[1].double() - 1
        unit = torch.exp2(exponents.clamp(min=_LEAST_EXPONENT[scalar]) - _FRACTION_BITS[scalar])
        bound = ulps * unit + relative * y.abs() + absolute
        near = (x - y).abs() <= bound
        apart = ~(near | (x == y) | (x.isnan() & y.isnan()))
        return apart.any(-1) if kind.endswith("x2") else apart

    def show(word: int) -> str:
        signed = word - 2**64 if word >= 2**63 else word
        return f"{_hexadecimal(word)} ({values(torch.tensor([signed]), kind).flatten().tolist()})"

    return Agreement(f"{ulps} ulp + {relative:.1e} relative + {absolute:.1e}", differ, show)
