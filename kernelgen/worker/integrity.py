"""Sees to it that what was timed is the op's work, all of it, done when the clock stopped.

`watched` repeats a sample exactly as it is timed, on new values that were put where the old ones lay, behind autograd's
back, at a moment that an op cannot foresee. What it returns is then compared with the reference; where that does not
fit the memory in float64, coarsely with the reference in the op's own dtype, which is said. So these show:

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
from kernelgen.worker.timed_case import Inputs, Subject

# Work left on another stream shows as time that the device still needs when the current stream is through.
_LEFT_S = 50e-6
_LEFT_SHARE = 0.10
_TIMES = 10

NOT_COMPARED = "its results were not compared with the reference, which does not fit this GPU's memory"
COARSELY = (
    "its results were compared only coarsely, with the reference in the op's own dtype: in float64 it does not fit "
    "this GPU's memory"
)


@dataclass(frozen=True)
class Finding:
    """What is wrong, in a sentence, if anything is; and what is to be said of the check itself."""

    fault: str | None = None
    remark: str | None = None


def watched(subject: Subject, name: str) -> Finding:
    """Times one sample, drops the time, and checks its results."""
    indices = subject.take()
    sets = [subject.sets[index] for index in indices]
    stale = [_copies(result) for result in subject.run(name, indices)[1]]
    for inputs in sets:
        inputs.replace(subject.draw())
    args = [reference_check.copies(inputs.args) for inputs in sets]
    storages = [[storage.clone() for storage in inputs.make.storages] for inputs in sets]
    seconds, results = subject.run(name, indices)
    early = [_copies(result) for result in results]
    subject.clock.settle(seconds)
    remark = None
    for inputs, before, result, first, old, given in zip(sets, storages, results, early, stale, args, strict=True):
        if not _same(reference_check.tensors(result), first):
            return Finding("its results changed after it had returned: work was left on another stream or thread")
        if not _same(inputs.make.storages, before):
            return Finding("it wrote to its inputs, or to the memory around them")
        found = _compare(subject, inputs, given, first)
        if found.fault and _same(first, old):
            return Finding(f"it returned what it had for earlier values at the same addresses ({found.fault})")
        if found.fault:
            return found
        remark = remark or found.remark
    return Finding(remark=remark)


def afterwards(subject: Subject, name: str) -> str | None:
    """Checks that take time of their own, once all samples are taken."""
    if problem := _keeps_results(subject, name):
        return problem
    return _leaves_work(subject, name) if isinstance(subject.clock, clock.CudaClock) else None


def _compare(subject: Subject, inputs: Inputs, args: Any, found: list[Tensor]) -> Finding:
    name = "grad" if subject.backward else "output"

    def wanted(dtype: torch.dtype | None = None) -> list[Tensor]:
        given = reference_check.copies(args, dtype), reference_check.copies(inputs.cotangents, dtype)
        evaluation = reference_check.evaluate(subject.op.reference, *given)
        made = [t for t in (evaluation.grads if subject.backward else evaluation.outputs) if t is not None]
        if len(found) != len(made):
            raise reference_check.MismatchError(
                name, f"it returned {len(found)} tensors where its reference returns {len(made)}"
            )
        return made

    def exactly() -> None:
        for i, triple in enumerate(zip(found, wanted(), wanted(torch.float64), strict=True)):
            reference_check.compare(f"{name} {i}", *([tensor] for tensor in triple))

    def coarsely() -> None:
        for i, pair in enumerate(zip(found, wanted(), strict=True)):
            reference_check.compare_coarsely(f"{name} {i}", *pair)

    for check, remark in ((exactly, None), (coarsely, COARSELY)):
        try:
            check()
        except reference_check.MismatchError as wrong:
            return Finding(wrong.fault.text)
        except torch.OutOfMemoryError:  # Which is no fault of the op.
            continue
        return Finding(remark=remark)
    return Finding(remark=NOT_COMPARED)


def _keeps_results(subject: Subject, name: str) -> str | None:
    if subject.graphs:  # A graph's results lie at fixed addresses by design.
        return None
    result = subject.run(name, [0])[1][0]
    before = _copies(result)
    subject.run(name, [1])
    if not _same(reference_check.tensors(result), before):
        return "a later call changed the result of an earlier one: it returns the same memory each time"
    return None


def _leaves_work(subject: Subject, name: str) -> str | None:
    """Whether the device is busy after the stream that was timed is through."""
    stream, waits, calls = torch.cuda.current_stream(), [], []
    for _ in range(_TIMES):
        torch.cuda.synchronize()
        calls.append(subject.run(name, [0])[0])
        stream.synchronize()
        start = time.perf_counter()
        torch.cuda.synchronize()
        waits.append(time.perf_counter() - start)
    left = min(waits)  # Another program on the GPU makes some of them long, and the op's own work every one.
    if left > max(_LEFT_S, _LEFT_SHARE * statistics.median(calls)):
        return f"the GPU worked on for {left * 1e6:.0f} µs after the timed stream was through: work was left elsewhere"
    return None


def _copies(result: Any) -> list[Tensor]:
    return [reference_check.own(tensor) for tensor in reference_check.tensors(result)]


def _same(found: list[Tensor], kept: list[Tensor]) -> bool:
    return len(found) == len(kept) and all(reference_check.same_bits(a, b) for a, b in zip(found, kept, strict=True))
