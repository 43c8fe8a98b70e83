"""What ops with known shapes have in common: checks in Python, and a gradient that is an operator of its own.

The checks say what `arguments.h` says in C++, for calls without data and for as long as the reference answers.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import wraps
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_flatten, tree_leaves, tree_map_only, tree_unflatten

from . import _library


class Check:
    """Refuses arguments of an operator, each with a RuntimeError that names it. Tensors that are None, or lists of
    tensors, are looked at item by item."""

    def __init__(self, op: str, /, **tensors: Any) -> None:
        """All tensors are on the device of the first."""
        self.op, self.tensors = op, {name: _items(value) for name, value in tensors.items()}
        (self.first, (first,)), *_ = self.tensors.items()
        for name, tensor in self._each(*self.tensors):
            # A meta tensor is what a fake is called with: a mixture of both is refused there.
            if tensor.device != first.device:
                self._refuse(name, f"is on {tensor.device}", f"{first.device} like {self.first}")

    def dtype(self, name: str, *accepted: torch.dtype) -> None:
        for _, tensor in self._each(name):
            if tensor.dtype not in accepted:
                self._refuse(name, f"has dtype {_text(tensor.dtype)}", ", ".join(map(_text, accepted)))

    def same_dtype(self, name: str, other: str) -> None:
        (like,) = self.tensors[other]
        for _, tensor in self._each(name):
            if tensor.dtype != like.dtype:
                self._refuse(name, f"has dtype {_text(tensor.dtype)}", f"{_text(like.dtype)} like {other}")

    def sizes(self, name: str, dimensions: int, shape: str) -> Sequence[int]:
        """The sizes of a tensor that has so many dimensions."""
        for _, tensor in self._each(name):
            if tensor.ndim != dimensions:
                self._refuse(name, f"has shape {tuple(tensor.shape)}", f"{dimensions} dimensions, {shape}")
        return self.tensors[name][0].shape if self.tensors[name] else ()

    def trailing(self, name: str, dimensions: int, shape: str) -> Sequence[int]:
        """The sizes of a tensor that has so many dimensions or more."""
        for _, tensor in self._each(name):
            if tensor.ndim < dimensions:
                self._refuse(name, f"has shape {tuple(tensor.shape)}", f"{dimensions} dimensions or more, {shape}")
        return self.tensors[name][0].shape if self.tensors[name] else ()

    def shape(self, name: str, expected: Sequence[int], text: str) -> None:
        for _, tensor in self._each(name):
            if tensor.ndim != len(expected):
                self._refuse(name, f"has shape {tuple(tensor.shape)}", f"{tuple(expected)}, which is {text}")
            for size, other in zip(tensor.shape, expected):
                got, takes = f"has shape {tuple(tensor.shape)}", f"{tuple(expected)}, which is {text}"
                torch._check(size == other, lambda got=got, takes=takes: self._message(name, got, takes))

    def size(self, name: str, value: int) -> int:
        """An argument that is a size."""
        torch._check(value >= 0, lambda: self._message(name, f"is {value}", "0 or more"))
        return value

    def multiple(self, of: str, name: str, value: int, divisor: int) -> None:
        is_one = divisor != 0 and value % divisor == 0
        torch._check(is_one, lambda: self._message(of, f"has {name} = {value}", f"a multiple of {divisor}"))

    def at_least(self, name: str, value: int, bound: str, least: int) -> None:
        torch._check(value >= least, lambda: self._message(name, f"is {value}", f"{bound} or more, which is {least}"))

    def at_most(self, name: str, value: int, bound: str, most: int) -> None:
        torch._check(value <= most, lambda: self._message(name, f"is {value}", f"{bound} or less, which is {most}"))

    def _each(self, *names: str) -> list[tuple[str, Tensor]]:
        return [(name, tensor) for name in names for tensor in self.tensors[name]]

    def _refuse(self, name: str, got: str, takes: str) -> None:
        raise RuntimeError(self._message(name, got, takes))

    def _message(self, name: str, got: str, takes: str) -> str:
        return f"{self.op}: {name} {got}; it takes {takes}"


def _items(value: Any) -> list[Tensor]:
    """The tensors of an argument or a result: none of None."""
    items = value if isinstance(value, (list, tuple)) else [value]
    return [item for item in items if item is not None]


def _text(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def checked(fake: Callable[..., Any], reference: Callable[..., Any]) -> Callable[..., Any]:
    """The reference, which refuses first what the op does not take, and returns what the fake says.

    Other results would be wrong without a word under torch.compile, which believes the fake.
    """

    @wraps(reference)
    def checked_reference(*args: Any, **kwargs: Any) -> Any:
        expected = fake(*args, **kwargs)
        results = reference(*args, **kwargs)
        for result, other in zip(_items(tree_leaves(results)), _items(tree_leaves(expected))):
            if (result.shape, result.dtype) != (other.shape, other.dtype):
                got, says = (f"shape {tuple(t.shape)} and dtype {_text(t.dtype)}" for t in (result, other))
                raise RuntimeError(f"{reference.__name__}: the reference returns {got}; the op's shapes say {says}")
        # A kernel's results have no history; those of a gradient that can be differentiated again do.
        return tree_map_only(Tensor, Tensor.detach, results)

    return checked_reference


def reference_backward(name: str, reference: Callable[..., Any], gradients: Sequence[int]) -> Callable[..., Any]:
    """NAME_backward in plain PyTorch: the reference's gradient for the arguments at the positions `gradients`.

    It takes the gradients of the results of floating-point numbers, the op's arguments, and where there are several
    gradients a bool for each. One that is not asked for is a tensor of shape (0,).
    """

    @wraps(reference)
    def backward(*args: Any) -> Any:
        arguments = _library.operator_of(name)._schema.arguments
        flags = _flags(args, gradients)
        count = len(args) - len(arguments) - (len(flags) if len(gradients) > 1 else 0)
        inputs = list(args[count : count + len(arguments)])
        wanted = [i for i, needed in zip(gradients, flags) if needed and inputs[i] is not None]
        with torch.enable_grad(), _autograd():
            for i in wanted:
                # A view, so that one tensor passed as two arguments has two gradients.
                own = inputs[i].requires_grad
                inputs[i] = inputs[i].view_as(inputs[i]) if own else inputs[i].detach().requires_grad_()
            by_name = {argument.name: value for argument, value in zip(arguments, inputs)}
            outputs = [out for out in _several(reference(**by_name)) if out.is_floating_point()]
            pairs = [(out, grad) for out, grad in zip(outputs, args[:count]) if out.requires_grad]
            computed = torch.autograd.grad(
                [out for out, _ in pairs],
                [inputs[i] for i in wanted],
                [grad for _, grad in pairs],
                create_graph=True,
                materialize_grads=True,
                allow_unused=True,
            )
        by_place = dict(zip(wanted, computed))
        return _bare([by_place[i] if i in by_place else args[0].new_empty(0) for i in gradients])

    return backward


@contextmanager
def _autograd() -> Iterator[None]:
    """PyTorch's autograd inside a kernel, where the dispatcher may have left it behind."""
    keys = (torch._C.DispatchKey.AutogradFunctionality, torch._C.DispatchKey.ADInplaceOrView)
    before = [torch._C._dispatch_tls_is_dispatch_key_excluded(key) for key in keys]
    for key in keys:
        torch._C._dispatch_tls_set_dispatch_key_excluded(key, False)
    try:
        yield
    finally:
        for key, excluded in zip(keys, before):
            torch._C._dispatch_tls_set_dispatch_key_excluded(key, excluded)


