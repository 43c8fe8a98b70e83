"""Decides whether an op's outputs and gradients are right.

An element is right if its error, against the reference in float64, is at most twice the largest error that the same
reference makes in the op's own dtype, plus one rounding of the element and a few of the sums inside. (The bound of
flash-attention's tests, with float64 in place of float32.) That reference may be nearly exact by luck: where few
numbers decide, as in a softmax over three keys; where values cancel; or where it adds in a better order. So before a
result counts as wrong, more is allowed, at some seeds: the reference's error at neighbours of the inputs, which are off
by a rounding; what roundings of the numbers inside do to the exact result (Monte Carlo arithmetic), each by itself or
those of an operator alike, and those of 16 bits where the reference itself overflows in them; and, where values or
layouts are ill-conditioned, what such a change of the inputs or the cotangents does to it (backward stability).
Infinities and NaNs have to be where the reference has them; for a NaN an infinity will do, since the order of
operations decides which of the two comes of infinite inputs or of sums that overflow. A gradient of outputs without
elements may be 0 anywhere: it is a sum of nothing, which only some orders of operations multiply by a NaN.

A number of 8 bits whose reference in float64 is not rounded to 8 bits may be off by half a step of its format there,
plus twice what the reference's own error exceeds that by, plus a few roundings inside, as a share of the element: the
largest has the format's whole range over it. What else is allowed then is so element by element.

What hardware loses and no reference in the op's dtype shows, such as the last bits of sums in FP8 tensor cores, lab.py
says in ALLOWED_ERROR; it is added to all of that.
"""

import contextlib
from collections import defaultdict
from collections.abc import MutableMapping, Sequence
from typing import Any

import torch
from torch import Tensor

from kernelgen.worker.evaluation import Evaluation, blamed_on, copies, evaluate, same_bits, tensors
from kernelgen.worker.mismatch import MismatchError
from kernelgen.worker.op import Op
from kernelgen.worker.random_rounding import RandomRounding

# Neighbours of the inputs at which the reference's error is taken before a result counts as wrong.
_NEIGHBOURS = 8
# Values and layouts whose results depend on their last bits: what cancels, what overflows, numbers that are all equal,
# and large ones beside those that a rounding moves past a kink, such as ReLU's.
_ILL_CONDITIONED = {"huge", "large mean", "equal", "expanded", "mixed", "wide range"}
# Elements of a large tensor that are compared at a time.
_CHUNK = 2**26
# An element is wrong by far if it is off by so many roundings of the largest element, and by more than this share of
# it. Correct kernels differ from their references by up to 0.012 of it in bfloat16, 0.0011 in float16 and 2.2e-6 in
# float32.
_FAR_ROUNDINGS, _FAR_SHARE = 8, 1e-4
# Integers that numbers are rounded to; int64 is for places, which are exact.
_ROUNDED = (torch.int8, torch.uint8, torch.int16, torch.int32)


# ---- The checks -----------------------------------------------------------------------------------------------


# Copies of the arguments and cotangents of a draw.
DrawnInputs = tuple[Any, list[Tensor]]
# Results, one for each draw, whose error is allowed; and the same without that error.
AllowedError = tuple[Sequence["Evaluation"], Sequence["Evaluation"]]
# By result, an error that is allowed beside; it broadcasts to the result's shape.
Lost = dict[str, Tensor]


