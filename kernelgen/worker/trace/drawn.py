"""The numbers and tensors that samples of a function's arguments hold."""

import ast
import functools
import math
from typing import Any

import torch

from kernelgen.worker.trace.graph import FLOAT8, INTEGERS

# That differ from sample to sample, so that a number that depends on them is seen to.
_FLOATS = ((0.37, 0.59, 0.23, 0.71), (1.43, 1.29, 1.81, 1.67), (2.13, 2.31, 2.57, 2.05), (3.23, 3.07, 3.11, 3.41))
_INTEGERS = ((3, 2, 5, 4), (4, 7, 6, 2), (7, 3, 2, 6), (2, 5, 4, 9))
# What integers in samples are below: the others of these functions compare them with small ones.
_LARGEST_INTEGER = 5


def draw_number(base: str, position: int, k: int, default: float | None, *, is_share: bool = False) -> float | int:
    """The scalar at a position among the arguments, in the k-th sample: another number for each; near its default, if
    that is given; of others a share, between 0 and 1, where the function refuses those beyond."""
    if default is not None:
        distance = draw_number(base, position, k, None) / 40
        return default * (1 - distance) if default else distance
    if is_share:
        return draw_number(base, position, k, None) / 4
    numbers = _FLOATS if base == "float" else _INTEGERS
    value = numbers[position % len(numbers)][k]
    turn = position // len(numbers)
    return value + 0.0137 * turn * (k + 2) if base == "float" else value + turn * (7 + 4 * k)


def neighbours(base: str, number: float) -> tuple[float | int, ...]:
    """A number and its neighbours, for a scalar of this type."""
    if base == "float":
        distance = 1e-3 * (abs(number) or 1)
        return number, number - distance, number + distance
    if base == "int" and abs(number) < 2**31:
        return math.floor(number) - 1, math.floor(number), math.floor(number) + 1
    return ()


def base_type(argument: dict[str, Any]) -> str:
    return {"SymInt": "int"}.get(argument["type"], argument["type"])


def default_of(argument: dict[str, Any]) -> Any:
    """The default of a scalar, whose Python source is a literal."""
    return ast.literal_eval(argument["default"])


def draw_tensor(
    dtype: str, shape: tuple[int, ...], seed: int, columns: int, domain: tuple[float, float] | None = None
) -> torch.Tensor:
    return _drawn(dtype, shape, seed, columns, domain).clone()  # Functions may write to it.


@functools.lru_cache(maxsize=4096)
def _drawn(
    dtype: str, shape: tuple[int, ...], seed: int, columns: int, domain: tuple[float, float] | None
) -> torch.Tensor:
    """Of thousands of assumptions most have the same tensors."""
    generator = torch.Generator().manual_seed(seed)
    if dtype == "int":
        return torch.randint(columns, shape, generator=generator)
    if dtype in INTEGERS.values():
        return torch.randint(_LARGEST_INTEGER, shape, generator=generator, dtype=getattr(torch, dtype))
    if domain is not None:
        low, high = domain
        return low + (high - low) * torch.rand(shape, generator=generator, dtype=torch.float32)
    values = torch.randn(shape, generator=generator, dtype=torch.float32)
    if dtype in FLOAT8.values():
        return values.to(getattr(torch, dtype))
    if dtype != "bool":
        return values
    mask = values > 0
    mask.view(-1)[:2] = torch.tensor([True, False])[: mask.numel()]  # A small one may be all alike.
    return mask
