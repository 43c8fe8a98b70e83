"""Faults in optional arguments, enumerations, shapes and sizes."""

import torch
from torch import Tensor

from tests.worker.planted import activate, attend, attention, fma, norm, plant, scale


@plant("one argument with one dtype", "scale")
def bias_ignored_in_float16(x, weight, bias):
    return scale(x, weight, None if x.dtype == torch.float16 else bias)


@plant("one argument with one dtype", "scale")
def weight_ignored_in_float64_with_a_bias(x, weight, bias):
    wrong = x.dtype == torch.float64 and weight is not None and bias is not None
    return x * 2 + bias + 0 * weight if wrong else scale(x, weight, bias)


@plant("one argument with one dtype", "activate")
def silu_is_gelu_in_bfloat16(x, kind):
    return activate(x, 1 if kind == 2 and x.dtype == torch.bfloat16 else kind)


@plant("one argument with one dtype", "activate")
def tanh_of_float64_in_float32(x, kind):
    return torch.tanh(x.float()).double() if kind == 3 and x.dtype == torch.float64 else activate(x, kind)


@plant("optional arguments", "scale")
def bias_added_twice_without_weight(x, weight, bias):
    return scale(x, weight, bias) + (bias if weight is None and bias is not None else 0)


@plant("optional arguments", "scale")
def weight_needs_a_bias(x, weight, bias):
    return scale(x, weight, bias if weight is None or bias is not None else weight)


@plant("optional arguments", "scale")
def neither_is_taken_for_one(x, weight, bias):
    return x * 1 if weight is None and bias is None else scale(x, weight, bias)


@plant("constants", "norm")
def eps_ignored(x, weight, eps):
    return norm(x, weight, 1e-6)


@plant("constants", "norm")
def eps_at_least_a_thousandth(x, weight, eps):
    return norm(x, weight, max(eps, 1e-3))


@plant("constants", "attend")
def scale_given_is_ignored(q, k, v, causal, left, scale):
    return attend(q, k, v, causal, left, None)


def _normalised(x, weight, centred, scale):
    y = centred * scale
    return (y if weight is None else y * weight).to(x.dtype)


@plant("constants", "norm")
def eps_outside_the_root(x, weight, eps):
    wide = x if x.dtype == torch.float64 else x.float()
    centred = wide - wide.mean(-1, keepdim=True)
    return _normalised(x, weight, centred, 1 / (centred.square().mean(-1, keepdim=True).sqrt() + eps))


@plant("constants", "norm")
def unbiased_variance(x, weight, eps):
    wide = x if x.dtype == torch.float64 else x.float()
    centred = wide - wide.mean(-1, keepdim=True)
    variance = centred.square().sum(-1, keepdim=True) / max(x.shape[-1] - 1, 1)
    return _normalised(x, weight, centred, torch.rsqrt(variance + eps))


@plant("masks", "attend")
def window_off_by_one(q, k, v, causal, left, scale):
    return attention(q, k, v, bool(causal), left, q.shape[-1] ** -0.5 if scale is None else scale, edge=1)


@plant("masks", "attend")
def causal_from_the_first_key(q, k, v, causal, left, scale):
    return attention(q, k, v, bool(causal), left, q.shape[-1] ** -0.5 if scale is None else scale, past=0)


@plant("masks", "attend")
def window_dropped_with_causal(q, k, v, causal, left, scale):
    return attend(q, k, v, causal, 0 if causal else left, scale)


@plant("dimensions", "norm")
def three_dimensions_flattened_wrong(x, weight, eps):
    if x.ndim == 3 and weight is None:
        return norm(x.flatten(1), None, eps).view(x.shape)
    return norm(x, weight, eps)


@plant("dimensions", "norm")
def a_block_of_one_is_dropped(x, weight, eps):
    return norm(x.squeeze(0), weight, eps) if x.ndim == 3 and len(x) == 1 else norm(x, weight, eps)


@plant("dimensions", "norm")
def blocks_taken_for_rows(x, weight, eps):
    return torch.stack([norm(x[0], weight, eps)] * len(x)) if x.ndim == 3 and len(x) else norm(x, weight, eps)


@plant("sizes at branches", "fma")
def columns_beyond_1024_forgotten(a, b, c):
    tail = torch.arange(a.shape[-1]) >= 1024
    return torch.where(tail, c, fma(a, b, c))


@plant("sizes at branches", "fma")
def tail_of_long_rows(a, b, c):
    n = a.shape[-1]
    tail = torch.arange(n) >= (n // 4 * 4 if n > 256 else n)
    return torch.where(tail, c, fma(a, b, c))


@plant("sizes at branches", "fma", DOMAIN={"rows": (0, 70_000), "columns": (0, 1200)})
def rows_beyond_what_a_grid_has(a, b, c):
    return torch.where(torch.arange(len(a)).unsqueeze(1) < 65_535, fma(a, b, c), c)


@plant("sizes at branches", "fma", HUGE={"rows": 2**19 + 3, "columns": 4097})
def rows_counted_in_16_bits(a, b, c):
    return torch.where(torch.arange(len(a)).unsqueeze(1) < 65_536, fma(a, b, c), c)


@plant("sizes at branches", "fma")
def index_of_16_bits(a, b, c):
    return torch.where(torch.arange(a.numel()).view(a.shape) < 2**16, fma(a, b, c), c)


@plant("sizes at branches", "fma")
def one_row_of_many_columns(a, b, c):
    return a * b if a.shape[0] == 1 and a.shape[1] > 1000 else fma(a, b, c)


@plant("sizes at branches", "scale")
def many_rows_of_one_column(x, weight, bias):
    wrong = x.shape[1] == 1 and x.shape[0] > 100 and weight is not None
    return scale(x, None, bias) + 0 * weight if wrong else scale(x, weight, bias)


@plant("sizes at branches", "scale")
def one_row_takes_no_weight(x, weight, bias):
    wrong = len(x) == 1 and weight is not None
    return scale(x, None, bias) + 0 * weight if wrong else scale(x, weight, bias)


def _as_if_contiguous(tensor: Tensor) -> Tensor:
    strides = torch.empty(tensor.shape, device="meta").stride()
    return tensor.as_strided(tensor.shape, strides, tensor.storage_offset())


@plant("layouts", "fma")
def rows_of_a_wider_tensor(a, b, c):
    in_rows = a.ndim == 2 and a.stride(1) == 1 and a.stride(0) > a.shape[1]
    return fma(_as_if_contiguous(a) if in_rows else a, b, c)


@plant("layouts", "fma")
def storage_offset_ignored(a, b, c):
    return fma(a, b, c.as_strided(c.shape, c.stride(), 0) if c.is_contiguous() else c)


@plant("layouts", "fma")
def transposed_taken_for_contiguous(a, b, c):
    return fma(a, _as_if_contiguous(b) if b.ndim == 2 and b.stride(0) == 1 else b, c)


@plant("layouts", "fma")
def expanded_summed_once(a, b, c):
    return fma(a, b, c) if 0 not in c.stride() or len(c) < 2 else fma(a, b, c / len(c))


@plant("overlapping inputs", "fma")
def the_same_tensor_twice(a, b, c):
    return a * a if a is b and a is c else fma(a, b, c)


@plant("overlapping inputs", "fma")
def inputs_that_overlap(a, b, c):
    overlaps = a.numel() > 1 and b.data_ptr() - a.data_ptr() == a.element_size()
    return fma(a, a, c) + 0 * b if overlaps else fma(a, b, c)
