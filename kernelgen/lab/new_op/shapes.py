"""Has a function called, to learn the shapes of its tensors or to check given ones."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

from kernelgen.errors import KernelgenError, LabError, UsageError
from kernelgen.lab.new_op.function_worker import FunctionWorker
from kernelgen.lab.new_op.returned import check_count
from kernelgen.scaffold.schema.model import Schema
from kernelgen.scaffold.shapes import trials
from kernelgen.scaffold.shapes.cases import Case, is_valid, shape_in, sizes_of
from kernelgen.scaffold.shapes.operator import Operator
from kernelgen.scaffold.shapes.parser import Shapes, parse

# Rows and columns of the tensors that the tests of `blank` draw.
_SIDES = (17, 20, 1, 0, 101)
# What `make` is told of tensors that may not require a gradient, and of those whose numbers lie between 0 and 1.
_FROZEN, _BOUNDED = "differentiable=False", "between=(0.1, 0.9)"


class NotLearnedError(KernelgenError):
    """The message is a sentence without its end: what was in the way. `sides`: of which rows and columns the function
    takes tensors that are alike, as the tests of `blank` draw them; None where it was not called."""

    def __init__(self, message: str, sides: list[int] | None = None) -> None:
        super().__init__(message)
        self.sides = sides


class WritesError(KernelgenError):
    """The function writes to the arguments of these names, which its annotations do not say."""

    def __init__(self, names: list[str]) -> None:
        super().__init__(f"that it writes to {' and '.join(names)}")
        self.names = names


@dataclass(frozen=True)
class Learned:
    """Shapes of a function; `assumed`: they were not given.

    `cases` are those of the tests that it takes, `least` the smallest of each size, `differentiable` the arguments that
    gradients reach, `drawing` what the tests' `make` is told of some, `independent` whether leading dimensions may be a
    batch.
    """

    shapes: Shapes
    cases: list[Case]
    least: dict[str, int]
    differentiable: list[str]
    drawing: dict[str, str]
    independent: bool
    assumed: bool


def learn(worker: FunctionWorker, function: str, schema: Schema, given: str | None) -> Learned:
    """The shapes of a function of this name, which the worker holds; `given` ones are held against it.

    Raises:
        NotLearnedError: none were learned, or nothing can be called there.
        UsageError: the function is not as the given shapes say.
        WritesError: it writes to its arguments.
    """
    try:
        return _learned(worker, function, schema, given)
    except LabError as error:
        raise NotLearnedError(str(error).rstrip(".")) from error


def refuse_wrong(worker: FunctionWorker, function: str, schema: Schema, text: str) -> None:
    """Raises UsageError where the function returns other tensors than these shapes say. A call that fails says nothing
    here."""
    operator = Operator(function, "forward", parse(text, schema))
    drawn = trials.test_cases(operator)[:2]
    try:
        results = worker.ask("results", calls=[trials.call(operator, case) for case in drawn])["results"]
    except LabError:  # Its file cannot be run, for one.
        return
    for case, result in zip(drawn, results, strict=True):
        if "shapes" in result:
            _refuse_other_results(operator, case, result)


def _learned(worker: FunctionWorker, function: str, schema: Schema, given: str | None) -> Learned:
    text = _shown(worker, function, schema) if given is None else given
    not_learned = partial(_not_learned, worker, schema, is_given=given is not None)
    with not_learned(f'that --shapes has no word for a dtype of "{text}"'):
        shapes = parse(text, schema)
        operator = Operator(function, "forward", shapes)
        drawn = trials.test_cases(operator)
    if given is None and len(drawn) < 2:
        raise NotLearnedError("that all its sizes are fixed")
    with not_learned(f'that "{shapes.text}", which some calls showed, is not so of others'):
        taken = _taken(worker, operator, drawn)
    least = _least(worker, operator, drawn[0])
    call = trials.call(operator, drawn[0])
    gradients, bounded = worker.ask("gradients", call=call), worker.ask("bounded", call=call)["names"]
    batched = trials.batched(operator)
    independent = batched is not None and worker.ask("independent", call=call, places=batched)["holds"]
    drawing = dict.fromkeys(gradients["refused"], _FROZEN)
    for name in bounded:
        drawing[name] = ", ".join([*filter(None, [drawing.get(name)]), _BOUNDED])
    return Learned(shapes, taken, least, gradients["names"], drawing, independent, given is None)


def _shown(worker: FunctionWorker, function: str, schema: Schema) -> str:
    """The text of the shapes that calls of the function show."""
    answer = worker.ask("learn")
    _refuse_writes(answer)
    if "reason" in answer:
        raise NotLearnedError(answer["reason"], _sides(worker, schema))
    check_count(function, len(schema.returns), answer["returned"])
    return answer["shapes"]


@contextmanager
def _not_learned(worker: FunctionWorker, schema: Schema, reason: str, *, is_given: bool) -> Iterator[None]:
    """A UsageError is of the shapes that were given; without such, none were learned, for this reason."""
    try:
        yield
    except UsageError as error:
        if is_given:
            raise
        raise NotLearnedError(reason, _sides(worker, schema)) from error


def _taken(worker: FunctionWorker, operator: Operator, drawn: list[Case]) -> list[Case]:
    """The cases that the function takes.

    Raises:
        UsageError: it is not as the shapes say.
        WritesError: it writes to its arguments.
    """
    results = worker.ask("results", calls=[trials.call(operator, case) for case in drawn])["results"]
    for result in results:
        _refuse_writes(result)
    answered = enumerate(zip(drawn, results, strict=True))
    return [case for place, (case, result) in answered if _is_taken(operator, case, result, place)]


def _least(worker: FunctionWorker, operator: Operator, case: Case) -> dict[str, int]:
    """The smallest of each size, from 0 to 3, at which the function takes the case."""
    sizes = sizes_of(operator.shapes)
    names = [name for name in sizes.free if name not in sizes.scalars]
    smaller = [(name, size, case | {name: size}) for name in names for size in range(3)]
    smaller = [(name, size, changed) for name, size, changed in smaller if is_valid(operator.shapes, changed)]
    calls = [trials.call(operator, changed) for _, _, changed in smaller]
    results = worker.ask("results", calls=calls)["results"]
    least = dict.fromkeys(names, 3)
    for (name, size, _), result in zip(smaller, results, strict=True):
        if "error" not in result:
            least[name] = min(least[name], size)
    return least


def _sides(worker: FunctionWorker, schema: Schema) -> list[int]:
    """Those of the sides of `blank` that it takes; none if it does not take the first two."""

    def made(argument: dict[str, Any], size: int) -> dict[str, Any]:
        if argument["kind"] == "other":
            return {"sample": argument["sample"]}
        return {"shape": [size, size], "dtype": "float32", "list": "list" in argument["kind"]}

    calls = [[made(argument, side) for argument in schema.entry()["arguments"]] for side in _SIDES]
    results = worker.ask("results", calls=calls)["results"]
    taken = [side for side, result in zip(_SIDES, results, strict=True) if "error" not in result]
    return taken if taken[:2] == list(_SIDES[:2]) else []


def _refuse_writes(answer: dict[str, Any]) -> None:
    if names := answer.get("written"):
        raise WritesError(names)


def _is_taken(operator: Operator, case: Case, result: dict[str, Any], place: int) -> bool:
    """Whether the function takes a case, as it must the first two; PyTorch's own functions return other shapes for some
    tensors without elements.

    Raises:
        UsageError: it does not, or it returns other tensors than the shapes say.
    """
    if "error" in result:
        if place < 2:
            arguments = _arguments(operator, case)
            raise UsageError(f"{operator.op} does not take {arguments}: {result['error']}. Other --shapes are needed.")
        return False
    is_empty = any(0 in shape_in(tensor.shape, case) for tensor in operator.tensors)
    shapes = [shape_in(r.shape, case) for r in operator.results]
    if is_empty and place >= 2 and len(shapes) == len(result["shapes"]) and shapes != [*map(tuple, result["shapes"])]:
        return False
    _refuse_other_results(operator, case, result)
    return True


def _refuse_other_results(operator: Operator, case: Case, result: dict[str, Any]) -> None:
    """Raises UsageError where a call of this case returned other tensors than the shapes say."""
    returned = list(zip(map(tuple, result["shapes"]), result["dtypes"], strict=True))
    if len(operator.results) != len(returned):
        raise UsageError(f"{operator.op} returns {len(returned)} tensors, and --shapes names {len(operator.results)}.")
    for value, (shape, dtype) in zip(operator.results, returned, strict=True):
        if (said := shape_in(value.shape, case)) != shape:
            raise UsageError(
                f"--shapes says that {value.name} is {value.shape}, so {said} of {_arguments(operator, case)}; the "
                f"function returns {shape}."
            )
        if value.dtype not in ("int", {"float32": "float"}.get(dtype), dtype):
            raise UsageError(f"--shapes says that {value.name} is of {value.dtype}; the function returns {dtype}.")


def _arguments(operator: Operator, case: Case) -> str:
    return ", ".join(f"{tensor.name} of shape {shape_in(tensor.shape, case)}" for tensor in operator.tensors)
