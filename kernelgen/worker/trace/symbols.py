"""Graphs of several samples as one, in which a constant that depends on an argument is an expression of it."""

import ctypes
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from kernelgen.worker.trace.graph import INTEGERS, Graph, Sample
from kernelgen.worker.trace.integers import OF_NUMBERS
from kernelgen.worker.trace.refusals import RefusedError
from kernelgen.worker.trace.scalars import Tree

# The elements of a row, the rows, and the size of the first dimension, among the scalars: no argument has such names.
COLUMNS, ROWS, BATCH = "row size", "row count", "batch size"
# Likewise the distance of 1 to the next number of the dtype that kernels compute in, float64 or float32.
EPSILON = "machine epsilon"
_TOLERANCE = 1e-9
_FUNCTIONS = {"sqrt": math.sqrt, "log": math.log, "log1p": math.log1p, "exp": math.exp}
_EPSILON_OF_FLOAT32 = 2.0**-23
_LARGEST_EXPONENT, _LARGEST_SLOPE = 80.0, 1e3


def merge(graphs: list[Graph], samples: list[Sample], numbers: Sequence[float] = ()) -> dict[str, Any]:
    """The graph that all of them are.

    Args:
        numbers: those that stand in the function's source, of which a constant may be a power.

    Raises:
        RefusedError: they differ in more than constants, or in constants that no simple expression gives.
    """
    first = graphs[0]
    if any(_skeleton(graph) != _skeleton(first) for graph in graphs):
        raise RefusedError("another path that it takes for other sizes or numbers", 3)
    merger = _Merger(samples, numbers, [graph.trees for graph in graphs])
    for i in range(len(first.nodes)):
        merger.node([graph.nodes[i] for graph in graphs])
    outputs = [merger.argument([graph.outputs[i] for graph in graphs]) for i in range(len(first.outputs))]
    merged = {"nodes": merger.nodes, "outputs": outputs}
    if first.border is not None:
        merged |= {"border": first.border, "least": first.least}
    if not first.cuts:
        return merged
    part_names = [[*part, name] for part, name in first.part_names.items()]
    return merged | {"cuts": [cut.as_dict() for cut in first.cuts], "part_names": part_names}


def with_epsilon(graph: dict[str, Any] | None) -> dict[str, Any] | None:
    """A merged graph with EPSILON in place of that number, as where rms_norm is given no eps."""
    if graph is None:
        return None
    symbol = {"scalar": EPSILON, "dtype": "float", "kind": "scalar"}

    def replaced(argument: dict[str, Any]) -> dict[str, Any]:
        value = argument.get("constant")
        return symbol if isinstance(value, float) and _in_float32(value) == _EPSILON_OF_FLOAT32 else argument

    nodes = [{**node, "arguments": list(map(replaced, node["arguments"]))} for node in graph["nodes"]]
    return {**graph, "nodes": nodes}


# That an author writes of a number which float32 has 7 of.
_MOST_DIGITS = 5


def _skeleton(graph: Graph) -> Any:
    """A graph without the values of its constants."""
    nodes = [{**node, "arguments": list(map(_bare, node["arguments"]))} for node in graph.nodes]
    return nodes, list(map(_bare, graph.outputs)), graph.cuts, graph.border, graph.least


def _bare(argument: dict[str, Any] | None) -> Any:
    return argument and {**argument, "constant": None} if argument and "constant" in argument else argument


