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

The gradient of a tensor that several arguments are is the sum of theirs, and has a rounding of each.

What hardware loses and no reference in the op's dtype shows, such as the last bits of sums in FP8 tensor cores, lab.py
says in ALLOWED_ERROR; it is added to all of that.
"""

import contextlib
from collections import Counter, defaultdict
from collections.abc import Mapping, MutableMapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from kernelgen.worker.evaluation import Evaluation, blamed_on, copies, evaluate, same_bits, tensors
from kernelgen.worker.exact_constants import ExactConstants
from kernelgen.worker.mismatch import MismatchError
from kernelgen.worker.op import Op
from kernelgen.worker.random_rounding import RandomRounding
from kernelgen.worker.tensor_comparison import Beside, check_presence, compare
from kernelgen.worker.tolerance import inside

# Neighbours of the inputs at which the reference's error is taken before a result counts as wrong.
_NEIGHBOURS = 8
# Values and layouts whose results depend on their last bits: what cancels, what overflows, numbers that are all equal,
# and large ones beside those that a rounding moves past a kink, such as ReLU's.
_ILL_CONDITIONED = {"huge", "large mean", "equal", "expanded", "mixed", "wide range"}

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
        with blamed_on("reference"), ExactConstants():
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
        compare_draws = partial(_compare_draws, draws, _terms_of_gradients(self._drawn[0][0]))
        try:
            return compare_draws([])
        except MismatchError:
            if not self._dtype.is_floating_point:
                raise
            lost = self._lost()
            if any(lost):
                with contextlib.suppress(MismatchError):
                    return compare_draws([], lost)
            besides: dict[str, Beside] = defaultdict(Beside)
            overflows = self._overflows()
            for seed in range(_NEIGHBOURS):
                with ExactConstants():
                    allowed_errors = self._allowed_errors(seed, overflows)
                with contextlib.suppress(MismatchError):
                    return compare_draws(allowed_errors, lost, besides)
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
                try:
                    first_moved = evaluate(self._reference, nearby).outputs
                except (AssertionError, RuntimeError, ValueError):  # It refuses such numbers.
                    return
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
        rounding, digits = torch.finfo(self._dtype).eps, torch.float64 if is_exact else torch.float32
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
            with RandomRounding(seed, digits):
                rounded.append(evaluate(self._reference, exact_args, exact_cotangents))
            with RandomRounding(seed, digits, alike=True):
                rounded_alike.append(evaluate(self._reference, exact_args, exact_cotangents))
            if overflows:
                with RandomRounding(seed, self._dtype):
                    rounded_low.append(evaluate(self._reference, exact_args, exact_cotangents))
            if self._is_ill_conditioned or is_exact:
                by = max(rounding, inside(self._dtype)) / 2
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


def _terms_of_gradients(args: Any) -> dict[str, int]:
    """How many arguments each input with a gradient is, where it is several: its gradient is the sum of theirs, each
    rounded."""
    times = Counter(id(tensor) for tensor in tensors(args) if tensor.requires_grad)
    return {f"gradient {i}": count for i, count in enumerate(times.values()) if count > 1}


def _compare_draws(
    draws: list[Draw],
    terms: Mapping[str, int],
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
            more = {"of_nothing": of_nothing, "terms": terms.get(name, 1)}
            errors[name] = compare(name, *zip(*values, strict=True), others, lost_here, besides[name], **more)
        except MismatchError as mismatch:
            mismatches.append(mismatch)
            if not allowed_errors:
                break
    if mismatches:
        raise mismatches[0]
    return errors


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
