"""What sees PyTorch's operators as they run, in a process that may never compile anything."""

import sys
from collections.abc import Callable
from typing import Any

from torch.utils._python_dispatch import TorchDispatchMode


class DispatchMode(TorchDispatchMode):
    """A TorchDispatchMode that torch.compile leaves alone, as PyTorch's own is, and that does not import the compiler
    for it: that takes 0.9 s, of every worker's start."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # `__init_subclass__` does.

    def __init_subclass__(cls, **arguments: Any) -> None:
        super().__init_subclass__(**arguments)
        if "__torch_dispatch__" in cls.__dict__:
            cls.__torch_dispatch__ = _not_compiled(cls.__dict__["__torch_dispatch__"])


def _not_compiled(dispatch: Callable[..., Any]) -> Callable[..., Any]:
    """The same, which torch.compile skips wherever something has loaded it."""
    skipped: Callable[..., Any] | None = None

    def call(*arguments: Any) -> Any:
        nonlocal skipped
        if skipped is None:
            dynamo = sys.modules.get("torch._dynamo")
            if not hasattr(dynamo, "disable"):  # It may be about to be loaded.
                return dispatch(*arguments)
            skipped = dynamo.disable(dispatch)
        return skipped(*arguments)

    return call
