"""Faults in arithmetic: rounding, special values, cancellation, accumulation."""

import torch
from torch import Tensor

from tests.worker.planted import activate, attend, fma, norm, plant, scale


def _truncated(value: Tensor, dtype: torch.dtype) -> Tensor:
    """Rounded towards 0."""
    rounded = value.to(dtype)
    towards = torch.nextafter(rounded, torch.zeros_like(rounded))
    return torch.where(rounded.abs() > value.abs(), towards, rounded)


class _Truncate(torch.autograd.Function):
    @staticmethod
    def forward(ctx, value, dtype):
        return _truncated(value, dtype)

    @staticmethod
    def backward(ctx, grad):
        return grad.float(), None


@plant("rounding", "fma")
def truncated_to_bfloat16(a, b, c):
    if a.dtype != torch.bfloat16:
        return fma(a, b, c)
    return _Truncate.apply(fma(a.float(), b.float(), c.float()), torch.bfloat16)


@plant("rounding", "fma")
def truncated_to_float16(a, b, c):
    if a.dtype != torch.float16:
        return fma(a, b, c)
    return _Truncate.apply(fma(a.float(), b.float(), c.float()), torch.float16)


@plant("rounding", "fma")
def three_thousandths_too_large_in_bfloat16(a, b, c):
    if a.dtype != torch.bfloat16:
        return fma(a, b, c)
    return (fma(a.float(), b.float(), c.float()) * 1.003).to(a.dtype)


@plant("rounding", "norm")
def three_thousandths_too_small_in_bfloat16(x, weight, eps):
    if x.dtype != torch.bfloat16:
        return norm(x, weight, eps)
    return (norm(x.float(), None if weight is None else weight.float(), eps) * 0.997).to(x.dtype)


class _TruncatedGradient(torch.autograd.Function):
    @staticmethod
    def forward(ctx, value):
        return value.float()

    @staticmethod
    def backward(ctx, grad):
        return _truncated(grad, torch.bfloat16)


@plant("rounding", "fma")
def gradient_truncated_to_bfloat16(a, b, c):
    if a.dtype != torch.bfloat16:
        return fma(a, b, c)
    return fma(_TruncatedGradient.apply(a), b.float(), c.float()).to(a.dtype)


@plant("special values", "fma")
def negative_zero_lost(a, b, c):
    return fma(a, b, c) + 0.0


@plant("special values", "scale")
def zero_has_no_sign(x, weight, bias):
    y = scale(x, weight, bias)
    return torch.where(y == 0, torch.zeros_like(y), y)


@plant("special values", "activate")
def quotient_by_zero(x, kind):
    return activate(x, kind) * (x / x) if kind == 2 else activate(x, kind)


@plant("special values", "fma")
def nan_masked(a, b, c):
    y = fma(a, b, c)
    return torch.where(y.isnan(), torch.zeros_like(y), y)


@plant("special values", "activate")
def nan_passes_as_zero_through_relu(x, kind):
    return torch.where(x > 0, x, torch.zeros_like(x)) if kind == 0 else activate(x, kind)


@plant("special values", "fma")
def infinity_clamped(a, b, c):
    y = fma(a, b, c)
    return y.clamp(-torch.finfo(y.dtype).max, torch.finfo(y.dtype).max)


@plant("special values", "scale")
def denormals_flushed(x, weight, bias):
    y = scale(x, weight, bias)
    return torch.where(y.abs() < torch.finfo(y.dtype).smallest_normal, y * 0, y)


@plant("special values", "attend")
def softmax_without_its_maximum(q, k, v, causal, left, scale):
    if causal or left:
        return attend(q, k, v, causal, left, scale)
    weights = torch.exp(q @ k.t() * (q.shape[-1] ** -0.5 if scale is None else scale))
    return weights / weights.sum(-1, keepdim=True) @ v, weights.sum(-1).log()


@plant("cancellation", "norm")
def variance_from_the_mean_of_squares(x, weight, eps):
    wide = x.double() if x.dtype == torch.float64 else x.float()
    mean = wide.mean(-1, keepdim=True)
    y = (wide - mean) * torch.rsqrt((wide.square().mean(-1, keepdim=True) - mean.square()).clamp(0) + eps)
    return (y if weight is None else y * weight).to(x.dtype)


@plant("precision", "fma")
def float64_in_float32(a, b, c):
    return fma(a.float(), b.float(), c.float()).double() if a.dtype == torch.float64 else fma(a, b, c)


@plant("precision", "norm")
def squares_in_float16(x, weight, eps):
    if x.dtype != torch.float16:
        return norm(x, weight, eps)
    centred = x - x.mean(-1, keepdim=True)
    squares = torch.zeros_like(x[..., :1])
    for i in range(x.shape[-1]):
        squares = squares + centred[..., i : i + 1].square() / x.shape[-1]
    y = centred * torch.rsqrt(squares + eps)
    return y if weight is None else y * weight


@plant("precision", "activate")
def gelu_by_tanh_in_float32(x, kind):
    wrong = kind == 1 and x.dtype == torch.float32
    return torch.nn.functional.gelu(x, approximate="tanh") if wrong else activate(x, kind)


@plant("special values", "activate")
def silu_by_an_exponential_that_overflows(x, kind):
    return x / (1 + torch.exp(-x)) if kind == 2 else activate(x, kind)


@plant("precision", "norm")
def mean_summed_in_float16(x, weight, eps):
    if x.dtype != torch.float16:
        return norm(x, weight, eps)
    centred = x.float() - (x.sum(-1, keepdim=True, dtype=torch.float16) / x.shape[-1]).float()
    y = centred * torch.rsqrt(centred.square().mean(-1, keepdim=True) + eps)
    return (y if weight is None else y * weight.float()).to(x.dtype)
