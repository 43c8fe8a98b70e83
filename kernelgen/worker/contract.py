"""Checks what an op returns beside its values: containers, strides, memory, and what its fakes promise."""

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch._subclasses import FakeTensorMode, fake_tensor
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from kernelgen.worker.inputs import Make
from kernelgen.worker.mismatch import MismatchError
from kernelgen.worker.op import Op
from kernelgen.worker.reference_check import blamed_on, copies, tensors

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


def check(op: Op, make: Make, args: tuple[Any, ...]) -> None:
    """Raises MismatchError where a call returns other containers than the reference, memory that is not its own, or
    other shapes, dtypes or strides than its fakes say."""
    plain_args = copies(args)
    with blamed_on("reference"):
        theirs = op.reference(*plain_args)
    with blamed_on("op"):
        with _FakeChecker():
            ours = op.function(*args)
            grads = _gradients(ours, args)
        later = op.function(*args)
        later_grads = _gradients(later, args)
    _check_containers(ours, theirs)
    _check_strides(op, args, ours, theirs)
    _check_memory(args, ours, plain_args, theirs)
    _check_earlier_results("output", tensors(ours), tensors(later), tensors(args))
    _check_earlier_results("gradient", grads, later_grads, tensors(args))


def _gradients(outputs: Any, args: Any) -> list[Tensor]:
    """The gradients themselves, as the op returned them, of a sum of the outputs."""
    inputs = list({id(tensor): tensor for tensor in tensors(args) if tensor.requires_grad}.values())
    differentiable = [out for out in tensors(outputs) if out.requires_grad]
    if not inputs or not differentiable:
        return []
    ones = [torch.ones_like(out, memory_format=torch.contiguous_format) for out in differentiable]
    grads = torch.autograd.grad(differentiable, inputs, ones, allow_unused=True)
    # A cotangent that is passed on is none of the op's memory.
    return [grad for grad in grads if grad is not None and not any(_shares_memory(grad, one) for one in ones)]


# ---- Containers and strides -----------------------------------------------------------------------------------


def _check_containers(ours: Any, theirs: Any) -> None:
    got, wanted = _kind(ours), _kind(theirs)
    if got != wanted:
        raise MismatchError("outputs", f"it returns {got}, its reference {wanted}")


def _kind(result: Any) -> str:
    """A container and what is in it, in words; a named tuple is a tuple."""
    for kind in (tuple, list):
        if isinstance(result, kind):
            return f"a {kind.__name__} of ({', '.join(map(_kind, result))})"
    if isinstance(result, dict):
        return f"a dict of ({', '.join(f'{key}: {_kind(value)}' for key, value in sorted(result.items()))})"
    return "a tensor" if isinstance(result, Tensor) else f"{type(result).__name__}"


def significant_strides(tensor: Tensor) -> list[int]:
    """The strides of dimensions along which there is somewhere to go."""
    return [stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True) if size > 1 and tensor.numel()]


def _check_strides(op: Op, args: Any, ours: Any, theirs: Any) -> None:
    """Outputs of contiguous inputs are contiguous where the reference's are; and no two elements are one."""
    all_contiguous = all(tensor.is_contiguous() for tensor in tensors(args))
    for i, (out, plain) in enumerate(zip(tensors(ours), tensors(theirs), strict=True)):
        got = f"output {i} of shape {tuple(out.shape)} has strides {out.stride()}"
        if 0 in significant_strides(out) and 0 not in significant_strides(plain):
            raise MismatchError("strides", f"{got}: elements share memory, and a write to one changes others")
        if op.contiguous and all_contiguous and plain.is_contiguous() and not out.is_contiguous():
            raise MismatchError("strides", f"{got}; the inputs are contiguous, and so is the reference's output")


# ---- Memory ---------------------------------------------------------------------------------------------------


