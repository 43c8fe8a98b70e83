"""Gives an op whose kernels are to be written the shapes of its tensors, learned by calls of its function."""

from functools import partial
from typing import Any

from kernelgen.errors import KernelgenError, UsageError
from kernelgen.lab.new_op import SHAPED
from kernelgen.lab.new_op.function_worker import FunctionWorker
from kernelgen.lab.new_op.request import NewOp
from kernelgen.lab.new_op.shapes import Learned, NotLearnedError, WritesError, learn
from kernelgen.scaffold.schema.from_python.reference import Reference, read, split_spec
from kernelgen.scaffold.shapes.entry import shaped
from kernelgen.scaffold.shapes.parser import parse


def with_learned_shapes(
    op: NewOp, entry: dict[str, Any], function: Reference, worker: FunctionWorker, spec: str
) -> dict[str, Any]:
    """The record of the recipe `shaped`; where no shapes are known, `entry` as it is, perhaps with `sides`.

    Args:
        spec: where the function is, as FILE.py:FUNCTION.

    Raises:
        UsageError: the function writes to its arguments or is not as --shapes says; or no shapes are known, and
            --backward needs them.
    """
    if not op.template_knows_shapes():
        return entry
    try:
        learned = _learn(op, function, worker)
    except WritesError as reason:
        path, name = split_spec(spec)
        schema = read(path, name, mutates=reason.names).schema
        raise UsageError(
            f"{name} writes to {' and '.join(reason.names)}, which annotations do not say; write `kernelgen add-op "
            f'{op.name} --schema "{schema.text}"`.'
        ) from reason
    except NotLearnedError as reason:
        return entry | _without_calls(op, function, reason)
    if learned.assumed:
        op.note(f'assumed --shapes "{learned.shapes.text}": give others where the tensors have other shapes')
    facts = shaped(
        op.name,
        learned.shapes,
        op.backward,
        docstring=function.docstring,
        drawn=learned.cases,
        least=learned.least,
        differentiable=learned.differentiable,
        drawing=learned.drawing,
        independent=learned.independent,
    )
    return entry | {"recipe": SHAPED} | facts


def _learn(op: NewOp, function: Reference, worker: FunctionWorker) -> Learned:
    """The shapes that are given, or that the function says of its tensors if its calls agree, or that calls show."""
    with op.progress(f"calling {op.name}"):
        call = partial(learn, worker, op.name, function.schema)
        if op.shapes is None and function.shapes:
            try:
                learned = call(function.shapes)
                op.note(f'took --shapes "{learned.shapes.text}" from what {function.name} says of its tensors')
                return learned
            except KernelgenError as reason:
                sentence = str(reason).partition("\n")[0]
                op.note(f'{function.name} says of its tensors "{function.shapes}", which was not used: {sentence}')
        return call(op.shapes)


def _without_calls(op: NewOp, function: Reference, reason: NotLearnedError) -> dict[str, Any]:
    """What the record holds where no call showed shapes: those that are given, or the sides that tests may draw.

    Raises:
        UsageError: --backward needs shapes.
    """
    if op.shapes is not None:
        op.note(f"--shapes was not held against the function: {reason}.")
        facts = shaped(op.name, parse(op.shapes, function.schema), op.backward, docstring=function.docstring)
        return {"recipe": SHAPED} | facts
    if op.backward is not None:
        raise UsageError(f"--backward needs shapes, so write them as --shapes. In the way was {reason}.") from reason
    op.note(f"The shapes of {op.name} are not known, so write them as --shapes. In the way was {reason}.")
    return {} if reason.sides is None else {"sides": reason.sides}