class Expected:
    """What the reference gives on some draws of the inputs, in a dtype and in float64."""

    def __init__(self, op: Op, dtype: torch.dtype, values: str, layout: str = "contiguous") -> None:
        self._op, self._reference, self._dtype, self._values = op, op.reference, dtype, values
        self._is_ill_conditioned = not _ILL_CONDITIONED.isdisjoint((values, layout))
        self._drawn: list[DrawnInputs] = []
        self._plains: list[Evaluation] = []
        self._exacts: list[Evaluation] = []

    def add(self, args: Any, cotangents: list[Tensor]) -> Evaluation:
        """Evaluates the reference on a draw; returns its results in the dtype of the arguments."""
        with blamed_on("reference"):
            self._plains.append(evaluate(self._reference, copies(args), copies(cotangents)))
            self._exacts.append(self._exact(args, cotangents))
        self._drawn.append((copies(args), copies(cotangents)))
        return self._plains[-1]

    def _exact(self, args: Any, cotangents: list[Tensor]) -> Evaluation:
        """In float64; the last results, if they are already."""
        if all(t.dtype == torch.float64 for t in tensors((args, cotangents)) if t.is_floating_point()):
            return self._plains[-1]
        return evaluate(self._reference, copies(args, torch.float64), copies(cotangents, torch.float64))

    @property
    def plain(self) -> Evaluation:
        """The last draw's results, in the dtype of the arguments."""
        return self._plains[-1]

    def compare(self, results: Sequence[Evaluation]) -> dict[str, float]:
        """The largest error of each result over all draws, in units of what is allowed.

        Raises:
            MismatchError: it is more than is allowed.
        """
        draws = [*zip(results, self._plains, self._exacts, strict=True)]
        try:
            return _compare_draws(draws, [])
        except MismatchError:
            if not self._dtype.is_floating_point:
                raise
            lost = self._lost()
            if any(lost):
                with contextlib.suppress(MismatchError):
                    return _compare_draws(draws, [], lost)
            besides: dict[str, Beside] = defaultdict(Beside)
            overflows = self._overflows()
            for seed in range(_NEIGHBOURS):
                with contextlib.suppress(MismatchError):
                    return _compare_draws(draws, self._allowed_errors(seed, overflows), lost, besides)
            raise

    def _lost(self) -> list[Lost]:
        """What hardware may lose beside, in each draw."""
        with blamed_on("ALLOWED_ERROR"):
            return [self._op.errors_allowed(*copies(drawn, torch.float64), self._dtype) for drawn in self._drawn]

    def check_zero_signs(self, results: Sequence[Evaluation]) -> None:
        """The sign of an output's 0 is the reference's, where it is that of the outputs nearby: where the inputs' zeros
        are tiny numbers of their signs. Of operations element by element alone: a sum that starts from 0, or adds a
        bias of 0, has no -0.

        Raises:
            MismatchError: it is not.
        """
        for (args, _), plain, exact, result in zip(self._drawn, self._plains, self._exacts, results, strict=True):
            shapes = {tensor.shape for tensor in (*tensors(args), *plain.outputs)}
            if self._values != "signed zeros" or len(shapes) > 1 or min(*shapes, default=0) < 5:
                return
            nearby = copies(args, torch.float64)
            with torch.no_grad():
                for tensor in (tensor for tensor in tensors(nearby) if tensor.is_floating_point()):
                    tensor.copy_(torch.where(tensor == 0, torch.full_like(tensor, 1e-100).copysign(tensor), tensor))
                limits = evaluate(self._reference, nearby).outputs
                for tensor in (tensor for tensor in tensors(nearby) if tensor.is_floating_point()):
                    tensor.view(-1)[0] += 1
                first_moved = evaluate(self._reference, nearby).outputs
            if any(not same_bits(a.flatten()[1:], b.flatten()[1:]) for a, b in zip(limits, first_moved, strict=True)):
                return
            for i, (ours, *others) in enumerate(zip(result.outputs, plain.outputs, exact.outputs, limits, strict=True)):
                if ours.is_floating_point():
                    _check_zero_sign(f"output {i}", ours, *others)

    def _allowed_errors(self, seed: int, overflows: bool) -> list[AllowedError]:
        """The reference at neighbours of the inputs and its exact results there, but for float64, in which it has none;
        and what moves its exact results here: roundings inside, to the op's digits and to float64's, and, for what is
        ill-conditioned and for float64, neighbours of the inputs, and of the cotangents alone (beside equal numbers a
        norm has another slope)."""
        is_exact = self._dtype == torch.float64
        rounding, inside = torch.finfo(self._dtype).eps, torch.float64 if is_exact else torch.float32
        near, exact_near, moved, pulled = [], [], [], []
        rounded, rounded_alike, rounded_low, rounded_exact = [], [], [], []
        for args, cotangents in self._drawn:
            exact_args, exact_cotangents = copies(args, torch.float64), copies(cotangents, torch.float64)
            if not is_exact:
                neighbours = _moved(copies(args), rounding, seed)
                near.append(evaluate(self._reference, neighbours, cotangents))
                exact_near.append(evaluate(self._reference, copies(neighbours, torch.float64), exact_cotangents))
                with RandomRounding(seed, torch.float64):
                    rounded_exact.append(evaluate(self._reference, exact_args, exact_cotangents))
            with RandomRounding(seed, inside):
                rounded.append(evaluate(self._reference, exact_args, exact_cotangents))
            with RandomRounding(seed, inside, alike=True):
                rounded_alike.append(evaluate(self._reference, exact_args, exact_cotangents))
            if overflows:
                with RandomRounding(seed, self._dtype):
                    rounded_low.append(evaluate(self._reference, exact_args, exact_cotangents))
            if self._is_ill_conditioned or is_exact:
                by = max(rounding, _inside(self._dtype)) / 2
                moved_cotangents = _moved(copies(exact_cotangents), by, seed)
                pulled.append(evaluate(self._reference, exact_args, moved_cotangents))
                moved_args = _moved(copies(exact_args), rounding / 2, seed)
                moved.append(evaluate(self._reference, moved_args, exact_cotangents))
        of_exact = [
            (others, self._exacts) for others in (moved, pulled, rounded, rounded_alike, rounded_low, rounded_exact)
        ]
        return [pair for pair in [(near, exact_near), *of_exact] if pair[0]]

    def _overflows(self) -> bool:
        """Whether numbers inside the reference are beyond its 16 bits, as scores before they are scaled: what it makes
        of them says nothing then of what roundings to 16 bits do, and its exact results do, with such roundings."""
        if self._dtype.itemsize != 2:
            return False
        for plain, exact in zip(self._plains, self._exacts, strict=True):
            for ours, theirs in zip(plain.named().values(), exact.named().values(), strict=True):
                if ours is None or theirs is None or not ours.is_floating_point():
                    continue
                representable = theirs.double().abs() < torch.finfo(self._dtype).max / 2
                if bool((~ours.double().isfinite() & representable).any()):
                    return True
        return False


