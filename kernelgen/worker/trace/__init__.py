"""Traces a reference to the pointwise operators and reductions of rows that it is made of: forward, and its gradient.

The request's `source` is the text of a file, `function` names a function in it, and `arguments` are those of its
schema's entry. `calls`, if there are any, are what it has to take: shapes of the `arguments` and their `dtypes`, by
name, and the shapes of the `results`. `said` has the dtypes of arguments that are known to be integers or truth values.
The answer is what scaffold/formula/ reads (see graph.py), with the names of the `arguments` that kernels take.
"""

import itertools
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any

import torch

from kernelgen.worker.quiet import quiet
from kernelgen.worker.trace.assumption import Assumption
from kernelgen.worker.trace.assumptions import assumptions, is_of_points
from kernelgen.worker.trace.cost import Budget, Cost
from kernelgen.worker.trace.cut import Cut
from kernelgen.worker.trace.domains import DomainSearch
from kernelgen.worker.trace.dtypes import by_name, of_integers
from kernelgen.worker.trace.flat import facts_of, longer_tensors, of_operator, parts_of_results
from kernelgen.worker.trace.foreign_operators import unknown_operator
from kernelgen.worker.trace.function import Function, load
from kernelgen.worker.trace.graphs import graphs_of
from kernelgen.worker.trace.groups import of_groups
from kernelgen.worker.trace.matrices import with_matrices
from kernelgen.worker.trace.refusals import (
    OF_INTEGERS,
    TAKES_INTEGERS,
    UNKNOWN_OPERATOR,
    AnySizeError,
    FinalError,
    NeighboursError,
    OtherRowsError,
    PathError,
    ReducesError,
    RefusedError,
    UnderivedError,
    UnknownOperatorError,
    of_call,
)
from kernelgen.worker.trace.shapes import MatrixError, refuse_matrices, refuse_other_dtypes, refuse_other_shapes
from kernelgen.worker.trace.signature import Arguments, taken
from kernelgen.worker.trace.sizes import refuse_unread_parts

# Of assumptions about several tensors there are thousands. Most functions that have kernels have them under the first.
# At these costs the search ends: under dtypes that names tell, under those that are assumed of any function,
# under others that are guessed, and where gradients are left to PyTorch. The functions that tests trace need up to
# 14,200; a thousand takes a quarter of a second.
_END_OF_NAMED, _END_OF_PLAIN, _END_OF_GUESSES, _END_OF_ALL = 6_000, 16_000, 18_000, 20_000
# Calls of a function that are tried to see its first operator.
_MOST_CALLS = 500
# So often a function refuses truth values before they are no longer tried.
_MOST_NO_MASKS = 3
# The weight of an operator that no kernel has, over all assumptions, at which a function is refused.
_MOST_UNKNOWN = 24
# Under so many assumptions a function takes another path before it is refused: each takes a second to see it.
_MOST_PATHS = 3


def traced(request: dict[str, Any]) -> dict[str, Any]:
    """The first assumption about dtypes and shapes that holds, and the graphs under it.

    Raises:
        RefusedError: none holds.
    """
    with quiet(), _one_thread():
        return _traced(request)


@contextmanager
def _one_thread() -> Iterator[None]:
    """Of numbers as few as a sample's, threads wait for each other longer than they compute."""
    usual = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(usual)


def _traced(request: dict[str, Any]) -> dict[str, Any]:
    """The same; of dtypes that names tell, of floating-point numbers, or else of integers."""
    arguments, said = request["arguments"], request.get("said") or {}
    cost = Cost()
    if (named := by_name(arguments, said)) and request.get("calls") is None:
        try:
            return _of_dtypes(request, said, named, Budget(cost, _END_OF_NAMED))
        except RefusedError:
            pass  # Names tell too much.
    try:
        return _of_dtypes(request, said, {}, Budget(cost, _END_OF_PLAIN))
    except RefusedError as refused:
        if str(refused) not in OF_INTEGERS or request.get("calls") is not None:
            raise
        budget = Budget(cost, _END_OF_GUESSES)
        for guessed in of_integers(arguments, said, request["source"]):
            if budget.is_spent:
                break
            with suppress(RefusedError):
                facts = _of_dtypes(request, said, guessed, budget)
                if str(refused) == TAKES_INTEGERS or _returns_integers(facts):
                    return facts
        raise


