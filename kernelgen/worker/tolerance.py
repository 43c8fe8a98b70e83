"""How far an element may be off, by its dtype, and which elements are right; see `reference_check`."""

import torch
from torch import Tensor

# Integers that numbers are rounded to; int64 is for places, which are exact.
ROUNDED_INTEGERS = (torch.int8, torch.uint8, torch.int16, torch.int32)


def allowed_error(
    dtype: torch.dtype, plain: Tensor, exact: Tensor, half_step: Tensor | None = None, terms: int = 1
) -> Tensor:
    """How far each element may be off. `half_step`: of roundings to 8 bits. `terms`: of which the result is the sum,
    each rounded, as the gradient of a tensor that several arguments are."""
    limits = torch.finfo(dtype)
    magnitude, off = exact.abs(), (plain - exact).abs()
    if half_step is not None:
        off = (off - half_step).clamp(min=0)
    largest, baseline = largest_of(magnitude), largest_of(off)
    if not largest.isfinite() or not baseline.isfinite():
        known = exact.isfinite()
        magnitude = torch.where(known, magnitude, 0)
        largest, baseline = largest_of(magnitude), largest_of(torch.where(known & plain.isfinite(), off, 0))
    if half_step is not None:
        return half_step + magnitude.mul_(inside(dtype)).add_(2 * baseline)
    roundings = max(1, terms / 2)  # Of a whole step each; a term has half of one.
    allowed = magnitude.mul_(roundings * limits.eps)
    return allowed.add_(2 * baseline + inside(dtype) * largest + roundings * smallest(dtype))


def excess(dtype: torch.dtype, plain: Tensor, exact: Tensor, *, is_rounded: bool) -> Tensor:
    """The error of each element, less what a rounding to 8 bits explains."""
    off = (plain - exact).abs().nan_to_num(0, posinf=0)
    return (off - half_a_step(dtype, exact)).clamp(min=0) if is_rounded else off


def half_a_step(dtype: torch.dtype, values: Tensor) -> Tensor:
    """Half of the distance between the dtype's numbers where these values lie: the same where they are subnormal."""
    limits = torch.finfo(dtype)
    magnitude = values.abs().nan_to_num(0, posinf=0).clamp(min=limits.smallest_normal)
    fraction, _ = torch.frexp(magnitude)  # In [0.5, 1), so that the quotient is a power of two.
    return limits.eps / 4 * (magnitude / fraction)


def inside(dtype: torch.dtype) -> float:
    """A few roundings of the sums inside, as a share of their largest number."""
    return 1e-12 if dtype in (torch.float64, torch.complex128) else 1e-6


def largest_of(values: Tensor) -> Tensor:
    return values.max() if values.numel() else values.new_zeros(())


def smallest(dtype: torch.dtype) -> float:
    """The smallest positive number of a dtype; 0 for integers."""
    if not (dtype.is_floating_point or dtype.is_complex):
        return 0
    limits = torch.finfo(dtype)
    return limits.smallest_normal * limits.eps


def is_right(dtype: torch.dtype, result: Tensor, plain: Tensor, exact: Tensor, allowed: Tensor) -> Tensor:
    limits = torch.finfo(dtype)
    rounded = exact.clamp(-limits.max, limits.max)
    rounded = torch.where(exact.abs() > limits.max, exact * float("inf"), rounded)  # Keeps NaN.
    near = (result - exact).abs() <= allowed
    # Near the largest number of the dtype, rounding decides between it and infinity.
    at_edge = (exact.abs() - limits.max).abs() <= allowed
    edge = at_edge & (result.abs() + allowed >= limits.max) & (result * exact > 0)
    # Where more is allowed than the dtype holds, infinity of either sign may be.
    beyond = result.isinf() & (exact * result.sign() + allowed >= limits.max)
    either = result.isinf() & (exact.isnan() | plain.isnan())
    return near | edge | beyond | either | same_kind(result, rounded) | same_kind(result, plain)


def is_integer_right(result: Tensor, exact: Tensor) -> Tensor:
    """Integers that numbers were rounded to: few may be the next one, as on the border of two a rounding inside
    decides."""
    off = (result - exact).abs()
    is_one_off = off == 1
    return (off == 0) | (is_one_off & (is_one_off.sum() <= 1 + off.numel() // 100))


def same_kind(a: Tensor, b: Tensor) -> Tensor:
    """Both NaN, or the same infinity."""
    return (a.isnan() & b.isnan()) | (a.isinf() & (a == b))
