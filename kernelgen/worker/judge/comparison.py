"""Compares the results of a call that was timed with the reference: in float64 or, where that does not fit the memory,
coarsely with the reference in the op's own dtype."""

import gc
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from kernelgen.worker import tensor_comparison
from kernelgen.worker.evaluation import Evaluation, copies, evaluate
from kernelgen.worker.mismatch import MismatchError
from kernelgen.worker.reference_check import Expected

NOT_COMPARED = "its results were not compared with the reference, for which this GPU's memory lacks room"
COARSELY = (
    "its results were compared only coarsely, with the reference in the op's own dtype: in float64 it does not fit "
    "this GPU's memory"
)
# The share of elements that may be wrong by far beside a reference in 16 bits, where one in float32 does not fit: it
# rounds numbers inside, such as a softmax's scores of 70 by a quarter, which turns up to 0.0002 of attention's outputs
# into others. Whoever leaves out a thousandth of the work is faster by a thousandth.
FEW = 1e-3


@dataclass(frozen=True)
class CheckResult:
    """What a check says, each in a sentence: what is wrong, if anything is; what was not looked at closely; and what
    was not looked at at all, so that no gain is believed."""

    fault: str | None = None
    remark: str | None = None
    doubt: str | None = None


@dataclass
class Findings:
    """What the checks of a case said."""

    faults: list[str] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)
    doubts: list[str] = field(default_factory=list)

    def add(self, result: CheckResult) -> None:
        for said, sentence in (
            (self.faults, result.fault),
            (self.remarks, result.remark),
            (self.doubts, result.doubt),
        ):
            said += [sentence] if sentence and sentence not in said else []


def compare_with_reference(timed: Any, inputs: Any, results: list[Tensor], *, coarsely: bool = False) -> CheckResult:
    """What is wrong with the results of a call.

    Args:
        timed: has `op`, `backward`, `drawing` and `hoards`; `inputs`: the `args` and `cotangents` of the call.
        coarsely: only what is wrong by far is a fault.
    """
    compared, doubt = _ComparedCall(timed, inputs, results), None
    checks = [(compared.exactly, None), (compared.roughly, COARSELY)]
    for check, remark in [(compared.roughly, None)] if coarsely else checks:
        try:
            check()
        except MismatchError as wrong:
            return CheckResult(wrong.fault.text)
        except torch.OutOfMemoryError:
            pass
        else:
            return CheckResult(remark=remark, doubt=doubt)
        gc.collect()  # Suppressed exceptions refer to frames, and these to the reference's results.
        held = timed.hoards()
        if held.fault:
            return held
        doubt = doubt or held.doubt
    return CheckResult(doubt=NOT_COMPARED)


class _ComparedCall:
    """The results of a call, beside its reference in several dtypes. The comparisons raise MismatchError, and
    OutOfMemoryError where the reference does not fit the memory."""

    def __init__(self, timed: Any, inputs: Any, results: list[Tensor]) -> None:
        self._timed, self._inputs, self._results = timed, inputs, results
        self._name = "grad" if timed.backward else "output"

    def _expected(self, dtype: torch.dtype | None = None) -> dict[str, Tensor]:
        """By its name in an evaluation, each result that there is."""
        copied = copies(self._inputs.args, dtype), copies(self._inputs.cotangents, dtype)
        evaluation = evaluate(self._timed.op.reference, *copied)
        kind = "gradient" if self._timed.backward else "output"
        named = {key: t for key, t in evaluation.named().items() if t is not None and key.startswith(kind)}
        if len(self._results) != len(named):
            text = f"it returned {len(self._results)} tensors where its reference returns {len(named)}"
            raise MismatchError(self._name, text)
        return named

    def exactly(self) -> None:
        plain, exact = self._expected(), self._expected(torch.float64)
        lost: dict[str, Tensor] | None = None
        for i, (key, result) in enumerate(zip(plain, self._results, strict=True)):
            triple = [result], [plain[key]], [exact[key]]
            try:
                tensor_comparison.compare(f"{self._name} {i}", *triple)
            except MismatchError:
                if lost is None:
                    drawn = copies((self._inputs.args, self._inputs.cotangents), torch.float64)
                    lost = self._timed.op.errors_allowed(*drawn, self._timed.drawing.dtype)
                if key not in lost:
                    raise
                tensor_comparison.compare(f"{self._name} {i}", *triple, lost=[lost[key]])

    def roughly(self) -> None:
        """With the reference in the op's dtype; in 16 bits it may be wrong by far itself, so that one in float32
        decides."""
        plains = [*self._expected().values()]
        try:
            self._compare_coarsely(plains)
        except MismatchError:
            if self._timed.drawing.dtype.itemsize != 2:
                raise
            wide = self._in_float32(plains)
            self._compare_coarsely(wide or plains, 0.0 if wide else FEW)

    def _in_float32(self, plains: list[Tensor]) -> list[Tensor] | None:
        """The reference in float32, rounded as these are; None where it does not fit the memory."""
        try:
            wide = self._expected(torch.float32).values()
            return [ours.to(plain.dtype) for ours, plain in zip(wide, plains, strict=True)]
        except torch.OutOfMemoryError:
            return None

    def _compare_coarsely(self, plains: list[Tensor], few: float = 0.0) -> None:
        for i, (result, plain) in enumerate(zip(self._results, plains, strict=True)):
            tensor_comparison.compare_coarsely(f"{self._name} {i}", result, plain, few=few)


def compare_special_values(timed: Any, inputs: Any, values: str, results: list[Tensor]) -> str | None:
    """A fault if the results of a call on a kind of values are not those that fuzz allows; None, too, where the
    reference refuses such values or does not fit the memory."""
    expected = Expected(timed.op, timed.drawing.dtype, values)
    try:
        plain = expected.add(inputs.args, inputs.cotangents)
    except (MismatchError, torch.OutOfMemoryError):
        return None
    rest = iter(results)
    grads = [None if grad is None else next(rest, None) for grad in plain.grads]
    try:
        expected.compare([Evaluation(plain.outputs, grads) if timed.backward else Evaluation(results, [])])
    except MismatchError as wrong:
        return f"of values of the kind '{values}', {wrong.fault.text}"
    except torch.OutOfMemoryError:
        return None
    return None