class _Merger:
    def __init__(
        self, samples: list[Sample], numbers: Sequence[float], trees: Sequence[Mapping[float, list[Tree]]]
    ) -> None:
        self.trees = trees
        self.bases = [number for number in numbers if number > 0 and number != 1]
        self.nodes: list[dict[str, Any]] = []
        self.places: list[int] = []  # Of a node of the samples' graphs, among `nodes`.
        self.scalars = {COLUMNS: [float(sample.columns) for sample in samples]}
        self.scalars[ROWS] = [float(sample.rows) for sample in samples]
        self.scalars[BATCH] = [float(sample.shape[0]) for sample in samples]
        for name, value in samples[0].values.items():
            if isinstance(value, (int, float)) and not isinstance(value, bool):
                self.scalars[name] = [float(sample.values[name]) for sample in samples]

    def node(self, versions: list[dict[str, Any]]) -> None:
        arguments = [
            self.argument([version["arguments"][i] for version in versions])
            for i in range(len(versions[0]["arguments"]))
        ]
        if versions[0]["op"] in OF_NUMBERS and versions[0]["dtype"] in INTEGERS.values() and "scalar" in arguments[1]:
            raise RefusedError(f"{versions[0]['op']} of {versions[0]['dtype']} by an argument", 3)
        self.nodes.append({**versions[0], "arguments": arguments})
        self.places.append(len(self.nodes) - 1)

    def argument(self, versions: list[dict[str, Any] | None]) -> dict[str, Any] | None:
        first = versions[0]
        if first is None:
            return None
        if "node" in first:
            return {**first, "node": self.places[first["node"]]}
        if "constant" not in first:
            return first
        if all(_same(version["constant"], first["constant"]) for version in versions):
            return {**first, "constant": _as_written(first["constant"])}
        if first["dtype"] in INTEGERS.values():
            return self._integer([version["constant"] for version in versions], first["dtype"])
        return self._expression([version["constant"] for version in versions])

    def _integer(self, values: list[int], dtype: str) -> dict[str, Any]:
        """An int argument among integers of as many bits."""
        tree = self._common_tree(values)
        if dtype != "int64" or tree is None or tree[0] != "scalar":
            raise RefusedError(f"arithmetic of {dtype} with an argument, or with a size", 3)
        return {"scalar": tree[1], "dtype": dtype, "kind": "scalar"}

    def _expression(self, values: list[float]) -> dict[str, Any]:
        """What gives these values: as the function computed them, or a·s + b of a scalar s, of its square, its inverse,
        and a few others."""
        if tree := self._common_tree(values):
            return self._of_tree(tree)
        for name, scalars in self.scalars.items():
            if list(map(_in_float32, scalars)) == values:  # As rms_norm rounds its eps.
                return {"scalar": name, "dtype": "float", "kind": "scalar"}
        for name, scalars in self.scalars.items():
            symbol = {"scalar": name, "dtype": "float", "kind": "scalar"}
            if line := _line(scalars, values):
                return self._linear(symbol, *line)
            if all(scalars) and (line := _line([1 / s for s in scalars], values)):
                return self._linear(self._add("div", _number(1), symbol), *line)
            if line := _line([s * s for s in scalars], values):
                return self._linear(self._add("mul", symbol, symbol), *line)
            if all(s != 1 for s in scalars) and (line := _line([1 / (s - 1) for s in scalars], values)):
                less = self._add("sub", symbol, _number(1))
                return self._linear(self._add("div", _number(1), less), *line)
            if expression := self._of_function(symbol, scalars, values):
                return expression
        for name, scalars in self.scalars.items():
            for base in self.bases:
                if expression := self._of_power(base, name, scalars, values):
                    return expression
        for left, lefts in self.scalars.items():
            for right, rights in self.scalars.items():
                if expression := self._of_two(left, lefts, right, rights, values):
                    return expression
        for tree, results in self._common_trees():
            if line := _line(results, values):
                return self._linear(self._of_tree(tree), *line)
        raise RefusedError(
            "a number that depends on the sizes or on the scalar arguments in a way that is not known here", 3
        )

    def _common_tree(self, values: list[float]) -> Tree | None:
        """How the function computed these values, each in its sample; None where it did not, or differently. Of several
        the last: the min of two numbers rather than the lesser."""
        every = [trees.get(float(value), []) for trees, value in zip(self.trees, values, strict=True)]
        return next((tree for tree in reversed(every[0]) if all(tree in others for others in every[1:])), None)

    def _common_trees(self) -> Iterator[tuple[Tree, list[float]]]:
        """What the function computed of scalars in all samples, and its values."""
        every = [{tree: value for value, own in trees.items() for tree in own} for trees in self.trees]
        for tree in reversed(every[0]):
            if all(tree in values for values in every):
                yield tree, [values[tree] for values in every]

    def _of_tree(self, tree: Tree) -> dict[str, Any]:
        op, *arguments = tree
        if op == "scalar":
            return {"scalar": arguments[0], "dtype": "float", "kind": "scalar"}
        return _number(arguments[0]) if op == "number" else self._add(op, *map(self._of_tree, arguments))

    def _of_function(self, symbol: dict[str, Any], scalars: list[float], values: list[float]) -> dict[str, Any] | None:
        """A line of a function of a scalar, or of its inverse, as a scale by 1 / log1p(mu)."""
        for op, function in _FUNCTIONS.items():
            if min(scalars) <= 0 or max(scalars) > _LARGEST_EXPONENT:
                continue
            results = [function(s) for s in scalars]
            if line := _line(results, values):
                return self._linear(self._add(op, symbol), *line)
            if all(results) and (line := _line([1 / result for result in results], values)):
                return self._linear(self._add("div", _number(1), self._add(op, symbol)), *line)
        return None

    def _of_power(self, base: float, name: str, scalars: list[float], values: list[float]) -> dict[str, Any] | None:
        """A line of base**s, exact where that is a whole number; or of base**s - 1, which is exact in float32 where the
        power is near 1, as in 1 - 0.999**step."""
        rate = math.log(base)
        if name in (COLUMNS, ROWS, BATCH) or max(abs(rate * s) for s in scalars) > _LARGEST_EXPONENT:
            return None
        is_whole = base == int(base)
        line = _line([base**s if is_whole else math.expm1(rate * s) for s in scalars], values)
        # Powers that are all but 0 fit anything.
        if line is None or abs(line[0]) > _LARGEST_SLOPE * max(map(abs, values)):
            return None
        symbol = {"scalar": name, "dtype": "float", "kind": "scalar"}
        if is_whole:
            return self._linear(self._add("pow", _number(base), symbol), *line)
        return self._linear(self._add("expm1", self._add("mul", symbol, _number(rate))), *line)

    def _of_two(
        self, left: str, lefts: list[float], right: str, rights: list[float], values: list[float]
    ) -> dict[str, Any] | None:
        first, second = ({"scalar": name, "dtype": "float", "kind": "scalar"} for name in (left, right))
        for op, function in (
            ("mul", lambda a, b: a * b),
            ("div", lambda a, b: a / b if b else 0.0),
            ("add", lambda a, b: a + b),
            ("sub", lambda a, b: a - b),
            ("pow", lambda a, b: a**b if a > 0 and abs(b * math.log(a)) < _LARGEST_EXPONENT else 0.0),
        ):
            if line := _line([function(a, b) for a, b in zip(lefts, rights, strict=True)], values):
                return self._linear(self._add(op, first, second), *line)
        return None

    def _linear(self, symbol: dict[str, Any], slope: float, offset: float) -> dict[str, Any]:
        if slope == 1:
            scaled = symbol
        elif slope == -1 and offset:
            return self._add("sub", _number(offset), symbol)
        elif slope == -1:
            scaled = self._add("neg", symbol)
        else:
            scaled = self._add("mul", _number(slope), symbol)
        if not offset:
            return scaled
        return self._add("add", scaled, _number(offset)) if offset > 0 else self._add("sub", scaled, _number(-offset))

    def _add(self, op: str, *arguments: dict[str, Any]) -> dict[str, Any]:
        self.nodes.append({"op": op, "arguments": list(arguments), "dtype": "float", "kind": "scalar", "name": None})
        return {"node": len(self.nodes) - 1, "dtype": "float", "kind": "scalar"}


