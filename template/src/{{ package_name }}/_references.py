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