def _returns_integers(facts: dict[str, Any]) -> bool:
    """Whether no result is of floating-point numbers, as what is computed of those by `//` would be."""
    return not any("float" in output["dtype"] for output in facts["paths"][0]["forward"]["outputs"])


def _of_dtypes(
    request: dict[str, Any], said: dict[str, str], guessed: dict[str, str], budget: Budget
) -> dict[str, Any]:
    """The same under these dtypes."""
    facts = _of_any_arguments({**request, "said": {**said, **guessed}}, budget)
    facts["assumption"]["guessed"] = guessed
    return facts


def _of_any_arguments(request: dict[str, Any], budget: Budget) -> dict[str, Any]:
    reasons = []
    for arguments in taken(request["arguments"]):
        try:
            facts = _of_arguments(request, arguments, budget)
            return {**facts, "arguments": [argument["name"] for argument in arguments]}
        except FinalError:
            raise
        except RefusedError as refused:
            reasons.append(refused)
        if budget.is_spent:
            break
    raise max(reasons, key=lambda reason: reason.progress)  # Of several the first.


def _of_arguments(request: dict[str, Any], arguments: Arguments, budget: Budget) -> dict[str, Any]:
    """The same where kernels take these arguments."""
    function = load(request["source"], request["function"], arguments, budget.cost)
    if function.asks_device:
        raise FinalError(f"the question where a tensor lies, in `{function.line(function.asks_device)}`", 7)
    for name, table in function.tables.items():
        numbers = f"a tensor of {table.numel()} numbers in its file"
        raise FinalError(f"{name}, {numbers}, which kernels take as an argument", 7)
    try:
        return _searched(request, function, arguments, budget)
    except UnderivedError as refused:
        function.drop_gradient()
        facts = _searched(request, function, arguments, budget)
        facts["assumption"]["underived"] = str(refused)
        return facts


def _searched(request: dict[str, Any], function: Function, arguments: Arguments, budget: Budget) -> dict[str, Any]:
    """The graphs under the first assumption that holds."""
    search = _Search(function, request.get("calls"))
    if facts := search.first(_assumptions(function, arguments, request["recipes"], request.get("said")), budget):
        return facts
    reason = search.reason()
    if reason.progress == UNKNOWN_OPERATOR and (
        name := foreign_operator(function, arguments, request["recipes"], reason)
    ):
        raise RefusedError(name, UNKNOWN_OPERATOR)
    raise reason


