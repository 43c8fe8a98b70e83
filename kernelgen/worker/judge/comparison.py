"""Compares the results of a call that was timed with the reference: in float64 or, where that does not fit the memory,
coarsely with the reference in the op's own dtype."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from kernelgen.worker import tensor_comparison
from kernelgen.worker.evaluation import Evaluation, copies, evaluate
from kernelgen.worker.mismatch import MismatchError
from kernelgen.worker.reference_check import Expected

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


def compare_with_reference(timed: Any, inputs: Any, results: list[Tensor], *, coarsely: bool = False) -> CheckResult:
    """What is wrong with the results of a call.

    Args:
        timed: has `op`, `backward` and `hoards`; `inputs`: the `args` and `cotangents` of the call.
        coarsely: only what is wrong by far is a fault.
    """
    name = "grad" if timed.backward else "output"

    def expected(dtype: torch.dtype | None = None) -> dict[str, Tensor]:
        """By its name in an evaluation, each result that there is."""
        copied = copies(inputs.args, dtype), copies(inputs.cotangents, dtype)
        evaluation = evaluate(timed.op.reference, *copied)
        kind = "gradient" if timed.backward else "output"
        named = {key: t for key, t in evaluation.named().items() if t is not None and key.startswith(kind)}
        if len(results) != len(named):
            raise MismatchError(name, f"it returned {len(results)} tensors where its reference returns {len(named)}")
        return named

    def exactly() -> None:
        plain, exact = expected(), expected(torch.float64)
        lost: dict[str, Tensor] | None = None
        for i, (key, result) in enumerate(zip(plain, results, strict=True)):
            triple = [result], [plain[key]], [exact[key]]
            try:
                tensor_comparison.compare(f"{name} {i}", *triple)
            except MismatchError:
                if lost is None:
                    drawn = copies((inputs.args, inputs.cotangents), torch.float64)
                    lost = timed.op.errors_allowed(*drawn, timed.drawing.dtype)
                if key not in lost:
                    raise
                tensor_comparison.compare(f"{name} {i}", *triple, lost=[lost[key]])

    def roughly() -> None:
        for i, (result, plain) in enumerate(zip(results, expected().values(), strict=True)):
            tensor_comparison.compare_coarsely(f"{name} {i}", result, plain)

    for check, remark in ((roughly, None),) if coarsely else ((exactly, None), (roughly, COARSELY)):
        try:
            check()
        except MismatchError as wrong:
            return CheckResult(wrong.fault.text)
        except torch.OutOfMemoryError:
            if fault := timed.hoards():
                return CheckResult(fault)
            continue
        return CheckResult(remark=remark)
    return CheckResult(remark=NOT_COMPARED)


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
