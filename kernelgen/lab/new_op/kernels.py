"""Writes the kernels of an op too, where its function decomposes into operators that the recipes know."""

from collections.abc import Iterator
from typing import Any

from kernelgen.errors import KernelgenError
from kernelgen.lab.new_op import DERIVED
from kernelgen.lab.new_op.function_worker import FunctionWorker
from kernelgen.lab.new_op.request import NewOp
from kernelgen.lab.new_op.returned import ReturnedError, check_count
from kernelgen.lab.new_op.trace import NotTracedError, trace
from kernelgen.scaffold.formula.entry import kernels
from kernelgen.scaffold.formula.needs import lacking
from kernelgen.scaffold.formula.parts import first_of_results
from kernelgen.scaffold.schema.from_python.reference import Reference
from kernelgen.scaffold.schema.parser import parse


def with_kernels(
    op: NewOp,
    entry: dict[str, Any],
    function: Reference,
    worker: FunctionWorker,
    calls: list[dict[str, Any]] | None,
    dtypes: dict[str, str],
) -> dict[str, Any]:
    """The record of a recipe that writes the kernels; where the function does not decompose, `entry` as it is.

    Args:
        calls: the calls that --shapes describes, as `trace` takes them; None: --shapes was not given.
        dtypes: those of tensors of integers and truth values, by name.

    Raises:
        ReturnedError: the function returned another number of tensors than its annotation says.
    """
    try:
        traced = _traced(op, worker, calls, dtypes)
        schema = _with_results(op, function, entry["schema"], len(first_of_results(traced["paths"][0]["forward"])))
        facts = kernels(schema, traced)
        if lacks := lacking(op.home.renderer().folder, facts["traced"]):
            raise NotTracedError(f"that the project's template writes no {lacks}; `kernelgen update` brings them")
    except ReturnedError:
        raise
    except KernelgenError as reason:
        op.note(f"The kernels of {op.name} are yours to write. In the way was {str(reason).rstrip('.')}.")
        return entry
    if calls is None:
        for sentence in _assumed_shapes(traced["assumption"]):
            op.note(sentence)
    for sentence in _assumed_values(op.name, traced["assumption"]):
        op.note(sentence)
    for sentence in _limits(op.name, facts["traced"], are_shapes_given=calls is not None):
        op.note(sentence)
    return entry | facts


def _traced(
    op: NewOp, worker: FunctionWorker, calls: list[dict[str, Any]] | None, dtypes: dict[str, str]
) -> dict[str, Any]:
    recipes = [recipe for recipe in DERIVED if recipe in op.home.recipes()]
    if not recipes:
        raise NotTracedError("that the project's template has no recipe for it; `kernelgen update` brings one")
    with op.progress(f"tracing {op.name}"):
        return trace(worker, recipes, calls, dtypes)


def _with_results(op: NewOp, function: Reference, schema: dict[str, Any], count: int) -> dict[str, Any]:
    """The schema of a function that returned so many tensors, which only an annotation contradicts.

    Raises:
        ReturnedError: one does.
    """
    if count == len(schema["returns"]) or "its result" not in function.unsaid:
        check_count(op.name, len(schema["returns"]), count)
        return schema
    results = "Tensor" if count == 1 else f"({', '.join(['Tensor'] * count)})"
    text = f"{schema['text'].rpartition(' -> ')[0]} -> {results}"
    op.note(f'{op.name} returned {count} tensors: assumed "{text}"')
    return parse(text).entry()


def _assumed_shapes(assumption: dict[str, Any]) -> Iterator[str]:
    """What --shapes would have said of dtypes and dimensions."""
    if compared := assumption["compared"]:
        yield f"assumed {' and '.join(compared)} of floating-point numbers: write dtypes as --shapes if that is not so"
    if assumption.get("any_size"):
        points = [f"{name} of {cut['parts']}" for name, cut in assumption["cuts"].items()]
        dim = assumption.get("flat", {}).get("dim")
        what = "a last dimension" if dim is None else f"a dimension {dim}"
        yield f"assumed {what} of {' and '.join(points)}: write --shapes if that is not so"


def _assumed_values(name: str, assumption: dict[str, Any]) -> Iterator[str]:
    """What calls of the function showed of its tensors' dtypes and numbers."""
    for tensor, dtype in assumption["guessed"].items():
        yield f"assumed {tensor} of {dtype}: write dtypes as --shapes if that is not so"
    for tensor, (low, high) in assumption["domains"].items():
        why = f"{name} refuses some others, at which kernels do not look"
        if tensor in assumption["scaled"]:
            why = f"float32 has no results of {name} of numbers near 1, which tests draw otherwise"
        yield f"assumed {tensor} between {low} and {high}: {why}"
    if assumption["wide_alone"]:
        yield f"float32 has no results of {name} of numbers as tests draw: they are of float64 alone"


def _limits(name: str, traced: dict[str, Any], *, are_shapes_given: bool) -> Iterator[str]:
    """Which calls the kernels are for, and whether the gradient has kernels too."""
    if reason := traced.get("underived"):
        yield f"{name} has no gradient. In the way was {reason}."
    if reason := traced["composed"]:
        yield f"The gradient of {name} is PyTorch's of reference.py. In the way of its kernels was {reason}."
    if cases := ", ".join(traced.get("signature", {}).get("kernels_are_for", [])):
        yield f"The kernels of {name} are for {cases}; any other call runs reference.py."
    if (ranks := _ranks(traced)) and not are_shapes_given:
        yield f"The kernels of {name} are for {ranks}: write --shapes if you mean others."


def _ranks(traced: dict[str, Any]) -> str | None:
    """The tensors that kernels of rows take, in words, where the number of dimensions is limited."""
    least, most = (traced.get("rows", {}).get(key) for key in ("least", "most"))
    if not most:
        return None
    if "groups" in traced:  # Which are a dimension for the operator alone.
        least, most = least - 1, most - 1
    count = f"{least}" if least == most else f"{least} to {most}"
    return f"{traced['tensors'][0]['python']} of {count} dimension{'s' if most > 1 else ''}"
