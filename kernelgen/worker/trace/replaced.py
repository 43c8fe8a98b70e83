"""Functions of PyTorch that are called in place of others while a function is traced."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch.overrides import TorchFunctionMode


class Replaced(TorchFunctionMode):
    """While it is entered, each of PyTorch's functions that `functions` has is the one beside it."""

    def __init__(self, functions: Mapping[Any, Callable[..., Any]]) -> None:
        super().__init__()
        self._functions = functions

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        function = self._functions.get(func, func)
        return function(*args, **kwargs or {})
