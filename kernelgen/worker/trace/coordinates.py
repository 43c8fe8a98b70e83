"""Graphs of functions whose values depend on where an element lies: along the last dimension, or the one before.

A coordinate is what arange is of, wherever views of it put the elements: {"coordinate": -1} or -2.
"""

import math
from typing import Any

from torch import Tensor, fx

from kernelgen.worker.trace.graph import Sample, constant
from kernelgen.worker.trace.operators import COMPARISONS, PLACED, SAME, in_words, operator_of, spelled
from kernelgen.worker.trace.reader import Reader
from kernelgen.worker.trace.refusals import UNKNOWN_OPERATOR, RefusedError

_DIMENSIONS = (-1, -2)
_PERIODIC, _POWERS = ("sin", "cos", "tan"), ("exp", "exp2", "pow")


class CoordinatesReader(Reader):
    """Turns a graph of torch.fx into a Graph; what is computed of coordinates alone may have fewer dimensions, or
    sizes of 1, where the tensors have others."""

    def __init__(self, sample: Sample, labels: list[dict[str, Any]], names: dict[str, str]) -> None:
        super().__init__(sample, labels, names)
        self.placed: set[fx.Node] = set()  # What depends on no tensor.

    def _call(self, node: fx.Node) -> dict[str, Any]:
        if all(source in self.placed for source in node.all_input_nodes):
            self.placed.add(node)
        if spelled(node.target) == "prims.iota":
            return self._noted(node, self._places(node))
        source = node.args[0] if node.args and isinstance(node.args[0], fx.Node) else None
        if operator_of(node.target) in SAME and source in self.placed and not self._is_whole(source):
            return self._noted(node, self._moved(node, source))
        if operator_of(node.target) in COMPARISONS:
            self._refuse_numbers_beside_places(node)
            if (decided := self._decided(node)) is not None:
                return constant(decided)
        if operator_of(node.target) == "where" and "constant" in self._argument(node.args[0]):
            return self._argument(node.args[1 if self._argument(node.args[0])["constant"] else 2])
        if operator_of(node.target) in PLACED and "coordinate" in self.known.get(node.args[2], {}):
            return self._placed_on_diagonal(node)
        if operator_of(node.target) in _PERIODIC and self._is_exponential(node.args[0]):
            raise RefusedError("an angle that is an exponential of places, of which float32 has few digits", 3)
        return super()._call(node)

    def _decided(self, node: fx.Node) -> bool | None:
        """Whether a coordinate is a number, of which none is below 0, as where a loss ignores a target; None of any
        other comparison."""
        name, known = operator_of(node.target), [self._argument(argument) for argument in node.args]
        is_beyond = "coordinate" in known[0] and known[1].get("constant", 0) < 0
        return name == "ne" if is_beyond and name in ("eq", "ne") else None

    def _placed_on_diagonal(self, node: fx.Node) -> dict[str, Any]:
        """An element of each row whose place is the row's own, as targets of a contrastive loss are."""
        tensor, dim, index = node.args[:3]
        name, rank = operator_of(node.target), len(self.sample.shape)
        is_own = self.known[index]["coordinate"] == -2 and dim % rank == rank - 1 and self.sample.dims == (rank - 1,)
        others = [self._argument(tensor)] if name == "gather" else [self._argument(node.args[3]), self.known[tensor]]
        # Of more rows than columns, some would lack their element.
        if not is_own or rank != 2 or self.sample.shape[-1] != self.sample.shape[-2]:
            raise RefusedError(f"{in_words(node.target)} at places that are coordinates", UNKNOWN_OPERATOR)
        if name != "gather" and others[1].get("constant") != 0:
            raise RefusedError(f"{in_words(node.target)} on other numbers than zeros", UNKNOWN_OPERATOR)
        value = node.meta["val"]
        wide = value.new_empty(()).expand(self.sample.shape)
        is_there = self._add("eq", [_coordinate(-1), _coordinate(-2)], wide.bool(), None, "element")
        chosen = self._add("where", [is_there, others[0], constant(0.0)], wide, None, "element")
        if name != "gather":
            return chosen
        return self._add("row_sum", [chosen], value, self.names.get(node.name), "row")

    def _is_exponential(self, node: fx.Node) -> bool:
        """Whether it is computed of a power or an exponential of what depends on coordinates alone."""
        reached: set[fx.Node] = set()
        pending = [node]
        while pending:
            inner = pending.pop()
            if inner not in reached:
                reached.add(inner)
                pending += inner.all_input_nodes
        of_places = {inner for inner in reached & self.placed if inner.all_input_nodes}
        return any(operator_of(inner.target) in _POWERS for inner in of_places)

    def _refuse_numbers_beside_places(self, node: fx.Node) -> None:
        """What a coordinate is compared with counts elements: an argument of integers is meant."""
        known = [self.known[source] for source in node.all_input_nodes]
        names = [argument["input"] for argument in known if argument["dtype"] == "float" and "input" in argument]
        if names and any(source in self.placed for source in node.all_input_nodes):
            raise RefusedError(f"that it compares places with {names[0]}", UNKNOWN_OPERATOR)

    def _places(self, node: fx.Node) -> dict[str, Any]:
        start, step, value = node.kwargs["start"], node.kwargs["step"], node.meta["val"]
        places = _coordinate(-1)
        if step != 1:
            places = self._add("mul", [places, constant(float(step))], value)
        return self._add("add", [places, constant(float(start))], value) if start else places

    def _is_whole(self, node: fx.Node) -> bool:
        """Whether a tensor is as large as the arguments, or a number."""
        return tuple(node.meta["val"].shape) == self.sample.shape or node.meta["val"].numel() == 1

    def _moved(self, node: fx.Node, source: fx.Node) -> dict[str, Any]:
        """A view of what is computed of coordinates."""
        before, after = (_without_leading(tensor.meta["val"]) for tensor in (source, node))
        known = self.known[source]
        if before == after or known["kind"] == "scalar" or _stretches(before, after):
            return known
        is_line = all(sum(size > 1 for size in shape) == 1 for shape in (before, after))
        if is_line and math.prod(before) == math.prod(after) and -len(after) in _DIMENSIONS:
            return self._along(known, -len(after))
        raise RefusedError(f"{in_words(node.target)} of what depends on coordinates", UNKNOWN_OPERATOR)

    def _along(self, known: dict[str, Any], dim: int) -> dict[str, Any]:
        """What is computed of the coordinates of one dimension, along another one."""
        if "coordinate" in known:
            return _coordinate(dim)
        if "node" not in known:
            return known
        computed = self.graph.nodes[known["node"]]
        self.graph.nodes.append({**computed, "arguments": [self._along(a, dim) for a in computed["arguments"]]})
        return known | {"node": len(self.graph.nodes) - 1}


def _coordinate(dim: int) -> dict[str, Any]:
    return {"coordinate": dim, "dtype": "float", "kind": "element"}


def _without_leading(value: Tensor) -> tuple[int, ...]:
    """A shape without the dimensions of 1 before all others."""
    shape = tuple(value.shape)
    while shape and shape[0] == 1:
        shape = shape[1:]
    return shape


def _stretches(before: tuple[int, ...], after: tuple[int, ...]) -> bool:
    """Whether a shape broadcasts to another one."""
    pairs = zip(reversed(before), reversed(after), strict=False)
    return len(before) <= len(after) and all(size in (1, other) for size, other in pairs)
