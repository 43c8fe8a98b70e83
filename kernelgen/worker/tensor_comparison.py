"""Compares tensors: with the reference's in float64, coarsely with the reference's in their dtype, and two calls' with
each other. A sentence says what differs, where, and by how much."""

from collections.abc import Sequence

import torch
from torch import Tensor

from kernelgen.worker.evaluation import Evaluation, same_bits
from kernelgen.worker.mismatch import MismatchError
from kernelgen.worker.tolerance import (
    ROUNDED_INTEGERS,
    allowed_error,
    excess,
    half_a_step,
    is_integer_right,
    is_right,
    largest_of,
    same_kind,
    smallest,
)

# Elements of a large tensor that are compared at a time.
_CHUNK = 2**26
# An element is wrong by far if it is off by so many roundings of the largest element, and by more than this share of
# it. Correct kernels differ from their references by up to 0.012 of it in bfloat16, 0.0011 in float16 and 2.2e-6 in
# float32.
_FAR_ROUNDINGS, _FAR_SHARE = 8, 1e-4
STALE = "; it is what other values at the same address gave before: is a result cached?"


class Beside:
    """What is allowed of a result beside, element by element, and which elements nothing determines: over all that was
    tried, of which the results themselves are not kept."""

    def __init__(self) -> None:
        self.allowed: Tensor | None = None
        self.undetermined: Tensor | None = None

    def add(self, allowed: Tensor, undetermined: Tensor | None) -> None:
        self.allowed = allowed if self.allowed is None else torch.maximum(self.allowed, allowed)
        if undetermined is not None:
            before = self.undetermined
            self.undetermined = undetermined if before is None else before | undetermined


def compare(
    name: str,
    results: Sequence[Tensor],
    plains: Sequence[Tensor],
    exacts: Sequence[Tensor],
    allowed_errors: Sequence[Sequence[Sequence[Tensor]]] = (),
    lost: Sequence[Tensor | None] = (),
    beside: Beside | None = None,
    *,
    of_nothing: bool = False,
    terms: int = 1,
) -> float:
    """Compares draws of one result with the reference's own in its dtype and in float64, taken together.

    `allowed_errors` holds pairs of other results and of the same without their error, which is allowed as well, and
    added to `beside`, which is too; `lost` is allowed beside all that, in each draw. `of_nothing`: it is the gradient
    of outputs without elements. `terms`: see `allowed_error`. Returns the largest error, in units of what is allowed.
    """
    beside = beside or Beside()
    for result, plain in zip(results, plains, strict=True):
        check_kind(name, result, plain)
    dtype = results[0].dtype
    result, plain, exact = map(_together, (results, plains, exacts))
    if dtype.is_floating_point or dtype.is_complex:
        is_rounded = dtype.itemsize == 1 and exacts[0].dtype != dtype
        allowed = _allowed(dtype, plain, exact, allowed_errors, beside, is_rounded=is_rounded, terms=terms)
        if any(error is not None for error in lost):
            allowed = allowed + torch.cat([_spread(error, of) for error, of in zip(lost, results, strict=True)])
        error = (result - exact).abs()
        if bool((error <= allowed).all()):  # As nearly always: no NaN, no infinity.
            return float(largest_of(error.div_(allowed)))
        right = is_right(dtype, result, plain, exact, allowed)
        if of_nothing:
            right |= result == 0
        if beside.undetermined is not None:
            right |= beside.undetermined & ~result.isfinite()
    else:
        allowed, right = torch.zeros_like(exact), result == plain
        if dtype in ROUNDED_INTEGERS:
            right |= is_integer_right(result, exact)
    if not right.all():
        shape = tuple(as_float64(results[0]).shape)
        text = _mismatch(name, result, exact, allowed, right.view(len(results), -1), shape)
        raise MismatchError(name, text + (STALE if _is_stale(results, plains) else ""))
    error = (result - exact).abs()
    share = torch.where(error > 0, error / allowed, 0)  # What is right otherwise, such as a NaN, has no error.
    return min(1.0, float(share[share.isfinite()].max())) if share.isfinite().any() else 0.0