class _Search:
    """The search for an assumption about a function's arguments that holds, and what was in the way of others.

    `plain`: the graphs of whole tensors as one row, which are taken if no vectors are. `matrix`: that a vector may be a
    matrix as well, so that what holds is looked for among tensors that are repeated."""

    def __init__(self, function: Function, calls: list[dict[str, Any]] | None) -> None:
        self._function, self._calls = function, calls
        self._domains = DomainSearch()
        self._reasons: list[RefusedError] = []
        self._forward_alone: list[Assumption] = []
        self._summing_all: list[Assumption] = []
        self._of_points: list[Assumption] = []
        self._reduces = False
        # How often the function refused truth values under each choice of dtypes.
        self._no_masks: Counter[tuple[str, ...]] = Counter()
        self._unknown: Counter[str] = Counter()  # The weights of operators that were in the way.
        self._paths = 0  # How often a function took another path, which it does under most assumptions then.
        self.plain: dict[str, Any] | None = None
        self.matrix: MatrixError | None = None

    def first(self, every: Iterable[Assumption], budget: Budget) -> dict[str, Any] | None:
        """The graphs under the first of these assumptions that holds, or else under a second choice.

        Raises:
            MatrixError: none holds, and kernels of vectors would take a matrix for one.
            FinalError: no other will hold.
        """
        for assumption in every:
            if self.is_over(assumption):
                break
            if self.is_needless(assumption):
                continue
            try:
                facts = self.attempt(assumption)
            except MatrixError as refused:
                self.matrix = refused
                facts = None
            if facts and (self.plain or not _may_be_of_vectors(facts)):
                return facts
            self.plain = self.plain or facts
            if budget.is_spent:
                break
        if self.plain:
            return self.plain
        if self.matrix:
            raise self.matrix
        return self.first_of_second_choices(budget.with_more(_END_OF_ALL - _END_OF_PLAIN))

    def first_of_second_choices(self, budget: Budget) -> dict[str, Any] | None:
        for assumption in self.second_choices():
            if facts := self.attempt(assumption):
                return facts
            if budget.is_spent:
                break
        return None

    def is_over(self, assumption: Assumption) -> bool:
        """Whether a tensor is rather of numbers whose gradient is PyTorch's than, as from this assumption on, of truth
        values; or the function took another path, or ran an operator that no kernel has, too often."""
        if self._paths >= _MOST_PATHS or max(self._unknown.values(), default=0) >= _MOST_UNKNOWN:
            return True
        return any(_masks(assumption) > _masks(other) for other in self._forward_alone)

    def is_needless(self, assumption: Assumption) -> bool:
        """Whether what is known of others tells that it does not hold, or is not wanted."""
        if self.plain and "column" not in assumption.kinds.values():
            return True
        if self.matrix and not assumption.spreads:
            return True
        if self._no_masks[tuple(assumption.dtypes.values())] >= _MOST_NO_MASKS:
            return True
        is_cut = assumption.cuts is not None and assumption.flat_dim is None
        return self._reduces and assumption.recipe == "pointwise" and not is_cut and not assumption.coordinates

    def attempt(self, assumption: Assumption) -> dict[str, Any] | None:
        """The graphs under an assumption; None where it does not hold.

        Raises:
            FinalError: no other will hold.
        """
        try:
            return _with_its_shapes(assumption, self._function, self._calls)
        except FinalError:
            raise
        except RefusedError as refused:
            self._note(assumption, refused)
            if isinstance(refused, AnySizeError) and is_of_points(assumption, self._function.point_size):
                return self.attempt(self._of_points.pop())
        except Exception as error:  # It does not take such arguments.
            own = of_operator(self._function, assumption)
            if not assumption.domains and (bounded := self._domains.bounded(own, assumption, error)):
                return self.attempt(bounded)
            self._no_masks[tuple(assumption.dtypes.values())] += "bool" in str(error).lower()
            self._reasons.append(reason := of_call(error, self._function.cut_from_front))
            if isinstance(reason, FinalError):
                raise reason from error
        return None

    def _note(self, assumption: Assumption, refused: RefusedError) -> None:
        # The plain case says more.
        if assumption.neighbours and not isinstance(refused, NeighboursError):
            refused.progress = min(refused.progress, 0)
        elif assumption.cuts is not None:
            refused.progress = min(refused.progress, UNKNOWN_OPERATOR)
        self._reasons.append(refused)
        self._paths += isinstance(refused, PathError)
        if isinstance(refused, UnknownOperatorError):
            self._unknown[str(refused)] += refused.weight
        if isinstance(refused, AnySizeError):
            self._of_points.append(replace(assumption, any_size=True))
        self._reduces = self._reduces or (isinstance(refused, ReducesError) and assumption.cuts is None)
        if refused.sums_all:
            self._summing_all.append(replace(assumption, sums_all=True))
        if refused.is_of_gradient:
            self._forward_alone.append(replace(assumption, composed=str(refused)))

    def second_choices(self) -> list[Assumption]:
        """What is assumed where nothing else holds. Under what else holds, targets are integers and not, as under the
        last of these, probabilities."""
        return [*self._of_points, *self._summing_all, *self._forward_alone]

    def reason(self) -> RefusedError:
        """Of the assumption that came furthest, which says most; of several the first, which is the plain case. Other
        rows are a reason only where they are in the way of every assumption."""
        return max(self._reasons, key=lambda reason: (reason.progress, not isinstance(reason, OtherRowsError)))


def _assumptions(
    function: Function, arguments: Arguments, recipes: list[str], said: dict[str, str] | None
) -> Iterator[Assumption]:
    """The assumptions, each with scalars that the function does not refuse."""
    has_scalars = any(argument["type"] in ("float", "int", "SymInt") for argument in arguments)
    for assumption in _every(function, arguments, recipes, said):
        if has_scalars:
            is_near = not _takes_its_scalars(of_operator(function, assumption), assumption)
            assumption = replace(assumption, near=is_near)
        yield assumption