# The results on one draw of the inputs: the op's, and its reference's in the op's own dtype and in float64.
Draw = tuple[Evaluation, Evaluation, Evaluation]


def _check_zero_sign(name: str, ours: Tensor, plain: Tensor, exact: Tensor, limit: Tensor) -> None:
    negative = exact.signbit()
    known = (exact == 0) & (plain == 0) & (limit != 0) & (plain.signbit() == negative) & (limit.signbit() == negative)
    wrong = known & (ours == 0) & (ours.signbit() != negative)
    if wrong.any():
        got, wanted = ("0", "-0") if bool(negative[wrong][0]) else ("-0", "0")
        raise MismatchError(name, f"{name} is {got} where the reference says {wanted}, in {int(wrong.sum())} elements")


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


def _compare_draws(
    draws: list[Draw],
    allowed_errors: list[AllowedError],
    lost: Sequence[Lost] = (),
    besides: MutableMapping[str, Beside] | None = None,
) -> dict[str, float]:
    """The largest error of each result, in units of what is allowed. All results are looked at, so that `besides` has
    what these errors allow of each."""
    besides = defaultdict(Beside) if besides is None else besides
    for result, plain, _ in draws:
        check_presence(result, plain)
    errors: dict[str, float] = {}
    mismatches = []
    for name in [name for name, value in draws[0][1].named().items() if value is not None]:
        values = [[evaluation.named()[name] for evaluation in draw] for draw in draws]
        others = [[[evaluation.named()[name] for evaluation in side] for side in pair] for pair in allowed_errors]
        lost_here = [by_name.get(name) for by_name in lost]
        try:
            of_nothing = name.startswith("gradient") and not any(out.numel() for out in draws[0][1].outputs)
            errors[name] = compare(
                name, *zip(*values, strict=True), others, lost_here, besides[name], of_nothing=of_nothing
            )
        except MismatchError as mismatch:
            mismatches.append(mismatch)
            if not allowed_errors:
                break
    if mismatches:
        raise mismatches[0]
    return errors


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
) -> float:
    """Compares draws of one result with the reference's own in its dtype and in float64, taken together.

    `allowed_errors` holds pairs of other results and of the same without their error, which is allowed as well, and
    added to `beside`, which is too; `lost` is allowed beside all that, in each draw. `of_nothing`: it is the gradient
    of outputs without elements. Returns the largest error, in units of what is allowed.
    """
    beside = beside or Beside()
    for result, plain in zip(results, plains, strict=True):
        check_kind(name, result, plain)
    dtype = results[0].dtype
    result, plain, exact = map(_together, (results, plains, exacts))
    if dtype in _ROUNDED:
        allowed, right = torch.zeros_like(exact), (result == plain) | _is_integer_right(result, exact)
    elif not dtype.is_floating_point and not dtype.is_complex:
        allowed, right = torch.zeros_like(exact), result == plain
    else:
        is_rounded = dtype.itemsize == 1 and exacts[0].dtype != dtype
        half_step = _half_a_step(dtype, exact) if is_rounded else None
        allowed = _allowed(dtype, plain, exact, half_step)
        for pair in allowed_errors:
            others = [_together(side) for side in pair]
            undetermined = None
            if pair[0][0].dtype == torch.float64:
                # An infinite factor of what cancels but for roundings: infinity of either sign, or NaN.
                undetermined = ~exact.isfinite() & ~others[0].isfinite() & ~_same_kind(*others)
            if is_rounded:
                # Of the reference in float64 here and there, neither is rounded.
                more = half_step + 2 * _excess(dtype, *others, is_rounded=pair[0][0].dtype == dtype)
            else:
                more = _allowed(dtype, *others)
            beside.add(more, undetermined)
        if beside.allowed is not None:
            allowed = torch.maximum(allowed, beside.allowed)
        if any(error is not None for error in lost):
            allowed = allowed + torch.cat([_spread(error, of) for error, of in zip(lost, results, strict=True)])
        error = (result - exact).abs()
        if bool((error <= allowed).all()):  # As nearly always: no NaN, no infinity.
            return float(_largest(error.div_(allowed)))
        right = _is_right(dtype, result, plain, exact, allowed)
        if of_nothing:
            right |= result == 0
        if beside.undetermined is not None:
            right |= beside.undetermined & ~result.isfinite()
    if not right.all():
        where = _worst(right, (result - exact).abs() - allowed)
        shape = tuple(_real(results[0]).shape)
        place = torch.unravel_index(torch.tensor(where % (right.numel() // len(results))), shape) if shape else ()
        text = _sentence(f"{name}{list(map(int, place))}", result[where], exact[where], allowed[where])
        text += _extent(right.view(len(results), -1))
        raise MismatchError(name, text + (STALE if _is_stale(results, plains) else ""))
    error = (result - exact).abs()
    share = torch.where(error > 0, error / allowed, 0)  # What is right otherwise, such as a NaN, has no error.
    return min(1.0, float(share[share.isfinite()].max())) if share.isfinite().any() else 0.0


def _is_integer_right(result: Tensor, exact: Tensor) -> Tensor:
    """Integers that numbers were rounded to: few may be the next one, as on the border of two a rounding inside
    decides."""
    off = (result - exact).abs()
    is_one_off = off == 1
    return (off == 0) | (is_one_off & (is_one_off.sum() <= 1 + off.numel() // 100))


def _extent(right: Tensor) -> str:
    """How many elements of the worst draw are wrong, and in how many draws some are; of shape (draws, elements)."""
    wrong = (~right).sum(1)
    text = f"; {int(wrong.max())} of {right.shape[1]} elements are wrong"
    return text if len(right) == 1 else f"{text}, in {int((wrong > 0).sum())} of {len(right)} draws"


def compare_coarsely(name: str, result: Tensor, plain: Tensor, hint: str = "") -> None:
    """Compares a result with the reference's in its dtype, for elements that are wrong by far; takes little memory."""
    check_kind(name, result, plain)
    pairs = [*zip(result.flatten().split(_CHUNK), plain.flatten().split(_CHUNK), strict=True)]
    allowed = 0.0
    if plain.dtype in _ROUNDED:
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
        if not right.all():
            index = n * _CHUNK + int((~right).int().argmax())
            raise MismatchError(name, f"{name} is wrong by far in element {index} of {result.numel()}{hint}")


def check_kind(name: str, result: Tensor, plain: Tensor) -> None:
    if (result.shape, result.dtype) != (plain.shape, plain.dtype):
        got, wants = (f"{tuple(t.shape)} {t.dtype}".replace("torch.", "") for t in (result, plain))
        raise MismatchError(name, f"{name} is {got}, the reference's is {wants}")


def _together(values: Sequence[Tensor]) -> Tensor:
    """All elements in a row, in float64."""
    return _real(torch.cat([value.flatten() for value in values])).flatten()


def _spread(error: Tensor | None, result: Tensor) -> Tensor:
    """An error for each element, in a row."""
    error = torch.zeros(()) if error is None else error
    return _real(error.to(result.device).expand(result.shape)).flatten()


STALE = "; it is what other values at the same address gave before: is a result cached?"


def _allowed(dtype: torch.dtype, plain: Tensor, exact: Tensor, half_step: Tensor | None = None) -> Tensor:
    """How far each element may be off. `half_step`: of roundings to 8 bits."""
    limits = torch.finfo(dtype)
    magnitude, off = exact.abs(), (plain - exact).abs()
    if half_step is not None:
        off = (off - half_step).clamp(min=0)
    largest, baseline = _largest(magnitude), _largest(off)
    if not largest.isfinite() or not baseline.isfinite():
        known = exact.isfinite()
        magnitude = torch.where(known, magnitude, 0)
        largest, baseline = _largest(magnitude), _largest(torch.where(known & plain.isfinite(), off, 0))
    if half_step is not None:
        return half_step + magnitude.mul_(_inside(dtype)).add_(2 * baseline)
    return magnitude.mul_(limits.eps).add_(2 * baseline + _inside(dtype) * largest + _smallest(dtype))


def _excess(dtype: torch.dtype, plain: Tensor, exact: Tensor, *, is_rounded: bool) -> Tensor:
    """The error of each element, less what a rounding to 8 bits explains."""
    off = (plain - exact).abs().nan_to_num(0, posinf=0)
    return (off - _half_a_step(dtype, exact)).clamp(min=0) if is_rounded else off


def _half_a_step(dtype: torch.dtype, values: Tensor) -> Tensor:
    """Half of the distance between the dtype's numbers where these values lie: the same where they are subnormal."""
    limits = torch.finfo(dtype)
    magnitude = values.abs().nan_to_num(0, posinf=0).clamp(min=limits.smallest_normal)
    fraction, _ = torch.frexp(magnitude)  # In [0.5, 1), so that the quotient is a power of two.
    return limits.eps / 4 * (magnitude / fraction)


def _inside(dtype: torch.dtype) -> float:
    """A few roundings of the sums inside, as a share of their largest number."""
    return 1e-12 if dtype in (torch.float64, torch.complex128) else 1e-6


def _largest(values: Tensor) -> Tensor:
    return values.max() if values.numel() else values.new_zeros(())


def _is_right(dtype: torch.dtype, result: Tensor, plain: Tensor, exact: Tensor, allowed: Tensor) -> Tensor:
    limits = torch.finfo(dtype)
    rounded = exact.clamp(-limits.max, limits.max)
    rounded = torch.where(exact.abs() > limits.max, exact * float("inf"), rounded)  # Keeps NaN.
    near = (result - exact).abs() <= allowed
    # Near the largest number of the dtype, rounding decides between it and infinity.
    at_edge = (exact.abs() - limits.max).abs() <= allowed
    edge = at_edge & (result.abs() + allowed >= limits.max) & (result * exact > 0)
    # Where more is allowed than the dtype holds, infinity of either sign may be.
    beyond = result.isinf() & (exact * result.sign() + allowed >= limits.max)
    either = result.isinf() & (exact.isnan() | plain.isnan())
    return near | edge | beyond | either | _same_kind(result, rounded) | _same_kind(result, plain)


def _same_kind(a: Tensor, b: Tensor) -> Tensor:
    """Both NaN, or the same infinity."""
    return (a.isnan() & b.isnan()) | (a.isinf() & (a == b))


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
    return bool((_real(tensor).flatten().diff() != 0).any()) and not bool(tensor.isnan().all())


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
        left, right = _real(value), _real(other)
        largest = left[left.isfinite()].abs().max() if left.isfinite().any() else 0
        off = torch.where(_same_kind(left, right), 0, (left - right).abs())
        # Of numbers below the normal ones, a rounding may be a larger share.
        if not (off <= repeatable * largest + _smallest(value.dtype)).all():
            raise MismatchError(check, f"{sentence}: {name} differs by {off.max():.3g}, more than REPEATABLE allows")


def _smallest(dtype: torch.dtype) -> float:
    """The smallest positive number of a dtype; 0 for integers."""
    if not (dtype.is_floating_point or dtype.is_complex):
        return 0
    limits = torch.finfo(dtype)
    return limits.smallest_normal * limits.eps


def _moved(args: Any, by: float, seed: int) -> Any:
    """Changes each element by this share of it, up or down by chance; returns the same tensors.

    Numbers of 8 bits stay: they are too far apart, and PyTorch has no arithmetic for them.
    """
    numbers = {id(t): t for t in tensors(args) if t.is_floating_point() and t.dtype.itemsize > 1}.values()
    # Drawn where the tensors are: a CPU takes seconds for what a GPU holds.
    generators = {t.device: torch.Generator(t.device).manual_seed(seed) for t in numbers}
    with torch.no_grad():
        for tensor in numbers:
            draw = torch.randint(2, tensor.shape, generator=generators[tensor.device], device=tensor.device)
            tensor.mul_(1 + by * (1 - 2 * draw).to(tensor))
    return args


def _real(tensor: Tensor) -> Tensor:
    """In float64; a complex number as two numbers."""
    return (torch.view_as_real(tensor) if tensor.is_complex() else tensor).double()
