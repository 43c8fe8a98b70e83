"""The operators of a function that are neither pointwise nor known to operators.py."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from kernelgen.worker.dispatch_mode import DispatchMode
from kernelgen.worker.trace.function import Function
from kernelgen.worker.trace.graph import Sample
from kernelgen.worker.trace.operators import decompositions, in_words, operator_of

# What an author calls to read a number.
_READS_NUMBER = ("item", "tolist", "__bool__", "__float__", "__index__", "__int__")


def unknown_operator(function: Function, sample: Sample, reason: str = "") -> str | None:
    """A phrase for the first operator of the function, as its author knows it, that is neither pointwise nor known, nor
    taken apart into such, or that the `reason` names. A view is named only where nothing else is in the way."""
    callers = _Callers()
    operators = _ForeignOperators(callers, reason)
    with callers, operators:
        function.call(*sample.values.values())
    return next((words for words, is_view in sorted(operators.seen, key=lambda seen: seen[1])), None)


class _Callers(TorchFunctionMode):
    """Knows which of PyTorch's functions the author called last."""

    def __init__(self) -> None:
        super().__init__()
        self.last = ""

    def __torch_function__(
        self, func: Callable[..., Any], kinds: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        self.last = func.__name__
        return func(*args, **kwargs or {})


class _ForeignOperators(DispatchMode):
    """Notes the operators that no kernel can be written in, in words, each with whether it is one for nothing but a
    view."""

    def __init__(self, callers: _Callers, reason: str) -> None:
        super().__init__()
        self._callers, self._reason = callers, reason
        self.seen: list[tuple[str, bool]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if decomposition := decompositions().get(func):
            before = len(self.seen)
            with self:
                result = decomposition(*args, **kwargs or {})
            inner = [is_view for _, is_view in self.seen[before:]]
            del self.seen[before:]
            if result is not NotImplemented:
                self.seen += [(self._in_words(func), all(inner))] if inner and (func.is_view or not all(inner)) else []
                return result
        is_foreign = torch.Tag.pointwise not in func.tags and operator_of(func) is None
        if is_foreign or in_words(func) == self._reason:
            self.seen.append((self._in_words(func), func.is_view))
        return func(*args, **kwargs or {})

    def _in_words(self, func: Any) -> str:
        caller, name = self._callers.last, func._schema.name.partition("::")[2]
        is_read = func is torch.ops.aten._local_scalar_dense.default
        if is_read:  # As of one_hot, which reads the largest class.
            return in_words(func) if caller in _READS_NUMBER else f"the operator {caller}"
        is_same = caller.startswith("__") or caller == "matmul" or caller in name or name in caller
        return in_words(func) if is_same else f"{in_words(func)}, which {caller} runs"
