"""Computes a traced graph with tensors."""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from kernelgen.worker.trace.cut import Cut
from kernelgen.worker.trace.graph import CODES, Sample, has_gradient, inverse, order_of
from kernelgen.worker.trace.symbols import BATCH, COLUMNS, EPSILON, ROWS

_ROWS = {"row_sum": torch.sum, "row_amax": torch.amax, "row_amin": torch.amin}
_PLACES = {"row_argmax": torch.argmax, "row_argmin": torch.argmin}
_NARROW = (torch.bfloat16, torch.float16)


def evaluate(
    graph: dict[str, Any],
    values: dict[str, Any],
    grads: list[Tensor],
    sample: Sample,
    shape: tuple[int, ...] | None = None,
) -> list[Tensor | None]:
    """The outputs of a graph, each broadcast to the shape that its kind says; `shape` is that of a part, if it is not
    the sample's."""
    shape = sample.shape if shape is None else shape
    shape = bordered(shape, graph["border"]) if "border" in graph else shape
    evaluation = _Evaluation(values, grads, sample, shape)
    for node in graph["nodes"]:
        arguments = [evaluation.value(argument) for argument in node["arguments"]]
        evaluation.computed.append(_compute(node["op"], arguments, sample))
    outputs = [None if output is None else evaluation.output(output) for output in graph["outputs"]]
    if "cuts" in graph:
        return _joined(graph, outputs, sample, evaluation.shape)
    pairs = zip(outputs, graph["outputs"], strict=True)
    return [None if value is None else _in_own_order(value, output, sample) for value, output in pairs]


class _Evaluation:
    """The tensors that arguments in a graph stand for, of which `computed` are those of its nodes so far."""

    def __init__(self, values: dict[str, Any], grads: list[Tensor], sample: Sample, shape: tuple[int, ...]) -> None:
        self._values = {**values, COLUMNS: sample.columns, ROWS: sample.rows, BATCH: sample.shape[0]}
        is_wide = any(value.dtype == torch.float64 for value in values.values() if isinstance(value, Tensor))
        self._values[EPSILON] = torch.finfo(torch.float64 if is_wide else torch.float32).eps
        self._grads, self._sample, self.shape = grads, sample, shape
        self._column_shape = [size if dim in sample.dims else 1 for dim, size in enumerate(sample.shape)]
        self.computed: list[Tensor] = []

    def output(self, output: dict[str, Any]) -> Tensor:
        value = self.value(output)
        return value.expand(self._sample.shape).sum(output["summed"]) if "summed" in output else value

    def value(self, argument: dict[str, Any]) -> Tensor:
        if "node" in argument:
            return self.computed[argument["node"]]
        if "place" in argument:
            return torch.arange(self._sample.columns).reshape(self._column_shape)
        if "coordinate" in argument:
            dim = argument["coordinate"]
            return torch.arange(self.shape[dim], dtype=torch.float64).reshape(-1, *[1] * (-1 - dim))
        if "inside" in argument:
            dim, distance = argument["inside"]
            places = torch.arange(self.shape[dim]).add(distance).reshape(-1, *[1] * (-1 - dim))
            return (places >= 0) & (places < self.shape[dim])
        if "shift" in argument:
            return self._neighbours(argument)
        if "grad" in argument:
            return self._arranged(self._gradient(argument), argument)
        if "input" in argument:
            return self._arranged(self._values[argument["input"]], argument)
        return self._number(argument)

    def _neighbours(self, argument: dict[str, Any]) -> Tensor:
        """The elements at a distance from each place; 0 where there is none."""
        value = self._gradient(argument) if "grad" in argument else self._values[argument["input"]]
        flips = argument.get("flips", (False, False))
        for dim, distance, is_flipped in zip((-2, -1), argument["shift"], flips, strict=True):
            if -dim > value.ndim:
                continue
            size, places = value.shape[dim], torch.arange(self.shape[dim])
            places = (size - 1 - places if is_flipped else places) + distance
            places = places % max(size, 1) if argument["wraps"] and distance else places
            is_there = ((places >= 0) & (places < size)).reshape(-1, *[1] * (-1 - dim))
            beyond = value.new_zeros([*value.shape[:dim], 1, *value.shape[value.ndim + dim + 1 :]])
            chosen = torch.cat([value, beyond], dim).index_select(dim, places.clamp(0, size))
            value = torch.where(is_there, chosen, torch.zeros_like(chosen))
        return value

    def _gradient(self, argument: dict[str, Any]) -> Tensor:
        value = self._grads[argument["grad"]]
        value = value.double() if value.dtype in _NARROW else value
        if "shift" in argument:
            return value
        value = _whole(value, argument, self._sample) if self.shape == self._sample.shape else value
        is_dropped = self._sample.of_points and value.ndim == len(self.shape) - 1
        return value.unsqueeze(-1) if is_dropped else value

    def _number(self, argument: dict[str, Any]) -> Tensor:
        value = argument["constant"] if "constant" in argument else self._values[argument["scalar"]]
        if argument.get("dtype") in CODES.values():
            return torch.tensor(value, dtype=getattr(torch, argument["dtype"]))
        return torch.tensor(value, dtype=torch.bool if isinstance(value, bool) else torch.float64)

    def _arranged(self, value: Tensor, argument: dict[str, Any]) -> Tensor:
        """A tensor of the function, or its part, with dimensions that meet those of the sample's shape."""
        sample, name = self._sample, argument.get("input")
        if order := sample.orders.get(name):
            value = value.permute(inverse(order))
        if "part" in argument and sample.split and name in sample.split.joined:
            value = _whole(value, argument, sample)
        if "part" in argument:
            value = Cut(**argument["cut"]).split(value)[argument["part"]]
        if name in sample.numbers:
            return value.unsqueeze(-1)
        if name in sample.spreads:
            return value.reshape(sample.spread_shape(name, keeps=True))
        if "part" in argument:
            return value
        if argument["kind"] == "element" and value.numel() == math.prod(sample.shape) and sample.split:
            return value.reshape(sample.shape)
        if argument["kind"] == "row":
            return value.reshape(sample.row_shape(keeps=True))
        return value.reshape(self._column_shape) if argument["kind"] == "column" else value


