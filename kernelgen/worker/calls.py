"""Special ways to call an op, and what has to hold in each: a case's `call`."""

from collections.abc import Callable

import torch
from torch import Tensor

from kernelgen.worker import bias
from kernelgen.worker.fuzzed_case import FuzzedCase
from kernelgen.worker.mismatch import MismatchError
from kernelgen.worker.reference_check import Evaluation, Expected, agree, copies, evaluate, same_bits, tensors

# What is counted, or kept, may be wrong after a thousand calls only.
_REPEATS = 1100
_THREADS, _CALLS_OF_A_THREAD = 4, 25
# More threads than cores, and numbers that divide no size evenly.
_THREAD_COUNTS = (1, 2, 3, 7)
# Results of so many calls are in memory at once.
_BATCH = 100


def check(call: str, case: FuzzedCase) -> None:
    """Calls an op in this way.

    Raises:
        MismatchError: something is wrong then.
    """
    _CHECKS[call](case)


def is_for(call: str, dtype: torch.dtype) -> bool:
    """Whether a way to call is of use in a dtype: autocast leaves the others, and rounds to 16 bits."""
    return {"autocast": dtype == torch.float32, "averaged": dtype.itemsize == 2}.get(call, True)


def on_device(device: str) -> tuple[str, ...]:
    """The special ways to call an op on a device. The emulated GPU runs one call at a time, and slowly."""
    if device == "emulated":
        return ("autocast",)
    return tuple(call for call in CALLS[1:] if device == "cpu" or call != "thread counts")


def _plain(case: FuzzedCase) -> None:
    pass  # The other checks of a case have done it.


def _repeated(case: FuzzedCase) -> None:
    case.caller.place((case.args, []))
    for mode in ("no_grad", "gradients"):
        first = None
        for begin in range(1, _REPEATS + 1, _BATCH):
            for i, result in enumerate(case.caller.call("repeat", times=_BATCH, mode=mode), begin):
                first = first or result.values
                sentence = f"call {i} of the same inputs gave another result than the first"
                agree(case.repeatable, "repeated", sentence, first, result.values)


def _thread_counts(case: FuzzedCase) -> None:
    """Right with any number of threads; of the same bits, if the reference's do not depend on their number either."""
    cotangents, expected = case.cotangents(), case.expected()
    case.caller.place((case.args, cotangents))
    plain, usual = expected.add(case.args, cotangents), torch.get_num_threads()
    results, depends = [], False
    try:
        for count in _THREAD_COUNTS:
            results.append(case.caller.evaluate(threads=count))
            torch.set_num_threads(count)
            again = evaluate(case.op.reference, copies(case.args), copies(cotangents))
            depends |= not _same(plain, again)
    finally:
        torch.set_num_threads(usual)
    for count, result in zip(_THREAD_COUNTS, results, strict=True):
        _compare(expected, result, f"with {count} threads")
        if not depends and case.repeatable is True:
            sentence = f"with {count} threads it gave another result than with 1"
            agree(True, "thread counts", sentence, results[0], result)


def _several_threads(case: FuzzedCase) -> None:
    """Several threads call it at once, on CUDA each on a stream of its own."""
    drawn = []
    for _ in range(_THREADS):
        case.make.redraw()
        drawn.append(copies(case.args))
    case.caller.place(*((args, []) for args in drawn))
    results = case.caller.call("several_threads", times=_CALLS_OF_A_THREAD)
    alone, together = results[:_THREADS], results[_THREADS:]
    for i, result in enumerate(together):
        sentence = f"while {_THREADS} threads called it at once, it gave another result than alone"
        first = alone[i // _CALLS_OF_A_THREAD].values
        agree(case.repeatable, "several threads", sentence, first, result.values)


def _autocast(case: FuzzedCase) -> None:
    """In float32 or in bfloat16, as it pleases; on inputs that bfloat16 represents."""
    low, dtype = torch.bfloat16, case.make.dtype
    rounded = copies(copies(case.args, low), dtype)
    cotangents = [cotangent.to(low).to(cotangent.dtype) for cotangent in case.cotangents()]
    expected = case.expected(low)
    expected.add(copies(rounded, low), copies(cotangents, low))
    case.caller.place((rounded, cotangents))
    result = case.caller.evaluate(autocast=torch.device(case.make.device).type)
    for name, value in result.named().items():
        if value is not None and value.is_floating_point() and value.dtype not in (dtype, low):
            raise MismatchError("autocast", f"under autocast, {name} is {value.dtype}")
    _compare(expected, _cast_like(result, expected.plain), "under autocast")


def _cast_like(result: Evaluation, plain: Evaluation) -> Evaluation:
    """The result in the reference's dtypes."""

    def cast(value: Tensor | None, like: Tensor | None) -> Tensor | None:
        return value if value is None or like is None or not value.is_floating_point() else value.to(like.dtype)

    outputs = [cast(*pair) for pair in zip(result.outputs, plain.outputs, strict=False)]
    return Evaluation(outputs, [cast(*pair) for pair in zip(result.grads, plain.grads, strict=False)])


def _compiled(case: FuzzedCase) -> None:
    """Traced by torch.compile, forward and backward; without its last step, which would need a compiler."""
    cotangents, expected = case.cotangents(), case.expected()
    case.caller.place((case.args, cotangents))
    case.caller.order("evaluate", number=0, compiled=True)
    expected.add(case.args, cotangents)
    result = case.caller.answer()[0][0].values
    _compare(expected, result, "compiled by torch.compile")


def _compare(expected: Expected, result: Evaluation, when: str) -> None:
    try:
        expected.compare([result])
    except MismatchError as wrong:
        raise MismatchError(wrong.fault.check, f"{when}, {wrong.fault.text}") from None


def _same(first: Evaluation, second: Evaluation) -> bool:
    pairs = zip(tensors(first.outputs + first.grads), tensors(second.outputs + second.grads), strict=True)
    return all(same_bits(a, b) for a, b in pairs)


_CHECKS: dict[str, Callable[..., None]] = {
    "plain": _plain,
    "repeated": _repeated,
    "averaged": bias.check,
    "thread counts": _thread_counts,
    "several threads": _several_threads,
    "autocast": _autocast,
    "compiled": _compiled,
}
CALLS = tuple(_CHECKS)
