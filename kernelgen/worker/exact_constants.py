"""Operators of PyTorch whose kernels have a constant in float32 where the numbers are float64.

They multiply by 1/6 rounded to float32, so their results are 3e-8 of them off: hardsigmoid's gradient on CPUs, and on
GPUs hardswish and hardsigmoid too. An op that is exact would be called wrong by such a reference.
"""

from typing import Any

import torch
from torch import Tensor

from kernelgen.worker.dispatch_mode import DispatchMode


def _hardsigmoid(x: Tensor) -> Tensor:
    return (x + 3).clamp(0, 6) / 6


def _hardswish(x: Tensor) -> Tensor:
    return x * (x + 3).clamp(0, 6) / 6


def _hardsigmoid_backward(grad: Tensor, x: Tensor) -> Tensor:
    return torch.where((x > -3) & (x < 3), grad / 6, 0.0)


_EXACT = {
    torch.ops.aten.hardsigmoid.default: _hardsigmoid,
    torch.ops.aten.hardsigmoid_.default: lambda x: x.copy_(_hardsigmoid(x)),
    torch.ops.aten.hardsigmoid_backward.default: _hardsigmoid_backward,
    torch.ops.aten.hardswish.default: _hardswish,
    torch.ops.aten.hardswish_.default: lambda x: x.copy_(_hardswish(x)),
}


class ExactConstants(DispatchMode):
    """Computes these operators as they are documented, where their numbers are float64."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in _EXACT and args[0].dtype == torch.float64:
            return _EXACT[func](*args)
        return func(*args, **(kwargs or {}))
