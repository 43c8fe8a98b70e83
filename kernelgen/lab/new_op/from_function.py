"""The record of an op that is made from a PyTorch function."""

from typing import Any

from kernelgen.errors import KernelgenError
from kernelgen.lab.new_op import DERIVED
from kernelgen.lab.new_op.function_worker import FunctionWorker
from kernelgen.lab.new_op.kernels import with_kernels
from kernelgen.lab.new_op.learned import with_learned_shapes
from kernelgen.lab.new_op.request import NewOp
from kernelgen.lab.new_op.shapes import refuse_wrong
from kernelgen.scaffold.schema.from_python.reference import Reference, read, split_spec
from kernelgen.scaffold.schema.model import Schema
from kernelgen.scaffold.shapes import trials
from kernelgen.scaffold.shapes.cases import shape_in
from kernelgen.scaffold.shapes.dtypes import is_floating
from kernelgen.scaffold.shapes.operator import Operator
from kernelgen.scaffold.shapes.parser import parse


def from_function(op: NewOp, spec: str, *, is_blank: bool = False) -> dict[str, Any]:
    """The record of an op that computes what a function does.

    Args:
        spec: where the function is, as FILE.py:FUNCTION.
        is_blank: the kernels are the user's to write, even if the function decomposes.

    Raises:
        UsageError: there is no such function, no schema expresses its signature, or the op's options do not fit it.
        KernelgenError: nothing can call the function, and no skeleton was asked for.
    """
    function = read(*split_spec(spec))
    _note_assumptions(op, function)
    op.check_options(function.schema)
    calls = None
    if op.shapes is not None:
        calls = _calls(op.shapes, function)  # What is wrong with it is said before anything is traced.
    schema, reference = function.schema.entry(), function.source_as(op.name)
    entry = {"name": op.name, "recipe": "blank", "schema": schema, "reference": reference}
    if not _can_have_shapes(function.schema):
        op.note(
            f"The kernels of {op.name} are yours to write: they are written for functions that take a Tensor, "
            "which is no list and always given, and return tensors alone."
        )
        return entry
    with FunctionWorker(op.home.root, reference, op.name, schema["arguments"]) as worker:
        if not is_blank:
            _start(worker)
        if not is_blank and op.backward is None:
            if op.shapes is not None:
                refuse_wrong(worker, op.name, function.schema, op.shapes)  # In a moment; a trace takes seconds.
            entry = with_kernels(op, entry, function, worker, calls, _dtypes(op, function))
        if entry["recipe"] not in DERIVED:
            return with_learned_shapes(op, entry, function, worker, spec)
    if op.shapes is not None:
        op.note(f"The kernels of {op.name} are written, for these shapes and others: --shapes was left out.")
    return entry


def _start(worker: FunctionWorker) -> None:
    """What is stamped would depend on the environment otherwise, and the command would end well without kernels."""
    try:
        worker.start()
    except KernelgenError as error:
        raise KernelgenError(f"{str(error).rstrip('.')}. Or have a skeleton, by --recipe blank.") from error


def _note_assumptions(op: NewOp, function: Reference) -> None:
    if function.packages:
        packages = ", ".join(function.packages)
        op.note(f"{function.name} imports {packages}; add them to `dependencies` in pyproject.toml.")
    if function.unsaid:
        parts = " and ".join(filter(None, (", ".join(function.unsaid[:-1]), function.unsaid[-1])))
        op.note(f'assumed "{function.schema.text}": annotate {parts} if that is not so')


def _calls(text: str, function: Reference) -> list[dict[str, Any]]:
    """Shapes and dtypes of arguments, and shapes of results, that --shapes describes."""
    operator = Operator(function.name, "forward", parse(text, function.schema))
    return [
        {
            "arguments": {tensor.name: shape_in(tensor.shape, case) for tensor in operator.tensors},
            "dtypes": {tensor.name: tensor.dtype for tensor in operator.tensors},
            "results": [shape_in(result.shape, case) for result in operator.results],
        }
        for case in trials.test_cases(operator)
    ]


def _dtypes(op: NewOp, function: Reference) -> dict[str, str]:
    """The dtypes of tensors of integers and truth values, by name: from --shapes, or what the function says of them."""
    if op.shapes is not None:
        return _dtypes_in(op.shapes, function)
    return {**function.dtypes, **_dtypes_in(function.shapes, function)}


def _dtypes_in(shapes: str, function: Reference) -> dict[str, str]:
    if not shapes:
        return {}
    try:
        tensors = Operator(function.name, "forward", parse(shapes, function.schema)).tensors
    except KernelgenError:  # It is said where the shapes are used.
        return {}
    return {
        tensor.name: {"int": "int64"}.get(tensor.dtype, tensor.dtype)
        for tensor in tensors
        if not is_floating(tensor.dtype)
    }


def _can_have_shapes(schema: Schema) -> bool:
    """Whether it takes a tensor that is always given, and returns tensors alone, so that shapes describe it."""
    takes_tensor = any(argument.type.kind == "tensor" for argument in schema.arguments)
    return takes_tensor and all(result.type.is_tensor for result in schema.returns)
