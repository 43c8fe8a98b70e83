"""Traces a function, or its gradient, to a graph."""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.fx.experimental.proxy_tensor import get_proxy_mode, get_proxy_slot, make_fx

from kernelgen.worker.trace.coordinates import CoordinatesReader
from kernelgen.worker.trace.cut import Cut
from kernelgen.worker.trace.function import Function
from kernelgen.worker.trace.gradients import differentiable_by_rows
from kernelgen.worker.trace.graph import Graph, Sample, has_gradient, is_differentiable
from kernelgen.worker.trace.operators import decompositions, decompositions_but_moves
from kernelgen.worker.trace.parts import PartsReader
from kernelgen.worker.trace.reader import Reader
from kernelgen.worker.trace.refusals import RefusedError, phrase
from kernelgen.worker.trace.scalars import Numbers


def trace(function: Function, sample: Sample, direction: str, results: Sequence[Cut] = ()) -> Graph:
    """The graph of a function, or of its gradient by the gradients of its results and its arguments.

    Args:
        results: how each result is cut; only of the gradient of a function with such results or arguments.
    """
    tensors = sample.tensors()
    names: dict[str, str] = {}
    numbers = Numbers()

    def forward(*values: Tensor) -> tuple[Tensor, ...]:
        given = dict(zip(tensors, values, strict=True))
        with differentiable_by_rows():
            scalars = {name: numbers.scalar(name, value) for name, value in sample.values.items() if name not in given}
            outputs = function.call(*((given | scalars)[name] for name in sample.values))
        outputs = outputs if isinstance(outputs, (tuple, list)) else (outputs,)
        for output in outputs:
            if not isinstance(output, Tensor):
                raise RefusedError(f"a result that is no tensor but a {type(output).__name__}", 1)
        return tuple(outputs)

    def backward(*values: Tensor) -> tuple[Tensor | None, ...]:
        inputs = [value.requires_grad_(has_gradient(value)) for value in values[len(grads) :]]
        with torch.enable_grad():
            outputs = [output for output in forward(*inputs) if is_differentiable(output)]
        wanted = [value for value in inputs if value.requires_grad]
        return torch.autograd.grad(outputs, wanted, values[: len(grads)], allow_unused=True)

    def note(name: str, tensor: Tensor) -> None:
        mode = get_proxy_mode()
        proxy = get_proxy_slot(tensor, mode.tracer, None) if mode else None
        if proxy is not None:
            names[proxy.proxy.node.name] = name

    values = [value.clone() for value in tensors.values()]
    labels = [{"input": name, "kind": sample.kinds[name]} for name in tensors]
    cuts = [sample.cut(name) for name in tensors]
    grads: list[Tensor] = []
    if direction == "backward":
        leaves = [value.clone().requires_grad_(has_gradient(value)) for value in values]
        outputs = forward(*leaves)
        places = [i for i, output in enumerate(outputs) if is_differentiable(output)]
        grads = [torch.ones_like(outputs[i]) for i in places]
        kinds = [_kind(sample, outputs[i]) for i in places]
        labels = [{"grad": i, "kind": kind} for i, kind in zip(places, kinds, strict=True)] + labels
    table = decompositions() if sample.cuts is None else decompositions_but_moves()
    function.on_name = note
    try:
        traced = make_fx(
            backward if direction == "backward" else forward, decomposition_table=table, tracing_mode="fake"
        )(*grads, *values)
    except RefusedError:
        raise
    except Exception as error:
        raise RefusedError(phrase(error), 0) from error
    finally:
        function.on_name = None
    if sample.coordinates:
        reader = CoordinatesReader(sample, labels, names)
    elif sample.cuts is None:
        reader = Reader(sample, labels, names)
    else:
        wanted = None
        if direction == "backward":
            wanted = [cut for cut, value in zip(cuts, values, strict=True) if has_gradient(value)]
            cuts = [results[i] for i in places] + cuts
        cut_labels = [{**label, "cut": cut} for label, cut in zip(labels, cuts, strict=True)]
        reader = PartsReader(sample, cut_labels, names, wanted)
    graph = reader.read(traced.graph)
    graph.trees = numbers.trees
    return graph


def _kind(sample: Sample, output: Tensor) -> str:
    if sample.of_points and tuple(output.shape) == sample.shape[:-1]:
        return "element"
    if sample.cuts is not None and tuple(output.shape) not in (sample.row_shape(), sample.row_shape(keeps=True), ()):
        return "element"
    kind = sample.kind(output.shape)
    return "total" if kind == "scalar" else kind