def _allowed(
    dtype: torch.dtype,
    plain: Tensor,
    exact: Tensor,
    allowed_errors: Sequence[Sequence[Sequence[Tensor]]],
    beside: Beside,
    *,
    is_rounded: bool,
    terms: int,
) -> Tensor:
    """The error that is allowed of each element; `beside` gets what the pairs of `allowed_errors` allow."""
    half_step = half_a_step(dtype, exact) if is_rounded else None
    allowed = allowed_error(dtype, plain, exact, half_step, terms)
    for pair in allowed_errors:
        others = [_together(side) for side in pair]
        undetermined = None
        if pair[0][0].dtype == torch.float64:
            # An infinite factor of what cancels but for roundings: infinity of either sign, or NaN.
            undetermined = ~exact.isfinite() & ~others[0].isfinite() & ~same_kind(*others)
        if is_rounded:
            # Of the reference in float64 here and there, neither is rounded.
            more = half_step + 2 * excess(dtype, *others, is_rounded=pair[0][0].dtype == dtype)
        else:
            more = allowed_error(dtype, *others)
        beside.add(more, undetermined)
    return allowed if beside.allowed is None else torch.maximum(allowed, beside.allowed)


def _mismatch(name: str, result: Tensor, exact: Tensor, allowed: Tensor, right: Tensor, shape: Sequence[int]) -> str:
    """Says which element is wrong by most, and how many are; `right` has a row for each draw, of this shape."""
    where = _worst(right.flatten(), (result - exact).abs() - allowed)
    place = torch.unravel_index(torch.tensor(where % right[0].numel()), tuple(shape)) if shape else ()
    text = _sentence(f"{name}{list(map(int, place))}", result[where], exact[where], allowed[where])
    return text + _extent(right)


def compare_coarsely(name: str, result: Tensor, plain: Tensor, hint: str = "", few: float = 0.0) -> None:
    """Compares a result with the reference's in its dtype, for elements that are wrong by far; takes little memory. As
    large a share of them as `few` is no fault."""
    check_kind(name, result, plain)
    excused = int(few * result.numel())
    pairs = [*zip(result.flatten().split(_CHUNK), plain.flatten().split(_CHUNK), strict=True)]
    allowed = 0.0
    if plain.dtype in ROUNDED_INTEGERS:
        allowed = 2.0  # In the dtype of the arguments, PyTorch rounds before it rounds to integers.
    if plain.is_floating_point() and plain.numel():
        share = max(_FAR_ROUNDINGS * torch.finfo(plain.dtype).eps, _FAR_SHARE)
        allowed = share * max(float(expected.float().abs().nan_to_num(0, posinf=0).max()) for _, expected in pairs)
    for n, (got, expected) in enumerate(pairs):
        if plain.dtype.itemsize == 1 and plain.dtype != torch.bool:  # PyTorch does not subtract these, or they wrap.
            got, expected = got.float(), expected.float()
        right = (got == expected) | (got.isnan() & expected.isnan())
        if allowed:
            right |= (got - expected).abs() <= allowed
        wrong = int((~right).sum())
        excused -= wrong
        if wrong and excused < 0:
            index = n * _CHUNK + int((~right).int().argmax())
            raise MismatchError(name, f"{name} is wrong by far in element {index} of {result.numel()}{hint}")


def check_kind(name: str, result: Tensor, plain: Tensor) -> None:
    if (result.shape, result.dtype) != (plain.shape, plain.dtype):
        got, wants = (f"{tuple(t.shape)} {t.dtype}".replace("torch.", "") for t in (result, plain))
        raise MismatchError(name, f"{name} is {got}, the reference's is {wants}")


