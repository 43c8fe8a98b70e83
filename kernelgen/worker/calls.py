"""Special ways to call an op, and what has to hold in each: a case's `call`."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

import torch
from torch import Tensor

from kernelgen.worker import bias
from kernelgen.worker.evaluation import Evaluation, copies, evaluate, same_bits, tensors
from kernelgen.worker.fuzzed_case import FuzzedCase
from kernelgen.worker.inputs import Make
from kernelgen.worker.mismatch import MismatchError
from kernelgen.worker.reference_check import Expected
from kernelgen.worker.tensor_comparison import agree

# What is counted, or kept, may be wrong after a thousand calls only.
_REPEATS = 1100
_THREADS, _CALLS_OF_A_THREAD = 4, 25
# More threads than cores, and numbers that divide no size evenly.
_THREAD_COUNTS = (1, 2, 3, 7)
# Results of so many calls are in memory at once.
_BATCH = 100
# A size whose domain has no more values is an enumeration.
MOST_ENUMERATED = 8


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
        return ("autocast", "in a graph")
    return tuple(call for call in CALLS[1:] if device == "cpu" or call != "thread counts")


def _plain(case: FuzzedCase) -> None:
    pass  # The other checks of a case have done it.


def _repeated(case: FuzzedCase) -> None:
    case.caller.place((case.args, []))
    for mode in ("no_grad", "gradients"):
        first, held = None, []
        for begin in range(1, _REPEATS + 1, _BATCH):
            case.caller.order("repeat", times=_BATCH, mode=mode)
            results, answer = case.caller.answer()
            held.append(answer["held"])
            for i, result in enumerate(results, begin):
                first = first or result.values
                sentence = f"call {i} of the same inputs gave another result than the first"
                agree(case.repeatable, "repeated", sentence, first, result.values)
        _check_memory(first, held)


def _check_memory(result: Evaluation, held: list[int | None]) -> None:
    """A call may keep something, and the first hundred calls more; but not each as much as half of its results."""
    nbytes = sum(out.numel() * out.element_size() for out in result.outputs)
    if None in held or not nbytes:
        return
    calls = _BATCH * (len(held) - 2)
    if (kept := (held[-1] - held[1]) / calls) >= nbytes / 2:
        text = f"{calls} calls left {kept:.0f} bytes allocated each, with results of {nbytes} bytes: is something kept?"
        raise MismatchError("memory", text)


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
    of_reference = expected.plain.named()
    for name, value in result.named().items():
        fitting = (dtype, low, of_reference[name].dtype if of_reference.get(name) is not None else low)
        if value is not None and value.is_floating_point() and value.dtype not in fitting:
            raise MismatchError("autocast", f"under autocast, {name} is {value.dtype}")
    _compare(expected, _cast_like(result, expected.plain), "under autocast")


def _cast_like(result: Evaluation, plain: Evaluation) -> Evaluation:
    """The result in the reference's dtypes."""

    def cast(value: Tensor | None, like: Tensor | None) -> Tensor | None:
        return value if value is None or like is None or not value.is_floating_point() else value.to(like.dtype)

    outputs = [cast(*pair) for pair in zip(result.outputs, plain.outputs, strict=False)]
    return Evaluation(outputs, [cast(*pair) for pair in zip(result.grads, plain.grads, strict=False)])


def _compiled(case: FuzzedCase) -> None:
    """Traced by torch.compile, forward and backward, without its last step, which would need a compiler; then with
    other sizes, which it takes for symbols."""
    other = _resized(case)
    cotangents = case.cotangents(), other.cotangents()
    case.caller.place((case.args, cotangents[0]), (other.args, cotangents[1]))
    case.caller.order("compiled")
    pairs = zip((case, other), cotangents, strict=True)
    expected = [(some.expected(), some.args, grads) for some, grads in pairs]
    for some, args, grads in expected:
        some.add(args, grads)
    results, answer = case.caller.answer()
    if answer["fake"] is not None:
        raise MismatchError("fake", f"of symbols for sizes: {answer['fake']}")
    whens = "compiled by torch.compile", "compiled by torch.compile, with other sizes than before"
    for (some, *_), result, when in zip(expected, results, whens, strict=True):
        _compare(some, result.values, when)


def _resized(case: FuzzedCase) -> FuzzedCase:
    """The case with each size one larger or smaller, but those that choose among a few."""
    domain, sizes = case.op.domain, dict(case.sizes)
    for name, size in sizes.items():
        low, high = domain.get(name, (size, size))
        if high - low >= MOST_ENUMERATED:
            sizes[name] = size + 1 if size < high else size - 1
    make = Make(case.make.device, case.make.dtype, requires_grad=case.op.gradient)
    return replace(case, make=make, args=case.op.inputs(make, **sizes), sizes=sizes)


def _in_a_graph(case: FuzzedCase) -> None:
    """In the middle of a graph of autograd, where inputs are no leaves; twice through one graph; with values that are
    changed before the backward, which has to raise if it needs them; and with the gradient of one output alone."""
    if not any(tensor.requires_grad for tensor in tensors(case.args)):
        return
    cotangents, expected = case.cotangents(), case.expected()
    case.caller.place((case.args, cotangents))
    case.caller.order("in_a_graph", number=0, times=2)
    plain = expected.add(case.args, cotangents)
    first, second = case.caller.answer()[0]
    _compare(expected, first.values, "with inputs that are no leaves")
    _compare(expected, second.values, "where gradients are computed a second time from one graph")
    for changed in ("outputs", "inputs"):
        with suppress(_ChangedError):
            grads = _gradients_after_a_change(case, changed)
            when = f"where its {changed} are changed between forward and backward"
            _compare(expected, Evaluation(plain.outputs, grads), f"{when}, which has to raise if they are needed")
    if len(cotangents) > 1:
        _one_output_alone(case, cotangents)


class _ChangedError(Exception):
    """Autograd saw that a saved tensor was changed."""


def _gradients_after_a_change(case: FuzzedCase, changed: str) -> list[Tensor | None]:
    try:
        return case.caller.call("in_a_graph", number=0, changed=changed)[0].values.grads
    except MismatchError as wrong:
        if "modified by an inplace operation" in wrong.fault.text:
            raise _ChangedError from None
        raise
    finally:
        case.caller.hand_over()


def _one_output_alone(case: FuzzedCase, cotangents: list[Tensor]) -> None:
    """For the reference the gradients of the other outputs are zeros; it takes no gradient for one of zeros."""
    for i, cotangent in enumerate(cotangents):
        alone = [cotangent if k == i else torch.zeros_like(other) for k, other in enumerate(cotangents)]
        expected = case.expected()
        plain = expected.add(case.args, alone)
        case.caller.place((case.args, cotangents))
        (result,) = case.caller.call("in_a_graph", number=0, only=i)
        pairs = zip(result.values.grads, plain.grads, strict=False)
        grads = [theirs if ours is None and theirs is not None and not theirs.any() else ours for ours, theirs in pairs]
        _compare(expected, Evaluation(result.values.outputs, grads), f"where output {i} alone takes a gradient")


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
    "in a graph": _in_a_graph,
}
CALLS = tuple(_CHECKS)
