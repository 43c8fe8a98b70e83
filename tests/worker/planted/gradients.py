"""Faults in gradients, and in calls without them."""

import itertools
import time

import torch

from tests.worker.planted import activate, attend, fma, plant, scale, with_gradient

_calls = itertools.count(1)


def _scale_backward(needed, grad, x, weight, bias):
    grads = grad * (2 if weight is None else weight), None if weight is None else (grad * x).sum(0), None
    grads = grads if bias is None else (*grads[:2], grad.sum(0))
    return tuple(value if need else None for value, need in zip(grads, needed, strict=True))


def _scale_weight_alone(needed, grad, x, weight, bias):
    first, second, third = _scale_backward(needed, grad, x, weight, bias)
    return first, second / 2 if second is not None and first is None else second, third


_weight_alone = with_gradient(scale, _scale_weight_alone)


@plant("some gradients wanted", "scale")
def gradient_of_the_weight_alone(x, weight, bias):
    return _weight_alone(x, weight, bias)


def _scale_bias_with_input(needed, grad, x, weight, bias):
    grads = _scale_backward(needed, grad, x, weight, bias)
    return grads if needed[0] else (None, grads[1], None)


_bias_with_input = with_gradient(scale, _scale_bias_with_input)


@plant("some gradients wanted", "scale")
def gradient_of_the_bias_with_the_input_s_only(x, weight, bias):
    return _bias_with_input(x, weight, bias)


@plant("some gradients wanted", "fma")
def detached_where_one_input_is_frozen(a, b, c):
    return fma(a, b, c) if b.requires_grad or not c.requires_grad else fma(a, b, c.detach()) + 0 * c


def _contiguous_grad(needed, grad, a, b, c):
    grad = grad.as_strided(grad.shape, torch.empty(grad.shape, device="meta").stride()) if grad.numel() else grad
    return grad * b, grad * a, grad.clone()


def _product_in_the_cotangent(needed, grad, a, b, c):
    second, third = grad * a, grad.clone()
    writable = grad.is_contiguous() and grad.numel()
    return (grad.mul_(b).clone() if writable else grad * b), second, third


_in_the_cotangent = with_gradient(fma, _product_in_the_cotangent)


@plant("cotangents", "fma")
def scratch_in_the_cotangent(a, b, c):
    return _in_the_cotangent(a, b, c)


def _expanded_input(needed, grad, a, b, c):
    first = grad * b
    first = first.sum(0, keepdim=True).expand_as(first) if 0 in a.stride() and a.numel() > 1 else first
    return first, grad * a, grad.clone()


_of_an_expanded_input = with_gradient(fma, _expanded_input)


@plant("layouts", "fma")
def gradient_of_an_expanded_input_summed(a, b, c):
    return _of_an_expanded_input(a, b, c)


def _in_16_bits(needed, grad, x, weight, bias):
    first, second, third = _scale_backward(needed, grad, x, weight, bias)
    if second is not None:
        second = torch.zeros_like(weight)
        for row in grad * x:
            second = second + row
    return first, second, third


_accumulated = with_gradient(scale, _in_16_bits)


@plant("precision", "scale")
def gradient_of_the_weight_summed_in_16_bits(x, weight, bias):
    return _accumulated(x, weight, bias)


_scratch = {}


def _shared_scratch(needed, grad, a, b, c):
    _scratch["product"] = grad * b
    time.sleep(0)
    return _scratch["product"], grad * a, grad.clone()


_sharing = with_gradient(fma, _shared_scratch)


@plant("threads", "fma")
def scratch_of_the_backward_that_threads_share(a, b, c):
    return _sharing(a, b, c)


_off_by_one = with_gradient(
    fma,
    lambda needed, grad, a, b, c: (
        grad * b if needed[0] else None,
        grad * a if needed[2] else None,
        grad.clone() if needed[2] else None,
    ),
)


@plant("some gradients wanted", "fma")
def another_input_is_asked_whether_it_takes_one(a, b, c):
    return _off_by_one(a, b, c)


