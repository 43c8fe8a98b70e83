"""Checks what an op returns beside its values: containers, strides, memory, and what its fakes promise."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from kernelgen.worker.evaluation import blamed_on, copies, significant_strides, tensors
from kernelgen.worker.fuzzed_op import kind
from kernelgen.worker.judge.arena import span
from kernelgen.worker.judge.caller import Caller, CallResult, Region, region_of
from kernelgen.worker.judge.errors import NOT_ASKED_FOR
from kernelgen.worker.mismatch import MismatchError
from kernelgen.worker.op import Op


def order(caller: Caller) -> None:
    """Has the calls of `check` begun, on the first set that was placed."""
    caller.order("contract")


def check(op: Op, caller: Caller, args: tuple[Any, ...]) -> tuple[CallResult, CallResult]:
    """Two calls on the same inputs.

    Raises:
        MismatchError: one returns other containers than the reference, memory that is not its own, or other shapes,
            dtypes or strides than its fakes say.
    """
    plain_args = copies(args)
    with blamed_on("reference"):
        theirs = op.reference(*plain_args)
    (first, second), answer = caller.answer()
    if answer["fake"] is not None:
        raise MismatchError("fake", answer["fake"])
    if first.kind != kind(theirs):
        raise MismatchError("outputs", f"it returns {first.kind}, its reference {kind(theirs)}")
    if len(first.outputs) != len(tensors(theirs)):
        raise MismatchError("outputs", NOT_ASKED_FOR)
    inputs = [caller.region(tensor) for tensor in tensors(args)]
    check_strides(op, args, first.outputs, plain_args, tensors(theirs))
    check_memory(inputs, first.outputs, plain_args, theirs)
    # Of what is not read, nothing is believed that would take more memory to look at than what is.
    largest = max((_end(region) - region.address for region in (*inputs, *first.outputs, *second.outputs)), default=0)
    cotangents = [region_of(facts) for facts in answer["cotangents"]]
    cotangents = [region for region in cotangents if _end(region) - region.address <= largest]
    _check_earlier_results("output", first.outputs, second.outputs, inputs)
    _check_earlier_results("gradient", _own(first.grads, cotangents), _own(second.grads, cotangents), inputs)
    return first, second


def _own(grads: Sequence[Region | None], cotangents: list[Region]) -> list[Region]:
    """Without cotangents that were passed on, which are none of the op's memory."""
    there = [grad for grad in grads if grad is not None]
    return [grad for grad in there if not any(_shares_memory(grad, cotangent) for cotangent in cotangents)]


# ---- Strides --------------------------------------------------------------------------------------------------


def check_strides(op: Op, args: Any, ours: list[Region], plain_args: Any, theirs: list[Tensor]) -> None:
    """Outputs of contiguous inputs are contiguous where the reference's are; and no two elements are one, but in a view
    of an input where the reference returns one, too: of an input whose elements share memory."""
    plain_inputs = [_region(tensor) for tensor in tensors(plain_args)]
    all_contiguous = all(tensor.is_contiguous() for tensor in tensors(args))
    for i, (region, plain) in enumerate(zip(ours, theirs, strict=True)):
        out = region.layout()
        got = f"output {i} of shape {tuple(out.shape)} has strides {out.stride()}"
        is_view = any(_shares_memory(_region(plain), tensor) for tensor in plain_inputs)
        if 0 in significant_strides(out) and 0 not in significant_strides(plain) and not is_view:
            raise MismatchError("strides", f"{got}: elements share memory, and a write to one changes others")
        if op.contiguous and all_contiguous and plain.is_contiguous() and not out.is_contiguous():
            raise MismatchError("strides", f"{got}; the inputs are contiguous, and so is the reference's output")


# ---- Memory ---------------------------------------------------------------------------------------------------


def check_memory(inputs: list[Region], outs: list[Region], plain_args: Any, theirs: Any) -> None:
    """No output lies in the memory of an input or of another output, unless the reference's does."""
    plain_inputs, plains = ([_region(tensor) for tensor in tensors(tree)] for tree in (plain_args, theirs))
    for i, out in enumerate(outs):
        for j, other in enumerate([*inputs, *outs[:i]]):
            if not _shares_memory(out, other):
                continue
            if not _shares_memory(plains[i], [*plain_inputs, *plains[:i]][j]):
                whose = f"input {j}" if j < len(inputs) else f"output {j - len(inputs)}"
                raise MismatchError("memory", f"output {i} lies in the memory of {whose}, the reference's does not")


def _region(tensor: Tensor) -> Region:
    return Region(tensor.data_ptr(), tensor.dtype, tuple(tensor.shape), tuple(tensor.stride()))


def _check_earlier_results(kind: str, first: list[Region], second: list[Region], inputs: list[Region]) -> None:
    """A later call neither writes to an earlier one's results nor returns them again."""
    for i, earlier in enumerate(first):
        if any(_shares_memory(earlier, tensor) for tensor in inputs):
            continue  # As the reference's, or it would have been said.
        if any(_shares_memory(earlier, later) for later in second):
            raise MismatchError("memory", f"{kind} {i} of a call lies in the memory of an earlier call's results")


def _shares_memory(a: Region, b: Region) -> bool:
    """Whether an element of one lies in the memory of an element of the other."""
    begin, end = min(a.address, b.address), max(_end(a), _end(b))
    if _end(a) <= b.address or _end(b) <= a.address:  # Also of tensors without elements.
        return False
    size = a.dtype.itemsize
    if size != b.dtype.itemsize or (a.address - b.address) % size:
        return True
    marks = torch.zeros((end - begin) // size, dtype=torch.bool)
    marks.as_strided(a.shape, a.stride, (a.address - begin) // size).fill_(True)
    return bool(marks.as_strided(b.shape, b.stride, (b.address - begin) // size).any())


def _end(region: Region) -> int:
    return region.address + span(region.shape, region.stride) * region.dtype.itemsize