def bordered(shape: tuple[int, ...], border: list[int]) -> tuple[int, ...]:
    """The shape of results that are so much larger along the last two dimensions."""
    more = [0] * (len(shape) - 2) + border[-len(shape) :]
    return tuple(max(0, size + by) for size, by in zip(shape, more, strict=True))


def _in_own_order(value: Tensor, output: dict[str, Any], sample: Sample) -> Tensor:
    """A result whose dimensions come in the order that the function has them in."""
    if "summed" in output or output["kind"] != "element" or not (sample.split or "order" in output):
        return value
    return value.expand(sample.shape).permute(output.get("order", list(range(len(sample.shape)))))


def _whole(value: Tensor, argument: dict[str, Any], sample: Sample) -> Tensor:
    """A tensor of all elements as the operator has it: groups are a dimension, and dimensions come in its order."""
    whole = Cut(**argument["cut"]).whole(sample.shape) if "cut" in argument else sample.shape
    order = order_of(whole, value.shape)
    if order:
        return value.permute(inverse(order))
    return value.reshape(whole) if sample.split and value.numel() == math.prod(whole) else value


def _joined(
    graph: dict[str, Any], computed: list[Tensor | None], sample: Sample, shape: tuple[int, ...]
) -> list[Tensor | None]:
    """The results that these parts are of."""
    results: list[Tensor | None] = []
    first = 0
    for cut in (Cut(**cut) for cut in graph["cuts"]):
        parts, outputs = (values[first : first + cut.parts] for values in (computed, graph["outputs"]))
        first += cut.parts
        if any(part is None for part in parts):
            results.append(None)
        else:
            is_element = outputs[0]["kind"] in ("element", "scalar") and "summed" not in outputs[0]
            whole = cut.join([part.expand(shape) if is_element else part for part in parts])
            whole = whole.squeeze(-1) if outputs[0].get("dropped") else whole
            if outputs[0].get("joined"):
                whole = whole.reshape(sample.split.joined_shape(whole.shape, range(whole.ndim)))
            results.append(whole.permute(outputs[0]["order"]) if "order" in outputs[0] else whole)
    return results


def _compute(op: str, arguments: list[Tensor], sample: Sample) -> Tensor:
    if op in _ROWS:
        return _ROWS[op](arguments[0].expand(sample.shape), dim=sample.dims, keepdim=True)
    if op in _PLACES:
        rows = arguments[0].expand(sample.shape).movedim(sample.dims, tuple(range(-len(sample.dims), 0)))
        return _PLACES[op](rows.flatten(-len(sample.dims)), dim=-1).reshape(sample.row_shape(keeps=True))
    if op == "row_prod":
        rows = arguments[0].expand(sample.shape).movedim(sample.dims, tuple(range(-len(sample.dims), 0)))
        return rows.flatten(-len(sample.dims)).prod(-1).reshape(sample.row_shape(keeps=True))
    if op.startswith("running_"):
        return _running(op, arguments[0].expand(sample.shape), sample.dims[0])
    if op == "total":
        return arguments[0].expand(sample.row_shape(keeps=True)).sum()
    if op == "column_sum":
        others = [dim for dim in range(len(sample.shape)) if dim not in sample.dims]
        return arguments[0].expand(sample.shape).sum(others, keepdim=True)
    if op == "checked_zero":
        place = arguments[0].reshape(sample.row_shape(keeps=True))
        return torch.where((place >= 0) & (place < sample.columns), 0.0, math.nan).double()
    if (code := op.removeprefix("to_")) in CODES.values():
        return arguments[0].to(getattr(torch, code))
    if op == "trigamma":
        return torch.polygamma(1, arguments[0])
    if op == "to_float":
        return arguments[0] if has_gradient(arguments[0]) else arguments[0].double()
    if op == "trunc_divide":
        return torch.div(*arguments, rounding_mode="trunc")
    return getattr(torch, op)(*arguments)


def _running(op: str, rows: Tensor, dim: int) -> Tensor:
    function = _SCANS[op.removeprefix("running_").removesuffix("_back")]
    return function(rows.flip(dim), dim).flip(dim) if op.endswith("_back") else function(rows, dim)


_SCANS: dict[str, Callable[[Tensor, int], Tensor]] = {
    "sum": torch.cumsum,
    "product": torch.cumprod,
    "max": lambda rows, dim: rows.cummax(dim).values,
    "min": lambda rows, dim: rows.cummin(dim).values,
    "log_sum": torch.logcumsumexp,
}