def _same(left: float, right: float) -> bool:
    return left == right or (left != left and right != right)


def _in_float32(value: float) -> float:
    return ctypes.c_float(value).value


def _as_written(value: Any) -> Any:
    """A number that PyTorch rounded to float32 as its author wrote it: 1e-6 for 9.999999974752427e-07."""
    if not isinstance(value, float) or not math.isfinite(value) or _in_float32(value) != value:
        return value
    texts = (float(f"{value:.{digits}g}") for digits in range(1, _MOST_DIGITS + 1))
    return next((text for text in texts if _in_float32(text) == value), value)


def _line(xs: list[float], ys: list[float]) -> tuple[float, float] | None:
    """The (a, b) with y = a·x + b for all pairs, or None."""
    other = next((i for i, x in enumerate(xs) if x != xs[0]), None)
    if other is None:
        return None
    slope = (ys[other] - ys[0]) / (xs[other] - xs[0])
    slope = round(slope, 12) if abs(slope - round(slope, 6)) < _TOLERANCE else slope
    offset = ys[0] - slope * xs[0]
    scale = max(map(abs, ys)) + abs(offset)
    if abs(offset) <= _TOLERANCE * scale:
        offset = 0.0
    elif abs(offset - round(offset, 6)) < _TOLERANCE:
        offset = round(offset, 6)
    fits = all(abs(slope * x + offset - y) <= 8 * _TOLERANCE * scale for x, y in zip(xs, ys, strict=True))
    return (slope, offset) if fits and slope else None


def _number(value: float) -> dict[str, Any]:
    return {"constant": float(value), "dtype": "float", "kind": "scalar"}
