"""Calls an op or its reference, with gradients, and keeps what it returns."""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from kernelgen.errors import LabError
from kernelgen.worker.mismatch import MismatchError, NotWrittenError


@dataclass(frozen=True)
class Evaluation:
    """Outputs and gradients of a call, in memory of their own; None for an input without a gradient."""

    outputs: list[Tensor]
    grads: list[Tensor | None]

    def named(self) -> dict[str, Tensor | None]:
        outputs = {f"output {i}": value for i, value in enumerate(self.outputs)}
        return outputs | {f"gradient {i}": value for i, value in enumerate(self.grads)}


def call(
    function: Callable[..., Any], args: Sequence[Any], cotangents: Sequence[Tensor] = ()
) -> tuple[Any, list[Tensor | None]]:
    """The result of a function, and the gradients of its inputs: None for one that no output depends on.

    There is a cotangent for each floating-point output; by default they are ones, without memory of their own.
    """
    result = function(*args)
    inputs = list({id(t): t for t in tensors(args) if t.requires_grad}.values())
    if not inputs or not torch.is_grad_enabled():
        return result, []
    floating = [out for out in tensors(result) if out.is_floating_point()]
    cotangents = cotangents or [torch.ones((), device=o.device, dtype=o.dtype).expand_as(o) for o in floating]
    pairs = [(out, grad) for out, grad in zip(floating, cotangents, strict=False) if out.requires_grad]
    if not pairs:
        return result, [None] * len(inputs)
    differentiable, weights = [out for out, _ in pairs], [grad.to(out.dtype) for out, grad in pairs]
    return result, list(torch.autograd.grad(differentiable, inputs, weights, allow_unused=True))


def evaluate(function: Callable[..., Any], args: Sequence[Any], cotangents: Sequence[Tensor] = ()) -> Evaluation:
    """As `call`; the outputs and gradients in memory of their own."""
    result, grads = call(function, args, cotangents)
    return Evaluation([own(out) for out in tensors(result)], [None if grad is None else own(grad) for grad in grads])


def ones_like(tensor: Tensor) -> Tensor:
    """Ones, contiguous."""
    return torch.ones_like(tensor, memory_format=torch.contiguous_format)


def significant_strides(tensor: Tensor) -> list[int]:
    """The strides of dimensions along which there is somewhere to go."""
    return [stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True) if size > 1 and tensor.numel()]


def own(tensor: Tensor) -> Tensor:
    """A copy that later calls cannot change."""
    return tensor.detach().clone(memory_format=torch.contiguous_format)


def tensors(tree: Any) -> list[Tensor]:
    return [leaf for leaf in pytree.tree_leaves(tree) if isinstance(leaf, Tensor)]


def copies(args: Any, dtype: torch.dtype | None = None) -> Any:
    """Contiguous copies, floating-point tensors in `dtype`; a tensor that occurs twice has one copy."""
    of_id: dict[int, Tensor] = {}

    def copy(tensor: Tensor) -> Tensor:
        if id(tensor) not in of_id:
            cast = dtype if dtype and tensor.is_floating_point() else tensor.dtype
            of_id[id(tensor)] = own(tensor).to(cast).requires_grad_(tensor.requires_grad)
        return of_id[id(tensor)]

    return pytree.tree_map_only(Tensor, copy, args)


@contextlib.contextmanager
def blamed_on(whom: str) -> Iterator[None]:
    """Turns exceptions into faults of the reference or of `inputs`; what is not written yet is no fault."""
    try:
        yield
    except (MismatchError, LabError):
        raise
    except NotImplementedError as error:
        if "not written yet" in str(error):
            raise NotWrittenError(str(error)) from None
        raise MismatchError(whom, _raised(whom, error)) from error
    except Exception as error:
        from kernelgen.worker import protocol

        if protocol.is_fatal(error) or isinstance(error, torch.OutOfMemoryError):
            raise
        raise MismatchError(whom, _raised(whom, error)) from error


def _raised(whom: str, error: Exception) -> str:
    subject = "the reference" if whom == "reference" else f"`{whom}` of its lab.py"
    return f"{subject} raised {type(error).__name__}: {str(error).partition(chr(10))[0]}"


def same_bits(a: Tensor, b: Tensor) -> bool:
    """Equal to the last bit; NaN equals itself."""
    a, b = (tensor.detach().contiguous().flatten() for tensor in (a, b))
    return a.dtype == b.dtype and torch.equal(a.view(torch.uint8), b.view(torch.uint8))
