"""The operators that kernels are written in, and how PyTorch's others are taken apart into them."""

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch._decomp import decomposition_table

from kernelgen.worker.trace.refusals import UnknownOperatorError

UNARY = (
    *("abs", "acos", "acosh", "asin", "asinh", "atan", "atanh", "ceil", "cos", "cosh", "digamma", "erf", "erfc"),
    *("erfinv", "exp", "exp2", "expm1", "floor", "isinf", "isnan", "lgamma", "log", "log10", "log1p", "log2"),
    *("logical_not", "bitwise_not", "neg", "polygamma", "reciprocal", "relu", "round", "rsqrt", "sigmoid", "sign"),
    *("sin", "sinh", "sqrt", "tan", "tanh", "trunc"),
)
BINARY = (
    *("add", "atan2", "bitwise_and", "bitwise_left_shift", "bitwise_or", "bitwise_right_shift", "bitwise_xor"),
    *("clamp", "clamp_max", "clamp_min", "copysign", "div", "eq", "fmod", "ge", "gt", "hypot", "le", "logical_and"),
    *("logical_or", "logical_xor", "lt", "maximum", "minimum", "mul", "ne", "pow", "remainder", "rsub", "sub"),
    *("where",),
)
COMPARISONS = ("eq", "ge", "gt", "le", "lt", "ne")
REDUCTIONS = ("sum", "mean", "amax", "amin", "var", "argmax", "argmin", "max", "min", "prod")
# Running totals of each row, and its elements in the other order.
SCANS = {
    "cumsum": "running_sum",
    "cumprod": "running_product",
    "cummax": "running_max",
    "cummin": "running_min",
    "logcumsumexp": "running_log_sum",
}
TURNED = ("flip",)
# An element of each row, by its place; and elements of zeros that are set or added to.
PLACED = ("gather", "scatter", "scatter_add")
# The same elements, elsewhere or in another shape.
SAME = (
    *("alias", "broadcast_in_dim", "clone", "contiguous", "copy", "copy_", "detach", "expand", "lift_fresh"),
    *("lift_fresh_copy", "reshape", "squeeze", "unsqueeze", "view", "view_of", "_unsafe_view"),
)
# Of a dimension of size 1, where it is one of these: the same elements.
_UNPICKED = ("select_backward", "slice_backward")
# The same elements, of which the dimensions come in another order.
PERMUTED = ("permute", "t", "transpose")
PICKED = ("select", "slice", "narrow", *_UNPICKED)
# Elements that a mask chooses are set to a number.
MASKED = ("index_put", "index_put_")
# What moves elements, of tensors whose last dimension is cut into parts or joined of them; see parts.py.
MOVES = (
    *(name for name in SAME if name not in ("broadcast_in_dim", "copy", "copy_", "view_of")),
    *("cat", "flip", "narrow", "permute", "roll", "select", "select_scatter", "slice", "slice_scatter", "split"),
    *("split_with_sizes", "stack", "t", "transpose", "unbind", "unsafe_split", "unsafe_split_with_sizes"),
)
CASTS = ("_to_copy", "convert_element_type", "to")
FILLED = ("full", "full_like", "ones", "ones_like", "scalar_tensor", "zeros", "zeros_like")

_KNOWN = {*UNARY, *BINARY, *REDUCTIONS, *SCANS, *TURNED, *PLACED, *SAME, *PERMUTED, *PICKED, *MASKED, *CASTS, *FILLED}
# Spelled otherwise.
_SYNONYMS = {"true_divide": "div", "mul_": "mul", "absolute": "abs"}
_SYNONYMS |= {"__lshift__": "bitwise_left_shift", "__rshift__": "bitwise_right_shift"}


# The most numbers that a point has.
_MOST_OF_POINT = 4
# Operators that are another one of vectors.
_PRODUCTS = {"addmm", "addmv", "baddbmm", "bmm", "dot", "mm", "mv"}
# Operators that are read as they are where neighbours are read.
_SHIFTS = tuple(
    getattr(torch.ops.aten, name).default
    for name in (
        *("cat", "constant_pad_nd", "roll", "select_backward", "select_scatter", "slice_backward", "slice_scatter"),
        *("stack", "unsqueeze"),
    )
)
# Operators that are understood under some assumptions: of coordinates, of places.
_OF_ASSUMPTIONS = {"arange", "constant_pad_nd", "eye", "index", "index_select", "iota", "tril", "triu"}


def unknown(target: Callable[..., Any]) -> UnknownOperatorError:
    """The refusal of an operator that has no name here."""
    name = target._schema.name.partition("::")[2] if isinstance(target, torch._ops.OpOverload) else ""
    is_moved = torch.Tag.pointwise in getattr(target, "tags", ()) or name in (*MOVES, *_OF_ASSUMPTIONS)
    return UnknownOperatorError(in_words(target), 0 if is_moved else 1 if name in _PRODUCTS else 3)


