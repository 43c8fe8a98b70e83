"""Compares an op's operators with their fakes, in the op's process."""

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch._subclasses import FakeTensorMode, fake_tensor
from torch.fx.experimental.symbolic_shapes import ShapeEnv
from torch.utils import _pytree as pytree

from kernelgen.worker.dispatch_mode import DispatchMode
from kernelgen.worker.evaluation import significant_strides, tensors

# PyTorch's own operators, whose fakes are not the op's.
_PYTORCH = {"aten", "prim", "prims", "c10d", "_c10d_functional", "inductor", "profiler", "higher_order"}
# A fake that says that it cannot know, or none at all.
_UNKNOWN = (
    fake_tensor.UnsupportedOperatorException,
    fake_tensor.DynamicOutputShapeException,
    fake_tensor.DataDependentOutputException,
    fake_tensor.UnsupportedFakeTensorException,
    NotImplementedError,
)


class FakeChecker(DispatchMode):
    """Compares every call of an operator that is not PyTorch's with what its fake says of it; `fault` is a sentence.

    Args:
        symbolic: the fake sees symbols in the place of sizes, as when torch.compile meets a second size.
    """

    def __init__(self, *, symbolic: bool = False) -> None:
        super().__init__()
        self.fault: str | None = None
        self._symbolic = symbolic

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func.namespace in _PYTORCH:
            return func(*args, **kwargs)
        fakes, fault = _fakes(func, args, kwargs, self._symbolic)
        results = func(*args, **kwargs)
        if fakes is not None:
            fault = _difference(func.name().partition("::")[2], tensors(fakes), tensors(results))
        self.fault = self.fault or fault
        return results


@functools.cache
def _fake_mode() -> FakeTensorMode:
    return FakeTensorMode()


def _fakes(func: Callable[..., Any], args: Any, kwargs: Any, symbolic: bool) -> tuple[Any, str | None]:
    """What a fake returns, None where there is none, or it cannot know; and a sentence if it raises."""
    try:
        mode = FakeTensorMode(shape_env=ShapeEnv()) if symbolic else _fake_mode()

        def fake(tensor: Tensor) -> Tensor:
            return mode.from_tensor(tensor.detach(), static_shapes=not symbolic)

        fake_args, fake_kwargs = pytree.tree_map_only(Tensor, fake, (args, kwargs))
        with mode, torch.no_grad():
            return func(*fake_args, **fake_kwargs), None
    except _UNKNOWN:
        return None, None
    except Exception as error:
        return None, f"the fake raised {type(error).__name__}: {str(error).partition(chr(10))[0]}"


def _difference(name: str, fakes: list[Tensor], results: list[Tensor]) -> str | None:
    if len(fakes) != len(results):
        return f"{name} returns {len(results)} tensors, its fake {len(fakes)}"
    for i, (fake, real) in enumerate(zip(fakes, results, strict=True)):
        for what, read in (("shape", lambda t: tuple(t.shape)), ("dtype", lambda t: t.dtype)):
            if read(fake) != read(real):
                return f"result {i} of {name} has {what} {read(real)}, its fake says {read(fake)}"
        if significant_strides(fake) != significant_strides(real):
            sentence = f"result {i} of {name}, of shape {tuple(real.shape)}, has strides {real.stride()}"
            return f"{sentence}, its fake says {fake.stride()}"
    return None