def register_backward(name: str, gradients: Sequence[int]) -> None:
    """The gradient of an op is the operator NAME_backward, for the arguments at the positions `gradients`.

    A call that needs the gradient of another argument raises NotImplementedError in its backward.
    """
    operator, arguments = _library.operator_of(f"{name}_backward"), _library.operator_of(name)._schema.arguments

    def setup_context(ctx: Any, inputs: Any, output: Any, keyword_only_inputs: dict[str, Any] | None = None) -> None:
        outputs = _several(output)
        ctx.mark_non_differentiable(*(out for out in outputs if not out.is_floating_point()))
        ctx.differentiable = [i for i, out in enumerate(outputs) if out.is_floating_point()]
        leaves, ctx.structure = tree_flatten((*inputs, *(keyword_only_inputs or {}).values()))
        ctx.save_for_backward(*(leaf if isinstance(leaf, Tensor) else None for leaf in leaves))
        ctx.others = [None if isinstance(leaf, Tensor) else leaf for leaf in leaves]

    def backward(ctx: Any, *grads: Tensor) -> tuple[Any, ...]:
        for i, needs in enumerate(ctx.needs_input_grad):
            if i not in gradients and any(tree_leaves(needs)):
                raise NotImplementedError(f"{name}: no gradient of {arguments[i].name} is implemented; detach it")
        needed = [ctx.needs_input_grad[i] for i in gradients]
        by_argument: list[Any] = [None] * len(ctx.needs_input_grad)
        if any(needed):
            leaves = [other if saved is None else saved for saved, other in zip(ctx.saved_tensors, ctx.others)]
            flags = needed if len(needed) > 1 else []
            inputs = tree_unflatten(leaves, ctx.structure)
            computed = _several(operator(*(grads[i] for i in ctx.differentiable), *inputs, *flags))
            for i, grad, wanted in zip(gradients, computed, needed):
                by_argument[i] = grad if wanted else None
        return tuple(by_argument)

    _library.register_autograd(name, backward, setup_context)


def register_vmap(name: str, batched: Sequence[int], gradients: Sequence[int] = ()) -> None:
    """A batch is one more leading dimension of the tensors at the positions `batched`; one of another is looped over.

    `gradients` are those of a backward operator, whose last arguments say which are asked for.
    """
    operator = _library.operator_of(name)

    def rule(info: Any, in_dims: tuple[Any, ...], *args: Any) -> Any:
        asked_for = _flags(args, gradients) if gradients else None
        if all(dim is None or i in batched for i, dim in enumerate(in_dims)):
            wide = [
                _library.batch_first(info, arg, dim) if i in batched else arg
                for i, (arg, dim) in enumerate(zip(args, in_dims))
            ]
            results = operator(*wide)
        else:
            rows = [
                operator(*(arg if dim is None else arg.select(dim, i) for arg, dim in zip(args, in_dims)))
                for i in range(info.batch_size)
            ]
            results = _bare([torch.stack(parts) for parts in zip(*map(_several, rows))])
            asked_for = None
        dims = tuple(0 if asked_for is None or asked_for[i] else None for i in range(len(_several(results))))
        return results, (dims[0] if isinstance(results, Tensor) else dims)

    _library.register_vmap(name, rule)


def _flags(args: Sequence[Any], gradients: Sequence[int]) -> Sequence[bool]:
    """Which gradients a call of a backward operator asks for."""
    return args[-len(gradients) :] if len(gradients) > 1 else (True,)


def _several(results: Any) -> Sequence[Tensor]:
    return (results,) if isinstance(results, Tensor) else results


def _bare(results: Sequence[Tensor]) -> Any:
    """A tuple of results, or the only one."""
    return results[0] if len(results) == 1 else tuple(results)