def operator_of(target: Callable[..., Any]) -> str | None:
    """The name here of an operator of PyTorch's; None where it has none."""
    if not isinstance(target, torch._ops.OpOverload) or target.namespace not in ("aten", "prims"):
        return None
    name = target._schema.name.partition("::")[2]
    if target is torch.ops.aten.view.dtype:
        return None  # The bits of its elements, read as others.
    if name.startswith("empty"):
        return "zeros"  # A decomposition fills what it makes.
    name = _SYNONYMS.get(name, name)
    return name if name in _KNOWN else None


@functools.cache
def decompositions() -> dict[Any, Any]:
    """PyTorch's decompositions of all operators but those above, and those below."""
    return {
        operator: decomposition
        for operator, decomposition in decomposition_table.items()
        if isinstance(operator, torch._ops.OpOverload)
        and (operator.namespace == "aten" and operator._schema.name.partition("::")[2] not in _KNOWN)
    } | _OWN


def _fmin(x: Tensor, y: Tensor) -> Tensor:
    return torch.where((x <= y) | y.isnan(), x, y)


def _fmax(x: Tensor, y: Tensor) -> Tensor:
    return torch.where((x >= y) | y.isnan(), x, y)


def _heaviside(x: Tensor, values: Tensor) -> Tensor:
    return torch.where(x == 0, values, torch.where(x > 0, torch.ones_like(x), torch.zeros_like(x)))


def _round_decimals(x: Tensor, *, decimals: int) -> Tensor:
    power = 10.0 ** abs(decimals)
    return torch.round(x * power) / power if decimals >= 0 else torch.round(x / power) * power


def _nll_loss_backward(
    grad: Tensor, x: Tensor, target: Tensor, weight: Tensor | None, reduction: int, ignored: int, total: Tensor
) -> Tensor:
    """PyTorch's multiplies 0 by the weights of other classes, of which one that is infinite makes all NaN."""
    unweighted = decomposition_table[torch.ops.aten.nll_loss_backward.default]
    terms = unweighted(grad, x, target, None, reduction, ignored, total)
    if weight is None:
        return terms
    shape = (-1,) if x.ndim == 1 else (1, -1, *[1] * (x.ndim - 2))
    return torch.where(terms == 0, terms, terms * weight.reshape(shape))


def _product(a: Tensor, b: Tensor) -> Tensor:
    """A product of matrices one of which is a vector, as einsum has for sums of rows; others stay."""
    rows, columns = a.shape[-2], b.shape[-1]
    if a.shape[-1] == 1:
        return a * b
    if columns == 1:
        vector = b.reshape(*b.shape[:-2], 1, -1)
        return (a * vector).sum(-1, keepdim=True)
    if rows == 1:
        vector = a.reshape(*a.shape[:-2], -1, 1)
        return (vector * b).sum(-2, keepdim=True)
    return NotImplemented


def _product_of_points(a: Tensor, b: Tensor) -> Tensor:
    """The same, and a product with a matrix as small as those that turn points."""
    if max(a.shape[-1], min(a.shape[-2], b.shape[-1])) > _MOST_OF_POINT:
        return _product(a, b)
    return (a.unsqueeze(-1) * b.unsqueeze(-3)).sum(-2)


def _rrelu(x: Tensor, noise: Tensor, lower: float = 1 / 8, upper: float = 1 / 3, training: bool = False) -> Tensor:
    return NotImplemented if training else torch.nn.functional.leaky_relu(x, (lower + upper) / 2)


# Of operators that PyTorch has no such decomposition of.
_OWN = {
    torch.ops.aten.nll_loss_backward.default: _nll_loss_backward,
    torch.ops.aten.nll_loss2d_backward.default: _nll_loss_backward,
    torch.ops.aten.fmin.default: _fmin,
    torch.ops.aten.fmax.default: _fmax,
    torch.ops.aten.round.decimals: _round_decimals,
    torch.ops.aten.heaviside.default: _heaviside,
    torch.ops.aten.rrelu_with_noise.default: _rrelu,
    torch.ops.aten.bmm.default: _product,
    torch.ops.aten.mm.default: _product,
}
_OF_POINTS = {torch.ops.aten.bmm.default: _product_of_points, torch.ops.aten.mm.default: _product_of_points}


def decompositions_of_neighbours() -> dict[Any, Any]:
    """The same without those of operators that read or write neighbours of elements."""
    every = decompositions().items()
    return {operator: decomposition for operator, decomposition in every if operator not in _SHIFTS}


@functools.cache
def decompositions_but_moves() -> dict[Any, Any]:
    """The same without those of operators that move elements, and with those of their gradients."""
    return {
        operator: decomposition
        for operator, decomposition in decomposition_table.items()
        if operator in decompositions()
        or operator in (torch.ops.aten.select_backward.default, torch.ops.aten.slice_backward.default)
        if operator._schema.name.partition("::")[2] not in MOVES
    } | _OF_POINTS


def spelled(target: Callable[..., Any]) -> str:
    """An operator's name as its author knows it: without the common overloads."""
    return str(target).removesuffix(".default").removesuffix(".Tensor")


def in_words(target: Callable[..., Any]) -> str:
    """The same as a phrase that ends a sentence."""
    if target is torch.ops.aten._local_scalar_dense.default:
        return "a number that Python reads from a tensor, as by item()"
    return f"the operator {spelled(target)}"
