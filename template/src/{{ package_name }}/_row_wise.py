"""The hooks of an op that computes each row by itself, a row being one or several dimensions: mostly the last.

As of ops that compute each element by itself (see _pointwise.py), with results that may be a number for each row, and
tensors that may have a number for each row, or for each element of a row.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from . import _library
from ._pointwise import PointwiseOp, bare, part_shapes, several

Rows = Callable[[int], Iterable[int]] | str


def last_dimension(rank: int) -> Iterable[int]:
    return (-1,)


def register(
    name: str,
    reference: Callable[..., Any],
    *,
    results: Sequence[str] = ("rows",),
    gradients: Sequence[int] = (),
    reads: Sequence[int] = (),
    same_as: Sequence[int | None] = (),
    vectors: bool = False,
    rows: Rows = last_dimension,
    spread: Mapping[int, Sequence[int]] | None = None,
    planes: bool = False,
    parts: Sequence[int] = (),
    joined: Sequence[int] = (),
    composed: bool = False,
    once: bool = False,
    constants: Sequence[int] = (),
    wide: bool = False,
) -> None:
    """Registers all hooks of an op.

    Args:
        results: what each result is: `rows`, `numbers` (one for each row), `kept`, numbers with dimensions of 1, and
            `places` and `kept places`, numbers that are integers, and `total`, one number of all rows; `rows of int8`,
            of uint8 or of float8 are codes, `numbers of bool` truth values, and those `of float32` are so whatever the
            tensors are. Those that are `saved`, of the dtype of sums, are for the backward operator alone: they come
            last, and reference has none of them.
        gradients: the positions of the arguments that have a gradient.
        reads: the places of the results that the backward operator reads.
        same_as: for each of these the place, among the results that have a gradient, of the one whose gradient it is,
            unchanged; None where it is another.
        vectors: whether the reference takes vectors alone where each row could have its own.
        rows: the dimensions of a row, of a tensor of so many; or the name of the argument that says which it is, or of
            the tensor that has as many.
        spread: of the arguments at these positions, which dimensions of the first tensor they have, from its end: they
            are repeated along the others.
        planes: values depend on where an element lies along the last two dimensions.
        parts: into how many parts of one size the last dimension of each tensor is cut, where some are; a row is as
            long as a part.
        joined: of how many parts each result is joined, where some are.
        composed: the gradient is PyTorch's of the reference.
        once: PyTorch has no gradient of that gradient.
        constants: the places of results that are held constant: they have no gradient.
        wide: the reference computes in float32 whatever the tensors are, and adds up gradients so, too.
    """
    op = RowOp(name, reference, results, gradients, same_as, vectors or bool(parts) or bool(spread), rows)
    op.composed, op.once, op.reads, op.constants, op.wide = composed, once, reads, constants, wide
    op.spread, op.planes = spread or {}, planes
    op.parts, op.joined = parts, joined or [1] * len(results)
    op.register(name)


def _dtype_of(kind: str) -> torch.dtype | None:
    """The dtype of a result; None for that of the arguments."""
    name = kind.partition(" of ")[2]
    return getattr(torch, name) if name else None


class RowOp(PointwiseOp):
    """The hooks of an op that reduces rows; see `register`."""

    spread: Mapping[int, Sequence[int]] = {}
    planes = False

    def __init__(
        self,
        name: str,
        reference: Callable[..., Any],
        results: Sequence[str],
        gradients: Sequence[int],
        same_as: Sequence[int | None],
        vectors: bool,
        rows: Rows,
    ) -> None:
        dtypes = [torch.int64 if "places" in kind else _dtype_of(kind) for kind in results]
        super().__init__(name, reference, dtypes, gradients, same_as)
        self.kinds = [kind.partition(" of ")[0].removeprefix("saved ") for kind in results]
        self.saved = [i for i, kind in enumerate(results) if kind.startswith("saved ")]
        self.differentiable = [i for i in self.differentiable if i not in self.saved]
        self.vectors, self.rows = vectors, rows
        # Whether a batch of tensors is no larger tensor of rows.
        self.is_of_one_tensor = rows is not last_dimension or vectors or "total" in self.kinds

    def register(self, name: str) -> None:
        _library.register_fake(name, self.fake)
        _library.register_autocast(name, _library.widest_dtype)
        _library.register_sharding(name, self.sharding)
        _library.register_vmap(name, self.vmap)
        if self.composed:
            _library.register_reference_autograd(name, self.reference)
            return
        if not self.gradients:
            _library.refuse_autograd(name, constant=self.is_constant)
            return
        backward = f"{name}_backward"
        _library.register_autograd(name, self.backward, self.setup_context)
        _library.register_fake(backward, self.fake_backward)
        _library.register_sharding(backward, self.sharding_backward)
        self.register_double_backward(backward)
        _library.register_vmap(backward, self.vmap_backward)

    def dims(self, args: Sequence[Any], rank: int, operator: Any = None) -> set[int]:
        """The dimensions of a row in a call of the op, or of its backward."""
        if isinstance(self.rows, str):
            arguments = (operator or self.forward_operator)._schema.arguments
            place = next(i for i, argument in enumerate(arguments) if argument.name == self.rows)
            # PyTorch leaves out what is the default.
            argument = args[place] if place < len(args) else arguments[place].default_value
            if hasattr(argument, "shape"):
                return set(range(rank - len(argument.shape), rank))
            # An integer that torch.compile would leave open becomes that of this graph.
            return {int(argument) % rank}
        return {dim % rank for dim in self.rows(rank)}

    def call_backward(self, tensors: Sequence[Tensor], others: Sequence[Any]) -> Sequence[Tensor]:
        """Of rows of float32 the gradient is of float32, and so are all tensors of the backward operator then."""
        if ("rows", torch.float32) in zip(self.kinds, self.results):
            return self.call_wide_backward(tensors, others)
        return super().call_backward(tensors, others)

    def adds_up_afterwards(self, tensors: Sequence[Tensor], others: Sequence[Any]) -> bool:
        flags = self.needed((*tensors, *others))
        return any(need and i in self.spread for i, need in zip(self.gradients, flags))

    def fake(self, *args: Any) -> Any:
        like = args[self.tensors[0]]
        dims = self.dims(args, like.ndim)
        numbers = [size for dim, size in enumerate(like.shape) if dim not in dims]
        kept = [1 if dim in dims else size for dim, size in enumerate(like.shape)]
        shapes = {"rows": like.shape, "numbers": numbers, "kept": kept, "places": numbers, "kept places": kept}
        shapes["total"] = ()
        dtypes = [_library.sum_dtype(like) if i in self.saved else dtype for i, dtype in enumerate(self.results)]
        if not self.parts:
            return bare(like.new_empty(shapes[kind], dtype=dtype) for kind, dtype in zip(self.kinds, dtypes))
        (*rows, columns), *_ = part_shapes([like], self.parts[:1])
        of_parts = [
            (*rows, columns * count) if kind == "rows" else shapes[kind] for kind, count in zip(self.kinds, self.joined)
        ]
        return bare(like.new_empty(shape, dtype=dtype) for shape, dtype in zip(of_parts, dtypes))

    def vmap(self, info: Any, in_dims: tuple[int | None, ...], *args: Any) -> Any:
        if self.is_of_one_tensor:
            results = bare(_each_of_batch(self.forward_operator, info, in_dims, args))
        else:
            results = self.forward_operator(*_with_batch(info, in_dims, args, self.tensors[0]))
        return results, (0 if isinstance(results, Tensor) else (0,) * len(results))

    def vmap_backward(self, info: Any, in_dims: tuple[int | None, ...], *args: Any) -> Any:
        out_dims = bare(0 if needed else None for needed in self.needed(args))
        if self.is_of_one_tensor:
            return bare(_each_of_batch(self.backward_operator, info, in_dims, args)), out_dims
        kept = [place for place, i in enumerate(self.differentiable) if self.kinds[i] == "kept"]
        grads = several(self.backward_operator(*_with_batch(info, in_dims, args, self.given, kept)))
        return bare(self.of_batch(args, in_dims, grads)), out_dims

    def of_batch(self, args: Sequence[Any], in_dims: Sequence[int | None], grads: Sequence[Tensor]) -> list[Tensor]:
        """Gradients of tensors with a batch dimension: some were repeated in the rows of their part of the batch."""
        shaped = []
        for i, grad, needed in zip(self.gradients, grads, self.needed(args)):
            place = self.place_in_backward(i)
            shape, dim = list(args[place].shape), in_dims[place]
            if dim is not None:
                del shape[dim]
            if needed and list(grad.shape[1:]) != shape:
                repeated = [1] * (grad.ndim - 1 - len(shape))
                grad = grad.sum_to_size(grad.shape[0], *repeated, *shape).reshape(grad.shape[0], *shape)
            shaped.append(grad)
        return shaped

    def sharding(self, *args: Any) -> list[tuple[list[Any], list[Any]]]:
        rows = args[self.tensors[0]]
        dims = self.dims(args, len(rows.shape))
        rules = []
        for dim, layouts in self._layouts(args, rows, dims, self.spread):
            kept, numbers = _layout(dim), _layout_of_numbers(dim, dims)
            results = [numbers if kind in ("numbers", "places") else kept for kind in self.kinds]
            rules.append((results, layouts))
        return rules

    def sharding_backward(self, *args: Any) -> list[tuple[list[Any], list[Any]]]:
        rows = args[self.given]
        dims = self.dims(args, len(rows.shape), self.backward_operator)
        spread = {self.place_in_backward(i): own for i, own in self.spread.items()}
        every = [(_layout(dim), layouts) for dim, layouts in self._layouts(args, rows, dims, spread)]
        return self.gradient_rules(args, every)

    def _layouts(
        self, args: Sequence[Any], rows: Any, dims: set[int], spread: Mapping[int, Sequence[int]]
    ) -> list[tuple[int | None, list[Any]]]:
        """Rows may be sharded in any way; each is on one device, and vectors are replicated. The rows of a plane stay
        together where it matters which of them one is."""
        rank = len(rows.shape)
        numbers = tuple(size for dim, size in enumerate(rows.shape) if dim not in dims)
        whole = {*dims, rank - 2} if self.planes else dims

        def layout_of(place: int, arg: Any, dim: int | None) -> Any:
            if not hasattr(arg, "shape"):
                return None
            if place in spread:
                own = [of + rank for of in spread[place]]
                return _layout(own.index(dim) if dim in own else None)
            if len(arg.shape) < rank and tuple(arg.shape) == numbers:
                return _layout_of_numbers(dim, dims)
            own_dim = None if dim is None else dim - (rank - len(arg.shape))
            is_whole = own_dim is not None and own_dim >= 0 and arg.shape[own_dim] == rows.shape[dim]
            return _layout(own_dim if is_whole else None)

        every = (None, *(dim for dim in range(rank) if dim not in whole and "total" not in self.kinds))
        return [(dim, [layout_of(place, arg, dim) for place, arg in enumerate(args)]) for dim in every]


def row_size(shape: Sequence[int], dims: Iterable[int]) -> int:
    """The elements of a row; 1 where there are none."""
    return max(1, math.prod(shape[dim] for dim in dims))


def _layout(dim: int | None) -> Any:
    from torch.distributed.tensor import Replicate, Shard

    return Replicate() if dim is None else Shard(dim)


def _layout_of_numbers(dim: int | None, dims: set[int]) -> Any:
    """The same without the dimensions of a row."""
    return _layout(dim if dim is None else dim - sum(of_row < dim for of_row in dims))


def _each_of_batch(operator: Any, info: Any, in_dims: Sequence[int | None], args: Sequence[Any]) -> list[Tensor]:
    """The results of a call for each member of a batch, whose dimension is the first in them."""
    calls = []
    for i in range(info.batch_size):
        own = [arg if dim is None else arg.select(dim, i) for arg, dim in zip(args, in_dims)]
        calls.append(several(operator(*own)))
    return [torch.stack(results) for results in zip(*calls)]


def _with_batch(
    info: Any, in_dims: Sequence[int | None], args: Sequence[Any], first: int, kept: Sequence[int] = ()
) -> list[Any]:
    """The arguments with the batch as one more dimension, before all others; vectors as rows that are all the same.

    Those at the places `kept` are numbers with dimensions of 1, and stay so.
    """
    rows = _library.batch_first(info, args[first], in_dims[first]).shape
    batched = []
    for place, (arg, dim) in enumerate(zip(args, in_dims)):
        if isinstance(arg, Tensor):
            arg = _library.batch_first(info, arg, dim)
            if arg.ndim < len(rows) and arg.shape != rows[:-1]:
                arg = arg.reshape(rows[0], *[1] * (len(rows) - arg.ndim), *arg.shape[1:])
            arg = arg.expand(rows) if arg.ndim == len(rows) and place not in kept else arg
        batched.append(arg)
    return batched
