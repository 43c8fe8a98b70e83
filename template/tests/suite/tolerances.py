"""When a result counts as right.

An error, against the reference in float64, may be twice the largest error that PyTorch itself makes in the same dtype,
plus one rounding of the element and a few of the sums inside, which are kept in float32 or better. `kernelgen fuzz`
allows the same with code of its own, since what judges an op must not be a file that comes with the op; kernelgen's
tests hold the two to the same verdicts.

A number of 8 bits may be off by half a step of its format there, plus twice what PyTorch's error exceeds that by, plus
a few roundings inside, as a share of the element: the largest has the format's whole range over it. That is where its
reference does not round in float64; if it does, one step is allowed.

An integer that a number is rounded to may be off by one where the number lies on the border of two: of few elements.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

# What numbers are rounded to; int64 is for places, which are exact.
ROUNDED = (torch.int8, torch.uint8, torch.int16, torch.int32)


def most_off(count: int) -> int:
    """How many of so many integers may be off by one."""
    return 1 + count // 100


def assert_accurate(
    results: list[Tensor], baselines: list[Tensor], oracles: list[Tensor], *, error_nearby: float = 0.0
) -> None:
    """Holds draws of one result, taken together, against PyTorch's own (`baselines`) and the float64 reference's.

    `error_nearby` is PyTorch's error for inputs nearby; the larger one counts.
    """
    dtype = results[0].dtype
    for result, baseline in zip(results, baselines, strict=True):
        assert (result.shape, result.dtype) == (baseline.shape, baseline.dtype)
        assert not result.isnan().any(), "there are NaNs, or elements that were never written"
    result, baseline, oracle = (
        torch.cat([tensor.flatten().double() for tensor in group]) for group in (results, baselines, oracles)
    )
    if dtype in ROUNDED:
        off = (result - oracle).abs()
        assert not oracle.numel() or off.max() <= 1, f"an integer is off by {off.max():g}"
        assert off.sum() <= most_off(oracle.numel()), f"{off.sum():g} of {oracle.numel()} integers are off by one"
        return
    if not oracle.numel() or not dtype.is_floating_point:
        assert torch.equal(result, oracle)
        return
    limits = torch.finfo(dtype)
    half_step = half_a_step(dtype, oracle) if is_rounded(dtype, oracles[0]) else None
    # A subnormal number is rounded by the same step whatever its size.
    rounding = limits.eps * oracle.abs() + limits.eps * limits.smallest_normal if half_step is None else half_step
    sums = (1e-12 if dtype == torch.float64 else 1e-6) * (oracle.abs().max() if half_step is None else oracle.abs())
    largest = largest_error(dtype, baseline, oracle, oracles[0]).clamp(min=error_nearby)
    allowed = 2 * largest + rounding + sums
    error = (result - oracle).abs()
    # Numbers that the dtype does not hold are infinity in it.
    error[(oracle.abs() > limits.max) & (result == oracle * torch.inf)] = 0
    worst = (error - allowed).argmax()
    assert error[worst] <= allowed[worst], (
        f"the worst of {error.numel()} elements is {result[worst]}, the float64 reference says {oracle[worst]}: "
        f"an error of {error[worst]:.3g} where PyTorch's own error allows {allowed[worst]:.3g}"
    )


def is_rounded(dtype: torch.dtype, oracle: Tensor) -> bool:
    """Whether a result is a rounding, to 8 bits, of what the float64 reference says."""
    return dtype.itemsize == 1 and dtype != oracle.dtype


def largest_error(dtype: torch.dtype, value: Tensor, exact: Tensor, oracle: Tensor) -> Tensor:
    """Of a result of this dtype, in float64, where it is finite; of one of 8 bits what exceeds half a step."""
    error = (value - exact).abs().nan_to_num(0, posinf=0)
    return (error - half_a_step(dtype, exact)).max() if is_rounded(dtype, oracle) else error.max()


def largest_number(values: Sequence[Tensor]) -> float:
    """The largest of the finite numbers of these tensors, without its sign."""
    finite = (value.detach().double().nan_to_num(0, 0, 0) for value in values if value.is_floating_point())
    return max((float(value.abs().max()) for value in finite if value.numel()), default=0.0)


def half_a_step(dtype: torch.dtype, values: Tensor) -> Tensor:
    """Half of the distance between the dtype's numbers where these values lie: the same where they are subnormal."""
    limits = torch.finfo(dtype)
    magnitude = values.abs().clamp(min=limits.smallest_normal)
    fraction, _ = torch.frexp(magnitude)  # In [0.5, 1), so that the quotient is a power of two.
    return limits.eps / 4 * (magnitude / fraction)


def assert_equal(results: Sequence[Tensor | None], expected: Sequence[Tensor | None]) -> None:
    """Equal to the last bit, and NaN nowhere."""
    for left, right in zip(results, expected, strict=True):
        assert (left is None) == (right is None)
        assert left is None or torch.equal(left, right)
