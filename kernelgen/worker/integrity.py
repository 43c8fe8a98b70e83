"""Checks that the work that was timed is the op's, all of it, done when the clock stopped.

`check_sample` repeats a sample exactly as it is timed, at a moment that an op cannot foresee, on new values that were
put where the old ones lay without autograd's knowledge. The results are then compared with the reference in float64 or,
where that does not fit the memory, coarsely with the reference in the op's own dtype, and a remark says so. So these
show:

- a result kept from an earlier call and looked up by address, or a buffer from then returned in its place;
- calls that skip work when there are many of them;
- work still going on, on another stream or another thread, when the clock stopped;
- inputs that were written to;
- a buffer that every call returns, so that the next call spoils the last one's result.
"""

import statistics
import time
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from kernelgen.worker import clock, reference_check
from kernelgen.worker.timed_case import TimedCase

# Work left on another stream shows as time that the device still needs after the current stream is through.
_LEFT_S = 50e-6
_LEFT_SHARE = 0.10
_TIMES = 10

NOT_COMPARED = "its results were not compared with the reference, which does not fit this GPU's memory"
COARSELY = (
    "its results were compared only coarsely, with the reference in the op's own dtype: in float64 it does not fit "
    "this GPU's memory"
)


@dataclass(frozen=True)
class CheckResult:
    """A sentence that says what is wrong, if anything is; and one about the check itself."""

    fault: str | None = None
    remark: str | None = None


def check_sample(timed: TimedCase, name: str) -> CheckResult:
    """Times one sample, drops the time, and checks its results."""
    indices = timed.take()
    sets = [timed.sets[index] for index in indices]
    stale = [_copies(result) for result in timed.run(name, indices)[1]]
    for inputs in sets:
        inputs.replace(timed.draw())
    args = [reference_check.copies(inputs.args) for inputs in sets]
    storages = [[storage.clone() for storage in inputs.make.storages] for inputs in sets]
    seconds, results = timed.run(name, indices)
    early = [_copies(result) for result in results]
    timed.clock.settle(seconds)
    remark = None
    for inputs, before, result, first, old, copied in zip(sets, storages, results, early, stale, args, strict=True):
        if not _same(reference_check.tensors(result), first):
            return CheckResult("its results changed after it had returned: work was left on another stream or thread")
        if not _same(inputs.make.storages, before):
            return CheckResult("it wrote to its inputs, or to the memory around them")
        compared = compare_with_reference(timed, inputs, first, copied)
        if compared.fault and _same(first, old):
            return CheckResult(f"it returned what it had for earlier values at the same addresses ({compared.fault})")
        if compared.fault:
            return compared
        remark = remark or compared.remark
    return CheckResult(remark=remark)


def check_afterwards(timed: TimedCase, name: str) -> str | None:
    """The checks that need calls of their own, for when all samples are taken."""
    if problem := _keeps_results(timed, name):
        return problem
    return _leaves_work(timed, name) if isinstance(timed.clock, clock.CudaClock) else None


def compare_with_reference(
    timed: Any, inputs: Any, results: list[Tensor], args: Any = None, *, coarsely: bool = False
) -> CheckResult:
    """What is wrong with the results of a call.

    Args:
        timed: has `op` and `backward`; `inputs`: the `args` and `cotangents` of the call.
        args: copies of the arguments from before the call; None: `inputs.args` themselves.
        coarsely: only what is wrong by far is a fault.
    """
    args = inputs.args if args is None else args
    name = "grad" if timed.backward else "output"

    def expected(dtype: torch.dtype | None = None) -> list[Tensor]:
        copied = reference_check.copies(args, dtype), reference_check.copies(inputs.cotangents, dtype)
        evaluation = reference_check.evaluate(timed.op.reference, *copied)
        tensors = [t for t in (evaluation.grads if timed.backward else evaluation.outputs) if t is not None]
        if len(results) != len(tensors):
            raise reference_check.MismatchError(
                name, f"it returned {len(results)} tensors where its reference returns {len(tensors)}"
            )
        return tensors

    def exactly() -> None:
        for i, triple in enumerate(zip(results, expected(), expected(torch.float64), strict=True)):
            reference_check.compare(f"{name} {i}", *([tensor] for tensor in triple))

    def roughly() -> None:
        for i, pair in enumerate(zip(results, expected(), strict=True)):
            reference_check.compare_coarsely(f"{name} {i}", *pair)

    for check, remark in ((roughly, None),) if coarsely else ((exactly, None), (roughly, COARSELY)):
        try:
            check()
        except reference_check.MismatchError as wrong:
            return CheckResult(wrong.fault.text)
        except torch.OutOfMemoryError:  # Which is no fault of the op.
            continue
        return CheckResult(remark=remark)
    return CheckResult(remark=NOT_COMPARED)


def _keeps_results(timed: TimedCase, name: str) -> str | None:
    if timed.graphs:  # A graph's results lie at fixed addresses by design.
        return None
    result = timed.run(name, [0])[1][0]
    before = _copies(result)
    timed.run(name, [1])
    if not _same(reference_check.tensors(result), before):
        return "a later call changed the result of an earlier one: it returns the same memory each time"
    return None


def _leaves_work(timed: TimedCase, name: str) -> str | None:
    """A fault if the device is busy after the stream that was timed is through."""
    stream, waits, calls = torch.cuda.current_stream(), [], []
    for _ in range(_TIMES):
        torch.cuda.synchronize()
        calls.append(timed.run(name, [0])[0])
        stream.synchronize()
        start = time.perf_counter()
        torch.cuda.synchronize()
        waits.append(time.perf_counter() - start)
    left = min(waits)  # Another program on the GPU makes some of the waits long, the op's own work all of them.
    if left > max(_LEFT_S, _LEFT_SHARE * statistics.median(calls)):
        return f"the GPU worked on for {left * 1e6:.0f} µs after the timed stream was through: work was left elsewhere"
    return None


def _copies(result: Any) -> list[Tensor]:
    return [reference_check.own(tensor) for tensor in reference_check.tensors(result)]


def _same(first: list[Tensor], second: list[Tensor]) -> bool:
    same_count = len(first) == len(second)
    return same_count and all(reference_check.same_bits(a, b) for a, b in zip(first, second, strict=True))