def check_presence(result: Evaluation, plain: Evaluation) -> None:
    """As many outputs as the reference has, and the same gradients."""
    counts = len(result.outputs), len(plain.outputs)
    if counts[0] != counts[1]:
        raise MismatchError("outputs", f"it returns {counts[0]} tensors, its reference {counts[1]}")
    ours, theirs = result.named(), plain.named()
    if not any(grad is not None for grad in result.grads) and any(grad is not None for grad in plain.grads):
        raise MismatchError(
            "gradients", "no output takes a gradient though the inputs do: is the op's gradient registered?"
        )
    for name in theirs:
        if (ours.get(name) is None) != (theirs[name] is None):
            has, lacks = ("it", "the reference") if theirs[name] is None else ("the reference", "it")
            raise MismatchError(name, f"{has} has {name}, and {lacks} has none")


def agree(repeatable: bool | float, check: str, sentence: str, first: Evaluation, second: Evaluation) -> None:
    for name, value in first.named().items():
        other = second.named().get(name)
        if value is None and other is None:
            continue
        if value is None or other is None:
            raise MismatchError(check, f"{sentence}: {name} is there once and missing once")
        if same_bits(value, other):
            continue
        if (value.shape, value.dtype) != (other.shape, other.dtype):
            raise MismatchError(check, f"{sentence}: {name} has another shape or dtype")
        if repeatable is True:
            raise MismatchError(
                check, f"{sentence}: {name} differs in {int((value != other).sum())} of {value.numel()} elements"
            )
        left, right = as_float64(value), as_float64(other)
        largest = left[left.isfinite()].abs().max() if left.isfinite().any() else 0
        off = torch.where(same_kind(left, right), 0, (left - right).abs())
        # Of numbers below the normal ones, a rounding may be a larger share.
        if not (off <= repeatable * largest + smallest(value.dtype)).all():
            raise MismatchError(check, f"{sentence}: {name} differs by {off.max():.3g}, more than REPEATABLE allows")


def _together(values: Sequence[Tensor]) -> Tensor:
    """All elements in a row, in float64."""
    return as_float64(torch.cat([value.flatten() for value in values])).flatten()


def _spread(error: Tensor | None, result: Tensor) -> Tensor:
    """An error for each element, in a row."""
    error = torch.zeros(()) if error is None else error
    return as_float64(error.to(result.device).expand(result.shape)).flatten()


def as_float64(tensor: Tensor) -> Tensor:
    """In float64; a complex number as two numbers."""
    return (torch.view_as_real(tensor) if tensor.is_complex() else tensor).double()


def _extent(right: Tensor) -> str:
    """How many elements of the worst draw are wrong, and in how many draws some are; of shape (draws, elements)."""
    wrong = (~right).sum(1)
    text = f"; {int(wrong.max())} of {right.shape[1]} elements are wrong"
    return text if len(right) == 1 else f"{text}, in {int((wrong > 0).sum())} of {len(right)} draws"


def _worst(right: Tensor, excess: Tensor) -> int:
    strange = ~right & ~excess.isfinite()
    if strange.any():
        return int(strange.int().argmax())
    return int(torch.where(right, torch.full_like(excess, -float("inf")), excess).argmax())


def _sentence(name: str, result: Tensor, exact: Tensor, allowed: Tensor) -> str:
    text = f"{name} is {result:.6g}, the float64 reference says {exact:.6g}"
    if result.isnan() and not exact.isnan():
        return f"{text}: it was never written, or computed from what lies outside the inputs"
    error = (result - exact).abs()
    return f"{text}: off by {error:.3g} where {allowed:.3g} is allowed" if error.isfinite() else text


def _is_stale(results: Sequence[Tensor], plains: Sequence[Tensor]) -> bool:
    return any(
        same_bits(results[i], results[i - 1]) and not same_bits(plains[i], plains[i - 1]) and _varies(results[i])
        for i in range(1, len(results))
    )


def _varies(tensor: Tensor) -> bool:
    """Whether it holds two different numbers, and no NaN: constants repeat without any cache."""
    return bool((as_float64(tensor).flatten().diff() != 0).any()) and not bool(tensor.isnan().all())
