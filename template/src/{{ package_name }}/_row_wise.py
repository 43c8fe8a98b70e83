"""The hooks of an op that computes each row by itself, a row being the last dimension.

As of ops that compute each element by itself (see _pointwise.py), with results that may be a number for each row, and
tensors that may be a vector of the last dimension.
"""

from collections.abc import Callable, Sequence
from typing import Any

from torch import Tensor

from . import _library
from ._pointwise import PointwiseOp, bare, several


def register(
    name: str,
    reference: Callable[..., Any],
    *,
    results: Sequence[str] = ("rows",),
    gradients: Sequence[int] = (),
    same_as: Sequence[int | None] = (),
    vectors: bool = False,
) -> None:
    """Registers all hooks of an op.

    Args:
        results: what each result is: `rows`, `numbers` (one for each row), or `kept`, those with a last dimension of 1.
        gradients: the positions of the arguments that have a gradient.
        same_as: for each of these the place of the result whose gradient it is, unchanged; None where it is another.
        vectors: whether the reference takes vectors alone where each row could have its own.
    """
    RowOp(name, reference, results, gradients, same_as, vectors).register(name)


class RowOp(PointwiseOp):
    def __init__(
        self,
        name: str,
        reference: Callable[..., Any],
        results: Sequence[str],
        gradients: Sequence[int],
        same_as: Sequence[int | None],
        vectors: bool,
    ) -> None:
        super().__init__(name, reference, [None] * len(results), gradients, same_as)
        self.kinds, self.vectors = results, vectors

    def register(self, name: str) -> None:
        _library.register_fake(name, self.fake)
        _library.register_autocast(name, _library.widest_dtype)
        _library.register_sharding(name, self.sharding)
        if not self.vectors:
            _library.register_vmap(name, self.vmap)
        if not self.gradients:
            _library.refuse_autograd(name)
            return
        backward = f"{name}_backward"
        _library.register_autograd(name, self.backward, self.setup_context)
        _library.register_fake(backward, self.fake_backward)
        _library.register_sharding(backward, self.sharding_backward)
        _library.register_reference_autograd(backward, self.reference_backward)
        if not self.vectors:
            _library.register_vmap(backward, self.vmap_backward)

    def fake(self, *args: Any) -> Any:
        like = args[self.tensors[0]]
        shapes = {"rows": like.shape, "numbers": like.shape[:-1], "kept": (*like.shape[:-1], 1)}
        return bare(like.new_empty(shapes[kind]) for kind in self.kinds)

    def vmap(self, info: Any, in_dims: tuple[int | None, ...], *args: Any) -> Any:
        results = self.forward_operator(*_with_batch(info, in_dims, args, self.tensors[0]))
        return results, (0 if isinstance(results, Tensor) else (0,) * len(results))

    def vmap_backward(self, info: Any, in_dims: tuple[int | None, ...], *args: Any) -> Any:
        grads = several(self.backward_operator(*_with_batch(info, in_dims, args, len(self.kinds))))
        return bare(self.of_batch(args, in_dims, grads)), bare(0 if needed else None for needed in self.needed(args))

    def of_batch(self, args: Sequence[Any], in_dims: Sequence[int | None], grads: Sequence[Tensor]) -> list[Tensor]:
        """Gradients of tensors with a batch dimension: a vector was repeated in all rows of its part of the batch."""
        shaped = []
        for i, grad, needed in zip(self.gradients, grads, self.needed(args)):
            place = self.place_in_backward(i)
            is_vector = args[place].ndim - (in_dims[place] is not None) == 1
            shaped.append(grad.flatten(1, -2).sum(1) if needed and is_vector and grad.ndim > 2 else grad)
        return shaped

    def sharding(self, *args: Any) -> list[tuple[list[Any], list[Any]]]:
        return [([layout] * len(self.kinds), layouts) for layout, layouts in self._layouts(args, args[self.tensors[0]])]

    def sharding_backward(self, *args: Any) -> list[tuple[list[Any], list[Any]]]:
        return self.gradient_rules(args, self._layouts(args, args[len(self.kinds)]))

    def _layouts(self, args: Sequence[Any], rows: Any) -> list[tuple[Any, list[Any]]]:
        """Rows may be sharded in any way; each is on one device, and vectors are replicated."""
        from torch.distributed.tensor import Replicate, Shard

        def layout_of(arg: Any, layout: Any) -> Any:
            if not hasattr(arg, "shape"):
                return None
            return layout if rows.shape[:-1] in (arg.shape, arg.shape[:-1]) else Replicate()

        every = (Replicate(), *map(Shard, range(len(rows.shape) - 1)))
        return [(layout, [layout_of(arg, layout) for arg in args]) for layout in every]


def _with_batch(info: Any, in_dims: Sequence[int | None], args: Sequence[Any], first: int) -> list[Any]:
    """The arguments with the batch as one more dimension, before all others; vectors as rows that are all the same."""
    rows = _library.batch_first(info, args[first], in_dims[first]).shape
    batched = []
    for arg, dim in zip(args, in_dims):
        if isinstance(arg, Tensor):
            arg = _library.batch_first(info, arg, dim)
            if arg.ndim == 2 and len(rows) > 2 and arg.shape[-1] == rows[-1] and arg.shape != rows[:-1]:
                arg = arg.reshape(rows[0], *[1] * (len(rows) - 2), rows[-1])
            arg = arg.expand(rows) if arg.ndim == len(rows) and arg.shape[-1] == rows[-1] else arg
        batched.append(arg)
    return batched