def _check_memory(args: Any, ours: Any, plain_args: Any, theirs: Any) -> None:
    """No output lies in the memory of an input or of another output, unless the reference's does."""
    (outs, inputs), (plains, plain_inputs) = map(_both, ((ours, args), (theirs, plain_args)))
    for i, out in enumerate(outs):
        for j, other in enumerate([*inputs, *outs[:i]]):
            if not _shares_memory(out, other):
                continue
            if not _shares_memory(plains[i], [*plain_inputs, *plains[:i]][j]):
                whose = f"input {j}" if j < len(inputs) else f"output {j - len(inputs)}"
                raise MismatchError("memory", f"output {i} lies in the memory of {whose}, the reference's does not")


def _both(pair: tuple[Any, Any]) -> tuple[list[Tensor], list[Tensor]]:
    return tensors(pair[0]), tensors(pair[1])


def _check_earlier_results(kind: str, first: list[Tensor], second: list[Tensor], inputs: list[Tensor]) -> None:
    """A later call neither writes to an earlier one's results nor returns them again."""
    for i, earlier in enumerate(first):
        if any(_shares_memory(earlier, tensor) for tensor in inputs):
            continue  # As the reference's, or it would have been said.
        if any(_shares_memory(earlier, later) for later in second):
            raise MismatchError("memory", f"{kind} {i} of a call lies in the memory of an earlier call's results")


def _shares_memory(a: Tensor, b: Tensor) -> bool:
    """Whether an element of one lies in the memory of an element of the other."""
    if not a.numel() or not b.numel() or a.untyped_storage().data_ptr() != b.untyped_storage().data_ptr():
        return False
    if a.dtype.itemsize != b.dtype.itemsize:
        return True
    elements = a.untyped_storage().nbytes() // a.dtype.itemsize
    marks = torch.zeros(elements, dtype=torch.bool)
    marks.as_strided(a.shape, a.stride(), a.storage_offset()).fill_(True)
    return bool(marks.as_strided(b.shape, b.stride(), b.storage_offset()).any())


# ---- Fakes ----------------------------------------------------------------------------------------------------


class _FakeChecker(TorchDispatchMode):
    """Compares every call of an operator that is not PyTorch's with what its fake says of it."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func.namespace in _PYTORCH:
            return func(*args, **kwargs)
        fakes = _fakes(func, args, kwargs)
        results = func(*args, **kwargs)
        if fakes is not None:
            _compare_with_fakes(func.name().partition("::")[2], tensors(fakes), tensors(results))
        return results


@functools.cache
def _fake_mode() -> FakeTensorMode:
    return FakeTensorMode()


def _fakes(func: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    """What a fake returns; None where there is none, or it cannot know."""
    try:
        mode = _fake_mode()
        fake_args, fake_kwargs = pytree.tree_map_only(Tensor, lambda t: mode.from_tensor(t.detach()), (args, kwargs))
        with mode, torch.no_grad():
            return func(*fake_args, **fake_kwargs)
    except _UNKNOWN:
        return None
    except Exception as error:
        sentence = f"the fake raised {type(error).__name__}: {str(error).partition(chr(10))[0]}"
        raise MismatchError("fake", sentence) from error


def _compare_with_fakes(name: str, fakes: list[Tensor], results: list[Tensor]) -> None:
    if len(fakes) != len(results):
        raise MismatchError("fake", f"{name} returns {len(results)} tensors, its fake {len(fakes)}")
    for i, (fake, real) in enumerate(zip(fakes, results, strict=True)):
        for what, read in (("shape", lambda t: tuple(t.shape)), ("dtype", lambda t: t.dtype)):
            if read(fake) != read(real):
                raise MismatchError("fake", f"result {i} of {name} has {what} {read(real)}, its fake says {read(fake)}")
        if significant_strides(fake) != significant_strides(real):
            sentence = f"result {i} of {name}, of shape {tuple(real.shape)}, has strides {real.stride()}"
            raise MismatchError("fake", f"{sentence}, its fake says {fake.stride()}")