def _every(
    function: Function, arguments: Arguments, recipes: list[str], said: dict[str, str] | None
) -> Iterator[Assumption]:
    """The assumptions: those about groups behind the plain case of rows; those about places in rows first where a loss
    takes these as well as probabilities."""
    has_groups = function.may_split
    every: Iterable[Assumption] = assumptions(
        arguments,
        recipes,
        function.may_cut,
        function.may_index,
        function.repeated,
        function.may_permute,
        said,
        _takes_numbers(function, next(assumptions(arguments, recipes, said=said))),
        function.point_size,
        function.may_shift,
    )
    if function.takes_classes:
        every = sorted(every, key=lambda assumption: "int" not in assumption.dtypes.values())
    for assumption in every:
        yield assumption
        if has_groups and assumption.recipe == "row_wise":
            yield from of_groups(assumption, function.counts, function.may_permute, function.may_cut)
            has_groups = False


def _takes_numbers(function: Function, plain: Assumption) -> bool:
    """Whether the function takes tensors of one shape whose elements are all numbers."""
    return any(_takes(function, plain.of_rank(rank)) for rank in (3, 4, 2))


def _takes(function: Function, assumption: Assumption) -> bool:
    try:
        function.call(*assumption.sample(0).values.values())
    except Exception:  # Of whatever it raises, the search tells.
        return False
    return True


def _takes_its_scalars(function: Function, assumption: Assumption) -> bool:
    """Whether no sample's scalars make the function raise what it does not raise near their defaults."""
    try:
        for k in range(4):
            function.call(*assumption.sample(k).values.values())
    except (AssertionError, ValueError, ArithmeticError):
        return False
    except Exception:  # It is not the scalars that it does not take.
        return True
    return True


def _masks(assumption: Assumption) -> int:
    return list(assumption.dtypes.values()).count("bool")


def _may_be_of_vectors(facts: dict[str, Any]) -> bool:
    """Whether all dimensions are a row because a tensor of all of them says so, as a weight that others give the shape
    of a row."""
    assumption, outputs = facts["assumption"], facts["paths"][0]["forward"]["outputs"]
    is_whole = assumption.get("rows") in ({"from": 0}, {"dims": [0]})
    return is_whole and len(assumption["kinds"]) > 1 and all(output["kind"] == "element" for output in outputs)


def foreign_operator(function: Function, arguments: Arguments, recipes: list[str], reason: RefusedError) -> str | None:
    """A phrase for the first operator of the function, as its author knows it, that is neither pointwise nor a
    reduction, or that the `reason` names."""
    for assumption in itertools.islice(assumptions(arguments, recipes), _MOST_CALLS):
        try:
            return unknown_operator(function, assumption.sample(0), str(reason))
        except Exception:  # It does not take such arguments.
            continue
    return None


def _with_its_shapes(assumption: Assumption, function: Function, calls: list[dict[str, Any]] | None) -> dict[str, Any]:
    """The graphs under an assumption whose kernels take the shapes that the function is called with."""
    for call in calls or ():
        refuse_other_dtypes(call["dtypes"], assumption.dtypes)
    if assumption.exact and assumption.flat_dim is None:
        assumption = with_matrices(function, assumption)
    flat = facts_of(function, assumption) if assumption.flat_dim is not None else None
    facts = graphs_of(assumption, of_operator(function, assumption))
    if assumption.recipe == "pointwise" and assumption.cuts is not None:
        facts["assumption"]["longer"] = longer_tensors(function, assumption)
    forward = facts["paths"][0]["forward"]
    if flat:
        counts = parts_of_results(function, assumption, [Cut(**cut) for cut in forward["cuts"]])
        facts["assumption"] |= {"any_size": flat.pop("any_size"), "flat": flat | {"results": counts}}
        if flat["exact"] and not calls:
            refuse_unread_parts(assumption, forward)
    if calls:
        refuse_other_shapes(function, facts["assumption"], assumption.sample(0), calls)
    elif not flat:
        refuse_matrices(function, assumption)
        if assumption.any_size:
            refuse_unread_parts(assumption, forward)
    return facts