@plant("some gradients wanted", "scale")
def no_gradient_of_an_empty_input(x, weight, bias):
    return scale(x, weight, bias) if x.numel() else x.detach().clone()


def _fits(grad):
    return grad.untyped_storage().nbytes() // grad.element_size() - grad.storage_offset() >= grad.numel()


_noncontiguous = with_gradient(
    fma, lambda needed, grad, *args: _contiguous_grad(needed, grad if _fits(grad) else grad.contiguous(), *args)
)


@plant("cotangents", "fma")
def cotangent_taken_for_contiguous(a, b, c):
    return _noncontiguous(a, b, c)


def _ones_if_expanded(needed, grad, a, b, c):
    grad = torch.ones_like(grad) if grad.numel() > 1 and not any(grad.stride()) else grad
    return grad * b, grad * a, grad.clone()


_expanded = with_gradient(fma, _ones_if_expanded)


@plant("cotangents", "fma")
def expanded_cotangent_taken_for_ones(a, b, c):
    return _expanded(a, b, c)


_late = with_gradient(
    fma, lambda needed, grad, a, b, c: (grad * b, None if next(_calls) % 3 == 0 else grad * a, grad.clone())
)


@plant("state", "fma")
def gradient_missing_in_every_third_call(a, b, c):
    return _late(a, b, c)


_buffers = {}


def _kept(needed, grad, a, b, c):
    buffer = _buffers.setdefault((grad.shape, grad.dtype), torch.empty(grad.shape, dtype=grad.dtype))
    return torch.mul(grad, b, out=buffer), grad * a, grad.clone()


_kept_gradient = with_gradient(fma, _kept)


@plant("memory", "fma")
def gradient_in_memory_of_an_earlier_one(a, b, c):
    return _kept_gradient(a, b, c)


def _default_scale(needed, grad, x, kind):
    slopes = torch.where(x > 0, 1.0, 0.0).to(x.dtype) if kind == 0 else 1 - torch.tanh(x).square()
    return grad * slopes, None


_slopes = with_gradient(activate, _default_scale)


@plant("one argument with one dtype", "activate")
def slope_of_another_activation(x, kind):
    return _slopes(x, kind) if kind in (0, 2) and x.dtype == torch.float32 else activate(x, kind)


class _ScaledBackward(torch.autograd.Function):
    @staticmethod
    def forward(ctx, q, scale):
        ctx.scale = scale
        return q.clone()

    @staticmethod
    def backward(ctx, grad):
        return grad / (1 if ctx.scale is None else ctx.scale * 4), None


@plant("constants", "attend")
def scale_ignored_in_the_backward(q, k, v, causal, left, scale):
    return attend(_ScaledBackward.apply(q, scale), k, v, causal, left, scale)


@plant("constants", "attend")
def gradient_of_the_lse_lost(q, k, v, causal, left, scale):
    output, lse = attend(q, k, v, causal, left, scale)
    return output, lse.detach()


@plant("modes", "fma")
def wrong_under_no_grad(a, b, c):
    return fma(a, b, c) if torch.is_grad_enabled() else (a.half() * b.half() + c.half()).to(a.dtype)


@plant("modes", "scale")
def wrong_in_inference_mode(x, weight, bias):
    return scale(x, weight, None if torch.is_inference_mode_enabled() else bias)


@plant("modes", "fma")
def wrong_under_autocast(a, b, c):
    return a * b if torch.is_autocast_enabled("cpu") else fma(a, b, c)


@plant("modes", "fma")
def another_dtype_under_autocast(a, b, c):
    return fma(a, b, c).half() if torch.is_autocast_enabled("cpu") else fma(a, b, c)


@plant("modes", "fma")
def wrong_when_compiled(a, b, c):
    return fma(a, b, -c) if torch.compiler.is_compiling() else fma(a, b, c)


@plant("modes", "scale")
def wrong_where_only_the_weight_takes_a_gradient(x, weight, bias):
    wrong = not x.requires_grad and weight is not None and weight.requires_grad
    return scale(x, weight, None) if wrong else scale(x, weight, bias)
