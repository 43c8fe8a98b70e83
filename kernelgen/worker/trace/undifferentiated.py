"""Arguments that PyTorch has no derivative by, such as the weights of a loss: functions are called as if their authors
had detached them, so that what needs no gradient of theirs is traced."""

import inspect
import re
import types
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.fx.experimental.proxy_tensor import get_proxy_mode
from torch.overrides import TorchFunctionMode

from kernelgen.worker.dispatch_mode import DispatchMode
from kernelgen.worker.trace.cost import CALL, TRACE, TRACED_OPERATOR, Cost

_REFUSAL = re.compile(r"The function '(\w+)' is not differentiable with respect to argument '(\w+)'")


# Products of matrices, which refuse tensors of one shape, by the names of their functions.
_PRODUCTS = dict.fromkeys(("matmul", "rmatmul"), "matmul")
_PRODUCTS |= {name: name for name in ("mm", "bmm", "linear", "addmm", "baddbmm", "einsum", "tensordot", "bilinear")}


class ProductError(RuntimeError):
    """A product of matrices that the arguments are no factors of; its text is the operator's name."""


# How many operators PyTorch's functions run, and in a trace: quantile, for one, runs 36.
_operators: dict[tuple[Callable[..., Any], bool], int] = {}


class _Count(DispatchMode):
    """Counts the operators that run while it is entered, but views."""

    def __init__(self) -> None:
        super().__init__()
        self.operators = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.operators += not func.is_view
        return func(*args, **kwargs or {})


class Undifferentiated(TorchFunctionMode):
    """While it is entered, such arguments are constants. What runs is counted as `cost`."""

    def __init__(self, cost: Cost) -> None:
        super().__init__()
        self._cost = cost

    def __enter__(self) -> "Undifferentiated":
        self._cost.spent += CALL + (TRACE if get_proxy_mode() else 0)
        return super().__enter__()

    def __torch_function__(
        self, func: Callable[..., Any], kinds: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        is_traced = get_proxy_mode() is not None
        try:
            result = self._counted(func, args, kwargs, is_traced)
            self._cost.spent += TRACED_OPERATOR * _operators[func, True] if is_traced else 0
            return result
        except RuntimeError as error:
            refusal = _REFUSAL.search(str(error))
            if refusal is None:
                if func.__name__.strip("_") in _PRODUCTS:
                    raise ProductError(_PRODUCTS[func.__name__.strip("_")]) from error
                raise
            args, detached = _detached(func, args, kwargs, *refusal.groups())
            if detached is None:
                raise
            return self.__torch_function__(func, kinds, args, detached)

    def _counted(
        self, func: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any], is_traced: bool
    ) -> Any:
        """The result of a call, which is counted the first time."""
        if (func, is_traced) in _operators:
            return func(*args, **kwargs)
        with _Count() as count:
            result = func(*args, **kwargs)
        _operators[func, is_traced] = max(1, count.operators)
        return result


def _detached(
    func: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any], operator: str, argument: str
) -> tuple[Sequence[Any], Mapping[str, Any] | None]:
    """The arguments of a call with one of them detached; no kwargs if it is none of them."""
    if isinstance(kwargs.get(argument), torch.Tensor):
        return args, {**kwargs, argument: kwargs[argument].detach()}
    packet = getattr(torch.ops.aten, operator, None)
    names = [parameter.name for parameter in packet.default._schema.arguments] if packet is not None else []
    if isinstance(func, types.FunctionType):  # It may take them in another order.
        names = list(inspect.signature(func).parameters)
    place = names.index(argument) if argument in names else len(args)
    if place >= len(args) or not isinstance(args[place], torch.Tensor):
        return args, None
    return [*args[:place], args[place].detach(), *args[place + 1 :]], kwargs
