"""References in the place of operators: what they return, as an operator has to return it."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Sequence
from functools import wraps
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree
from torch.utils._pytree import tree_leaves, tree_map


def as_operator(reference: Callable[..., Any]) -> Callable[..., Any]:
    """The reference with results that an operator may return: contiguous tensors that share no memory with others.

    A view, which a reference may return, is copied. Under torch.autocast it runs in the dtypes that it is given.
    """

    def operator(*args: Any, **kwargs: Any) -> Any:
        seen = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]

        def own(value: Any) -> Any:
            if not isinstance(value, Tensor):
                return value
            result = value.contiguous()
            if any(torch._C._is_alias_of(result, other) for other in seen):
                result = result.clone()
            seen.append(result)
            return result

        with without_autocast():
            return tree_map(own, reference(*args, **kwargs))

    return operator


def own_results(reference: Callable[..., Any], positions: Sequence[int]) -> Callable[..., Any]:
    """The reference with the results at these positions alone: the others are arguments that it wrote to."""

    @wraps(reference)
    def operator(*args: Any, **kwargs: Any) -> Any:
        results = reference(*args, **kwargs)
        own = [results[i] for i in positions]
        return tuple(own) if len(own) > 1 else own[0] if own else None

    return operator


def as_tuple(reference: Callable[..., Any], class_: type) -> Callable[..., Any]:
    """The reference with a tuple in place of the class that it returns, a NamedTuple or a dataclass.

    What looks into results, such as vmap and export, is told of the class.
    """
    name = f"{class_.__module__}.{class_.__qualname__}"
    if dataclasses.is_dataclass(class_):
        fields = [field.name for field in dataclasses.fields(class_)]
        _pytree.register_dataclass(class_, serialized_type_name=name)
    else:
        fields = class_._fields
        _pytree._register_namedtuple(class_, serialized_type_name=name)

    @wraps(reference)
    def operator(*args: Any, **kwargs: Any) -> Any:
        result = reference(*args, **kwargs)
        values = tuple(getattr(result, field) for field in fields)
        return values if len(values) > 1 else values[0]

    return operator


@contextlib.contextmanager
def without_autocast() -> Iterator[None]:
    """A context in which tensors keep their dtypes."""
    with contextlib.ExitStack() as stack:
        for device in ("cpu", "cuda"):
            if torch.is_autocast_enabled(device):
                stack.enter_context(torch.autocast(device, enabled=False))
        yield


def gradients_of(
    function: Callable[[list[Any]], list[Any]],
    leaves: list[Any],
    needed: Sequence[bool],
    grads: Sequence[Tensor | None],
) -> list[Tensor | None]:
    """The gradient of each leaf, from those of the function's results: by autograd, if the leaves take part in it.

    They do not where a transform of torch.func hides that they do, or its level has ended, as when the function that
    vjp returns is called: then vjp's own level makes them.
    """
    if all(leaf.requires_grad for leaf, is_needed in zip(leaves, needed) if is_needed):
        return _by_autograd(function, leaves, grads)
    places = [i for i, is_needed in enumerate(needed) if is_needed]
    differentiable: list[int] = []

    def of_needed(*values: Tensor) -> tuple[Tensor, ...]:
        replaced = dict(zip(places, values))
        outputs = function([replaced.get(i, leaf) for i, leaf in enumerate(leaves)])
        pairs = enumerate(zip(outputs, grads))
        differentiable[:] = [i for i, (output, grad) in pairs if grad is not None and not _is_whole(output)]
        return tuple(outputs[i] for i in differentiable)

    _, vjp = torch.func.vjp(of_needed, *(leaves[i] for i in places))
    computed = dict(zip(places, vjp(tuple(grads[i] for i in differentiable))))
    return [computed.get(i) for i in range(len(leaves))]


def _is_whole(output: Any) -> bool:
    return not isinstance(output, Tensor) or not (output.is_floating_point() or output.is_complex())


def _by_autograd(
    function: Callable[[list[Any]], list[Any]], leaves: list[Any], grads: Sequence[Tensor | None]
) -> list[Tensor | None]:
    with torch.enable_grad():
        outputs = function(leaves)
    wanted = [leaf for leaf in leaves if isinstance(leaf, Tensor) and leaf.requires_grad]
    pairs = [
        (output, grad)
        for output, grad in zip(outputs, grads)
        if isinstance(output, Tensor) and output.requires_grad and grad is not None
    ]
    computed = torch.autograd.grad(
        [output for output, _ in pairs],
        wanted,
        [grad for _, grad in pairs],
        allow_unused=True,
        create_graph=torch.is_grad_enabled(),
    )
    by_leaf = {id(leaf): grad for leaf, grad in zip(wanted, computed)}
    return [by_leaf.get(id(leaf)) for leaf in leaves]
