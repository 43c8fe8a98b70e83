"""Faults that show in the middle of a graph of autograd: what is saved, what is used twice, what is not used."""

import torch

from tests.worker.planted import activate, fma, plant, split


class _OneOutputForgotten(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.set_materialize_grads(False)
        return split(x)

    @staticmethod
    def backward(ctx, first, second):
        if first is None or second is None:
            return second if first is None else first
        return (first + second) * 2


@plant("in a graph", "split")
def gradient_of_one_output_alone(x):
    return _OneOutputForgotten.apply(x)


class _InputsKept(torch.autograd.Function):
    @staticmethod
    def forward(ctx, a, b, c):
        ctx.a, ctx.b = a, b
        return a * b + c

    @staticmethod
    def backward(ctx, grad):
        return grad * ctx.b, grad * ctx.a, grad.clone()


@plant("in a graph", "fma")
def inputs_kept_past_autograd(a, b, c):
    return _InputsKept.apply(a, b, c)


class _OutputKept(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        y = torch.tanh(x)
        ctx.y = y.detach()
        return y

    @staticmethod
    def backward(ctx, grad):
        return grad * (1 - ctx.y * ctx.y)


@plant("in a graph", "activate")
def output_kept_past_autograd(x, kind):
    return _OutputKept.apply(x) if kind == 3 else activate(x, kind)


class _Accumulates(torch.autograd.Function):
    @staticmethod
    def forward(ctx, a, b, c):
        ctx.save_for_backward(a, b)
        ctx.product = torch.ones_like(a)
        return a * b + c

    @staticmethod
    def backward(ctx, grad):
        a, b = ctx.saved_tensors
        return ctx.product.mul_(grad) * b, grad * a, grad.clone()


@plant("in a graph", "fma")
def second_backward_through_one_graph(a, b, c):
    return _Accumulates.apply(a, b, c)


@plant("in a graph", "fma")
def detached_where_an_input_is_no_leaf(a, b, c):
    return fma(a, b, c if a.is_leaf else c.detach())
