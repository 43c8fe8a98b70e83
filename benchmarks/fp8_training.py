"""PyTorch's own linear layer in 8 bits with a gradient, by rows: torch.compile quantises, `scaled_mm` multiplies."""

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor


def layer(
    x: Tensor,
    x_scales: Tensor | None,
    weight: Tensor,
    weight_scales: Tensor | None,
    bias: Tensor | None,
    activation: str,
    dtype: torch.dtype,
    fast_accumulation: bool,
    backward_dtype: torch.dtype | None,
    y_scale: Tensor | None,
) -> Tensor:
    """As linear_fp8 takes its arguments, of numbers alone."""
    others = (x_scales, weight_scales, bias, y_scale)
    if any(tensor is not None for tensor in others) or activation != "none":
        raise NotImplementedError("a layer of numbers, without bias and activation")
    return _Layer.apply(x, weight, fast_accumulation, backward_dtype)


class _Layer(torch.autograd.Function):
    """Operands are quantised along what a product sums over; so each is quantised once for either product."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, fast_accumulation: bool, backward_dtype: torch.dtype | None
    ) -> Tensor:
        ctx.save_for_backward(x, weight)
        ctx.backward_dtype = backward_dtype
        codes = torch.float8_e4m3fn
        return _product(_of_rows(x, codes), _of_rows(weight, codes), x.dtype, fast_accumulation)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        (x, weight), codes = ctx.saved_tensors, ctx.backward_dtype
        if codes is None:
            return grad @ weight, grad.mT @ x, None, None
        grad_x = _product(_of_rows(grad, codes), _of_columns(weight, torch.float8_e4m3fn), x.dtype, False)
        grad_weight = _product(_of_columns(grad, codes), _of_columns(x, torch.float8_e4m3fn), x.dtype, False)
        return grad_x, grad_weight, None, None


def _product(left: tuple[Tensor, Tensor], right: tuple[Tensor, Tensor], dtype: torch.dtype, fast: bool) -> Tensor:
    """left rightᵀ."""
    from torch.nn.functional import ScalingType, scaled_mm

    (left_codes, left_scales), (right_codes, right_scales) = left, right
    kind = ScalingType.RowWise
    options = {"output_dtype": dtype, "use_fast_accum": fast}
    return scaled_mm(left_codes, right_codes.mT, left_scales, kind, right_scales.mT, kind, **options)


@functools.cache  # torch.compile takes seconds to import.
def _compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    return torch.compile(function, dynamic=False)


def _of_rows(numbers: Tensor, codes: torch.dtype) -> tuple[Tensor, Tensor]:
    return _compiled(_quantised)(numbers, codes)


def _of_columns(numbers: Tensor, codes: torch.dtype) -> tuple[Tensor, Tensor]:
    """Of the transpose, which is contiguous then."""
    return _compiled(_quantised_columns)(numbers, codes)


def _quantised_columns(numbers: Tensor, codes: torch.dtype) -> tuple[Tensor, Tensor]:
    turned, scales = _quantised(numbers.mT, codes)
    return turned.contiguous(), scales


def _quantised(numbers: Tensor, codes: torch.dtype) -> tuple[Tensor, Tensor]:
    largest = torch.finfo(codes).max
    scales = numbers.abs().amax(-1, keepdim=True).float().clamp(min=1e-12) / largest
    return (numbers / scales).clamp(-largest, largest).to(codes), scales
