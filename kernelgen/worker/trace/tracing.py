"""Traces a function, or its gradient, to a graph."""

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor, fx
from torch.fx.experimental.proxy_tensor import get_proxy_mode, get_proxy_slot, make_fx

from kernelgen.worker.trace.checks import Answered, Answers
from kernelgen.worker.trace.coordinates import CoordinatesReader
from kernelgen.worker.trace.cut import Cut
from kernelgen.worker.trace.function import Function
from kernelgen.worker.trace.gradients import differentiable_by_rows
from kernelgen.worker.trace.graph import Graph, Sample, has_gradient, is_differentiable
from kernelgen.worker.trace.neighbours import NeighboursReader
from kernelgen.worker.trace.operators import decompositions, decompositions_but_moves, decompositions_of_neighbours
from kernelgen.worker.trace.pads import in_slices
from kernelgen.worker.trace.parts import PartsReader
from kernelgen.worker.trace.reader import Reader
from kernelgen.worker.trace.refusals import (
    OF_INTEGERS,
    UNKNOWN_OPERATOR,
    FinalError,
    RefusedError,
    UnderivedError,
    phrase,
    underived,
)
from kernelgen.worker.trace.scalars import Numbers


def trace(function: Function, sample: Sample, direction: str, results: Sequence[Cut] = ()) -> Graph:
    """The graph of a function, or of its gradient by the gradients of its results and its arguments.

    Args:
        results: how each result is cut; only of the gradient of a function with such results or arguments.
    """
    calls, tensors = _Calls(function, sample), sample.tensors()
    values = [value.clone() for value in tensors.values()]
    labels = [{"input": name, "kind": sample.kinds[name]} for name in tensors]
    cuts, cuts_of_outputs = [sample.cut(name) for name in tensors], None
    call, grads = calls.forward, {}
    if direction == "backward":
        call, grads = calls.backward, calls.grads()
        labels = [{"grad": place, "kind": _kind(sample, grad)} for place, grad in grads.items()] + labels
        cuts_of_outputs = [cut for cut, value in zip(cuts, values, strict=True) if has_gradient(value)]
        cuts = [results[place] for place in grads] + cuts if sample.cuts is not None else cuts
    traced, names = _traced(function, call, [*grads.values(), *values], sample)
    if sample.coordinates:
        reader = CoordinatesReader(sample, labels, names)
    elif sample.neighbours:
        reader = NeighboursReader(sample, labels, names)
    elif sample.cuts is None:
        reader = Reader(sample, labels, names)
    else:
        cut_labels = [{**label, "cut": cut} for label, cut in zip(labels, cuts, strict=True)]
        reader = PartsReader(sample, cut_labels, names, cuts_of_outputs)
    graph = reader.read(traced)
    graph.trees = calls.numbers.trees
    return graph


class _Calls:
    """A function, and its gradient, of tensors alone; the sample's scalars note what is computed of them."""

    def __init__(self, function: Function, sample: Sample) -> None:
        self._function, self._sample = function, sample
        self.numbers = Numbers()
        # What conditions that refuse arguments come to for the sample's numbers.
        with Answers(function.checked_lines) as answers:
            function.call(*sample.values.values())
        self._answers = answers.every

    def forward(self, *values: Tensor) -> tuple[Tensor, ...]:
        tensors = dict(zip(self._sample.tensors(), values, strict=True))
        scalars = {name: value for name, value in self._sample.values.items() if name not in tensors}
        lines = self._function.checked_lines
        by_slices = in_slices() if self._sample.neighbours else nullcontext()
        with differentiable_by_rows(), by_slices, Answered(lines, self._answers):
            given = tensors | {name: self.numbers.scalar(name, value) for name, value in scalars.items()}
            outputs = self._function.results({name: given[name] for name in self._sample.values})
        for output in outputs:
            if not isinstance(output, Tensor):
                raise RefusedError(f"a result that is no tensor but a {type(output).__name__}", 1)
        return tuple(outputs)

    def backward(self, *values: Tensor) -> tuple[Tensor | None, ...]:
        """The gradients by the arguments, which come behind the gradients of the results."""
        first = len(values) - len(self._sample.tensors())
        inputs = [value.requires_grad_(has_gradient(value)) for value in values[first:]]
        with torch.enable_grad():
            outputs = [output for output in self.forward(*inputs) if is_differentiable(output)]
        wanted = [value for value in inputs if value.requires_grad]
        return torch.autograd.grad(outputs, wanted, values[:first], allow_unused=True)

    def grads(self) -> dict[int, Tensor]:
        """Gradients of the results that are differentiated, by their places."""
        leaves = [value.clone().requires_grad_(has_gradient(value)) for value in self._sample.tensors().values()]
        outputs = enumerate(self.forward(*leaves))
        return {place: torch.ones_like(output) for place, output in outputs if is_differentiable(output)}


def _traced(
    function: Function, call: Callable[..., Any], values: Sequence[Tensor], sample: Sample
) -> tuple[fx.Graph, dict[str, str]]:
    """The graph of a call in PyTorch's operators, and the variables that hold its nodes, by their names."""
    names: dict[str, str] = {}

    def note(name: str, tensor: Tensor) -> None:
        mode = get_proxy_mode()
        proxy = get_proxy_slot(tensor, mode.tracer, None) if mode else None
        if proxy is not None:
            names[proxy.proxy.node.name] = name

    table = decompositions() if sample.cuts is None else decompositions_but_moves()
    table = decompositions_of_neighbours() if sample.neighbours else table
    function.on_name = note
    try:
        return _make_fx(call, table)(*values).graph, names
    except RefusedError:
        raise
    except Exception as error:
        if operator := underived(error):
            kind = FinalError if operator in OF_INTEGERS else UnderivedError
            raise kind(operator, UNKNOWN_OPERATOR) from error
        raise RefusedError(phrase(error), 0) from error
    finally:
        function.on_name = None


def _make_fx(call: Callable[..., Any], table: dict[Any, Any]) -> Callable[..., fx.GraphModule]:
    """A number may be a tensor that the function's file holds, which is none of the trace's."""
    return make_fx(call, decomposition_table=table, tracing_mode="fake", _allow_non_fake_inputs=True)


def _kind(sample: Sample, output: Tensor) -> str:
    is_of_points = sample.of_points and tuple(output.shape) == sample.shape[:-1]
    if is_of_points or sample.neighbours:
        return "element"
    if sample.cuts is not None and tuple(output.shape) not in (sample.row_shape(), sample.row_shape(keeps=True), ()):
        return "element"
    kind = sample.kind(output.shape)
    return "total" if kind == "scalar" else kind
