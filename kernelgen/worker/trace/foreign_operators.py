"""The operators of a function that are neither pointwise nor known to operators.py."""

from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from kernelgen.worker.trace.function import Function
from kernelgen.worker.trace.graph import Sample
from kernelgen.worker.trace.operators import decompositions, in_words, operator_of


def unknown_operator(function: Function, sample: Sample) -> str | None:
    """A phrase for the first operator of the function, as its author knows it, that is neither pointwise nor known, nor
    taken apart into such. A view is named only where nothing else is in the way."""
    operators = _ForeignOperators()
    with operators:
        function.call(*sample.values.values())
    return next((in_words(func) for func, is_view in sorted(operators.seen, key=lambda seen: seen[1])), None)


class _ForeignOperators(TorchDispatchMode):
    """Notes the operators that no kernel can be written in, each with whether it is one for nothing but a view."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[tuple[Any, bool]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if decomposition := decompositions().get(func):
            before = len(self.seen)
            with self:
                result = decomposition(*args, **kwargs or {})
            inner = [is_view for _, is_view in self.seen[before:]]
            del self.seen[before:]
            if result is not NotImplemented:
                self.seen += [(func, all(inner))] if inner and (func.is_view or not all(inner)) else []
                return result
        if torch.Tag.pointwise not in func.tags and operator_of(func) is None:
            self.seen.append((func, func.is_view))
        return func(*args, **kwargs or {})
