"""When a result counts as right.

An error, against the reference in float64, may be twice the largest error that PyTorch itself makes in the same dtype,
plus one rounding of the element and a few of the sums inside, which are kept in float32 or better. `kernelgen fuzz`
allows the same with code of its own, since what judges an op must not be a file that comes with the op; kernelgen's
tests hold the two to the same verdicts.
"""

from collections.abc import Sequence

import torch
from torch import Tensor


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
    if not oracle.numel() or not dtype.is_floating_point:
        assert torch.equal(result, oracle)
        return
    limits = torch.finfo(dtype)
    # A subnormal number is rounded by the same step whatever its size.
    rounding = limits.eps * oracle.abs() + limits.eps * limits.smallest_normal
    sums = (1e-12 if dtype == torch.float64 else 1e-6) * oracle.abs().max()
    largest = (baseline - oracle).abs().max().clamp(min=error_nearby)
    allowed = 2 * largest + rounding + sums
    error = (result - oracle).abs()
    worst = (error - allowed).argmax()
    assert error[worst] <= allowed[worst], (
        f"the worst of {error.numel()} elements is {result[worst]}, the float64 reference says {oracle[worst]}: "
        f"an error of {error[worst]:.3g} where PyTorch's own error allows {allowed[worst]:.3g}"
    )


def assert_equal(results: Sequence[Tensor | None], expected: Sequence[Tensor | None]) -> None:
    """Equal to the last bit, and NaN nowhere."""
    for left, right in zip(results, expected, strict=True):
        assert (left is None) == (right is None)
        assert left is None or torch.equal(left, right)
