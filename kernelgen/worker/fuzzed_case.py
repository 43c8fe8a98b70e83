"""A case of an op under fuzz, and the checks of every case.

The judge computes what the reference says while the op's process runs.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from kernelgen.worker import contract, state
from kernelgen.worker.evaluation import Evaluation, blamed_on, copies, same_bits, tensors
from kernelgen.worker.inputs import Make
from kernelgen.worker.judge.caller import Caller, CallResult
from kernelgen.worker.mismatch import MismatchError
from kernelgen.worker.op import Op
from kernelgen.worker.reference_check import Expected
from kernelgen.worker.tensor_comparison import STALE, agree, check_presence, compare_coarsely

# The largest error of a few elements is luck, that of a thousand is not: small tensors are drawn several times.
_ENOUGH = 1000
_MOST_DRAWS = 25
# Inputs with more elements are drawn twice, not three times: for the time that it takes.
_LARGE = 2**17
# With so many elements an index needs more than 32 bits, and copies in float64 fit no GPU.
HUGE = 2**31

# How a draw is called beside the call with gradients. An odd number of calls in all, now and then: what skips every
# other call meets new values, too.
_MODES = (["no_grad"], ["inference_mode", "no_grad"])


@dataclass
class FuzzedCase:
    """A case; `args` are the judge's own, drawn by `make` at these sizes."""

    op: Op
    make: Make
    args: tuple[Any, ...]
    caller: Caller
    repeatable: bool | float
    sizes: Mapping[str, int] = field(default_factory=dict)

    def expected(self, dtype: torch.dtype | None = None) -> Expected:
        return Expected(self.op, dtype or self.make.dtype, self.make.values, self.make.layout)

    def cotangents(self) -> list[Tensor]:
        """A gradient for each floating-point output."""
        return [self.make.cotangent(out) for out in self.outputs() if out.is_floating_point()]

    def outputs(self) -> list[Tensor]:
        """The reference's."""
        with blamed_on("reference"):
            return tensors(self.op.reference(*copies(self.args)))


class _Cotangents:
    """Those of a draw: as drawn; all elements of each one number, as those of a sum's; and transposed."""

    def __init__(self, drawn: list[Tensor]) -> None:
        self._drawn = drawn
        self._numbers = [tensor.new_zeros(()) for tensor in drawn]
        self._transposed = [torch.empty_like(t.transpose(0, -1).contiguous()).transpose(0, -1) for t in drawn]
        expanded = [number.expand(tensor.shape) for number, tensor in zip(self._numbers, drawn, strict=True)]
        self.variants = [drawn, expanded, self._transposed]

    def renew(self) -> None:
        for tensor, number, transposed in zip(self._drawn, self._numbers, self._transposed, strict=True):
            if tensor.numel():
                number.copy_(tensor.flatten()[0])
            transposed.copy_(tensor)

    @staticmethod
    def variant_of(draw: int) -> int:
        return {2: 1, 3: 2}.get(draw % 4, 0)


def check(case: FuzzedCase) -> dict[str, float]:
    """The checks of every case; returns the largest errors by result.

    The second draw changes the values in place, as a training loop does; the third has other tensors at the same
    addresses.

    Raises:
        MismatchError: something is wrong.
    """
    outputs = case.outputs()
    cotangents = _Cotangents([case.make.cotangent(out) for out in outputs if out.is_floating_point()])
    cotangents.renew()
    blank = [(out.dtype, tuple(out.shape)) for out in outputs]
    case.caller.place(*((case.args, variant) for variant in cotangents.variants))
    expected = case.expected()
    results: list[Evaluation] = []
    inferences: list[list[Evaluation]] = []
    for i in range(_count_of_draws(case)):
        if i:
            case.make.redraw()
            cotangents.renew()
            case.caller.hand_over()
        result, *others = _draw(case, i, cotangents.variants, blank, expected)
        results.append(result)
        inferences.append(others)
    contract.order(case.caller)  # It runs while the results above are compared.
    errors = expected.compare(results)
    expected.check_zero_signs(results)
    _check_inferences(case, results, inferences)
    first, second = contract.check(case.op, case.caller, case.args)
    _check_repeat(case, first, second)
    return errors


def _count_of_draws(case: FuzzedCase) -> int:
    elements = max((tensor.numel() for tensor in tensors(case.args)), default=0)
    count = min(_MOST_DRAWS, _ENOUGH // max(1, elements) + 1)
    return max(3 if elements <= _LARGE else 2, count)


def _draw(
    case: FuzzedCase, number: int, variants: list[list[Tensor]], blank: list[Any], expected: Expected
) -> list[Evaluation]:
    """The results on a draw, with gradients and without."""
    variant, modes = _Cotangents.variant_of(number), _MODES[number % len(_MODES)]
    how = {"modes": modes, "reborn": number == 2, "renewed": number > 0, "blank": blank}
    case.caller.order("draw", number=variant, **how)
    expected.add(case.args, variants[variant])
    results, answer = case.caller.answer()
    state.check(answer["state"], case.make.device, case.op.reference, case.args)
    if case.caller.were_changed():
        raise MismatchError("inputs", "it wrote to its inputs, or to the memory around them")
    return [result.values for result in results]


def _check_inferences(case: FuzzedCase, results: list[Evaluation], inferences: list[list[Evaluation]]) -> None:
    for i, (result, others) in enumerate(zip(results, inferences, strict=True)):
        for inference in others:
            stale = i and all(map(same_bits, inference.outputs, inferences[i - 1][0].outputs))
            sentence = "without gradients it gave another result" + (STALE if stale else "")
            agree(case.repeatable, "inference", sentence, inference, result)


def _check_repeat(case: FuzzedCase, first: CallResult, second: CallResult) -> None:
    """The same inputs again, and on CUDA on another stream as well, give the same results."""
    sentence = "the same inputs gave another result the second time"
    agree(case.repeatable, "repeat", sentence, first.values, second.values)
    if torch.device(case.make.device).type == "cuda":
        (late,) = case.caller.call("on_a_side_stream")
        sentence = "on another stream than the default one it gave another result"
        agree(case.repeatable, "stream", sentence, first.values, late.values)


def check_huge(case: FuzzedCase) -> None:
    """The outputs alone, coarsely against the reference in the same dtype: a wrong index makes them wrong by far."""
    case.caller.place((case.args, []))
    case.caller.order("forward")
    with torch.no_grad(), blamed_on("reference"):
        plains = tensors(case.op.reference(*case.args))
    ((result,), _) = case.caller.answer()
    check_presence(result.values, Evaluation(plains, []))
    for i, (ours, plain) in enumerate(zip(result.values.outputs, plains, strict=True)):
        compare_coarsely(f"output {i}", ours, plain, ": is an index kept in 32 bits?")
