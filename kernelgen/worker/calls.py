"""Special ways to call an op, and what has to hold in each: a case's `call`."""

import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor

from kernelgen.worker import bias
from kernelgen.worker.inputs import Make
from kernelgen.worker.mismatch import MismatchError
from kernelgen.worker.op import Op
from kernelgen.worker.reference_check import (
    Evaluation,
    Expected,
    agree,
    blamed_on,
    copies,
    cotangents_of,
    evaluate,
    same_bits,
    tensors,
)

# What is counted, or kept, may be wrong after a thousand calls only.
_REPEATS = 1100
_THREADS, _CALLS_OF_A_THREAD = 4, 25
# More threads than cores, and numbers that divide no size evenly.
_THREAD_COUNTS = (1, 2, 3, 7)
_SWITCH_S = 1e-5


def check(call: str, op: Op, make: Make, args: tuple[Any, ...], repeatable: bool | float) -> None:
    """Calls an op in this way.

    Raises:
        MismatchError: something is wrong then.
    """
    _CHECKS[call](op, make, args, repeatable)


def is_for(call: str, dtype: torch.dtype) -> bool:
    """Whether a way to call is of use in a dtype: autocast leaves the others, and rounds to 16 bits."""
    return {"autocast": dtype == torch.float32, "averaged": dtype.itemsize == 2}.get(call, True)


def on_device(device: str) -> tuple[str, ...]:
    """The special ways to call an op on a device. The emulated GPU runs one call at a time, and slowly."""
    if device == "emulated":
        return ("autocast",)
    return tuple(call for call in CALLS[1:] if device == "cpu" or call != "thread counts")


def _plain(op: Op, make: Make, args: tuple[Any, ...], repeatable: bool | float) -> None:
    pass  # The other checks of a case have done it.


def _repeated(op: Op, make: Make, args: tuple[Any, ...], repeatable: bool | float) -> None:
    with blamed_on("op"):
        for context in (torch.no_grad(), nullcontext()):
            with context:
                first = evaluate(op.function, args)
                for i in range(2, _REPEATS + 1):
                    sentence = f"call {i} of the same inputs gave another result than the first"
                    agree(repeatable, "repeated", sentence, first, evaluate(op.function, args))


def _thread_counts(op: Op, make: Make, args: tuple[Any, ...], repeatable: bool | float) -> None:
    """Right with any number of threads; of the same bits, if the reference's do not depend on their number either."""
    cotangents = cotangents_of(op, make, args)
    expected = Expected(op, make.dtype, make.values)
    plain, usual = expected.add(args, cotangents), torch.get_num_threads()
    results, depends = [], False
    try:
        for count in _THREAD_COUNTS:
            torch.set_num_threads(count)
            with blamed_on("op"):
                results.append(evaluate(op.function, args, cotangents))
            again = evaluate(op.reference, copies(args), copies(cotangents))
            depends |= not _same(plain, again)
    finally:
        torch.set_num_threads(usual)
    for count, result in zip(_THREAD_COUNTS, results, strict=True):
        _compare(expected, result, f"with {count} threads")
        if not depends and repeatable is True:
            sentence = f"with {count} threads it gave another result than with 1"
            agree(True, "thread counts", sentence, results[0], result)


def _several_threads(op: Op, make: Make, args: tuple[Any, ...], repeatable: bool | float) -> None:
    """Several threads call it at once, on CUDA each on a stream of its own."""
    drawn = []
    for _ in range(_THREADS):
        make.redraw()
        drawn.append(copies(args))
    interval = sys.getswitchinterval()
    with blamed_on("op"):
        alone = [evaluate(op.function, own_args) for own_args in drawn]
        try:
            sys.setswitchinterval(_SWITCH_S)
            with ThreadPoolExecutor(_THREADS) as pool:
                calls = [pool.submit(_call_often, op, make, own_args) for own_args in drawn]
                results = [call.result() for call in calls]
        finally:
            sys.setswitchinterval(interval)
    for first, others in zip(alone, results, strict=True):
        for other in others:
            sentence = f"while {_THREADS} threads called it at once, it gave another result than alone"
            agree(repeatable, "several threads", sentence, first, other)


def _call_often(op: Op, make: Make, args: tuple[Any, ...]) -> list[Evaluation]:
    on_cuda = torch.device(make.device).type == "cuda"
    with torch.cuda.stream(torch.cuda.Stream()) if on_cuda else nullcontext():
        results = [evaluate(op.function, args) for _ in range(_CALLS_OF_A_THREAD)]
        if on_cuda:
            torch.cuda.current_stream().synchronize()
    return results


def _autocast(op: Op, make: Make, args: tuple[Any, ...], repeatable: bool | float) -> None:
    """In float32 or in bfloat16, as it pleases; on inputs that bfloat16 represents."""
    low = torch.bfloat16
    rounded = copies(copies(args, low), make.dtype)
    cotangents = [cotangent.to(low).to(cotangent.dtype) for cotangent in cotangents_of(op, make, args)]
    expected = Expected(op, low, make.values)
    expected.add(copies(rounded, low), copies(cotangents, low))
    with blamed_on("op"), torch.autocast(torch.device(make.device).type, dtype=low):
        result = evaluate(op.function, rounded, cotangents)
    for name, value in result.named().items():
        if value is not None and value.is_floating_point() and value.dtype not in (make.dtype, low):
            raise MismatchError("autocast", f"under autocast, {name} is {value.dtype}")
    _compare(expected, _cast_like(result, expected.plain), "under autocast")


def _cast_like(result: Evaluation, plain: Evaluation) -> Evaluation:
    """The result in the reference's dtypes."""

    def cast(value: Tensor | None, like: Tensor | None) -> Tensor | None:
        return value if value is None or like is None or not value.is_floating_point() else value.to(like.dtype)

    outputs = [cast(*pair) for pair in zip(result.outputs, plain.outputs, strict=False)]
    return Evaluation(outputs, [cast(*pair) for pair in zip(result.grads, plain.grads, strict=False)])


def _compiled(op: Op, make: Make, args: tuple[Any, ...], repeatable: bool | float) -> None:
    """Traced by torch.compile, forward and backward; without its last step, which would need a compiler."""
    cotangents = cotangents_of(op, make, args)
    expected = Expected(op, make.dtype, make.values)
    expected.add(args, cotangents)
    torch._dynamo.reset()
    try:
        with blamed_on("op"):
            result = evaluate(torch.compile(op.function, backend="aot_eager"), args, cotangents)
    finally:
        torch._dynamo.reset()
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
