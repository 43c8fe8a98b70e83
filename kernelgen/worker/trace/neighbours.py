"""Graphs of functions that read the neighbours of an element: by shifted slices, by padding, by rolling.

Each tensor in between is an expression of a place, and a window of places: element i of a dimension is the expression
at the place i + low. A slice moves the window, padding widens it, and chooses a number outside of what it was; where
tensors of different windows meet, the expression of one is shifted. So all that is read are arguments, at a constant
distance from the place: {"input": name, "shift": [lines, columns]}, which is 0 outside of the tensor; or of a dimension
that `wraps` the element from the other end. {"inside": [dim, distance]} is whether there is a place so far away.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor, fx

from kernelgen.worker.trace.graph import Sample, constant, dtype_of_argument, refuse_other_dtype
from kernelgen.worker.trace.operators import FILLED, REDUCTIONS, SCANS, in_words, operator_of
from kernelgen.worker.trace.reader import Reader
from kernelgen.worker.trace.refusals import UNKNOWN_OPERATOR, NeighboursError, RefusedError

# The farthest that a neighbour lies.
_FARTHEST = 8
# The same elements at the same places.
_COPIES = ("alias", "clone", "contiguous", "detach", "lift_fresh", "lift_fresh_copy", "expand", "view", "_unsafe_view")
_SHIFTED = ("slice", "narrow", "slice_backward", "constant_pad_nd", "cat", "roll")


@dataclass(frozen=True)
class Window:
    """The places of a tensor along a dimension."""

    low: int
    size: int


class NeighboursReader(Reader):
    """Turns a graph of torch.fx into a Graph whose arguments are read at a distance."""

    def __init__(self, sample: Sample, labels: list[dict[str, Any]], names: dict[str, str]) -> None:
        super().__init__(sample, labels, names)
        self.rank = len(sample.shape)
        # By node of torch.fx that is no number; the shapes of the arguments, by what they are called.
        self.windows: dict[fx.Node, tuple[Window, ...]] = {}
        self.shapes: dict[Any, tuple[int, ...]] = {}
        # The least sizes for which no slice ends before it is meant to.
        self.least = [0] * self.rank

    def _placeholder(self, node: fx.Node, label: dict[str, Any]) -> dict[str, Any]:
        value = node.meta["val"]
        if value.ndim != self.rank:
            raise RefusedError("a tensor of another rank, beside neighbours", UNKNOWN_OPERATOR)
        self.shapes[_name(label)] = tuple(value.shape)
        self.windows[node] = tuple(Window(0, size) for size in value.shape)
        known = label | {"dtype": dtype_of_argument(value, label["kind"])}
        return known | {"shift": [0] * self.rank, "wraps": []}

    def _call(self, node: fx.Node) -> dict[str, Any]:
        name = operator_of(node.target) or getattr(node.target, "_schema", node.target).name.partition("::")[2]
        if name in _SHIFTED:
            return self._noted(node, getattr(self, f"_{name}")(node))
        if name in FILLED:
            return super()._call(node)
        if name in (*REDUCTIONS, *SCANS):
            is_apart = any(self._is_apart(source) for source in node.all_input_nodes)
            kind, of = (NeighboursError, " of neighbours of elements") if is_apart else (RefusedError, "")
            raise kind(in_words(node.target) + of, UNKNOWN_OPERATOR + is_apart)
        if name in _COPIES:
            source = node.args[0]
            is_same = source.meta["val"].shape == node.meta["val"].shape
            if not is_same and self.known[source]["kind"] != "scalar":
                raise RefusedError(in_words(node.target), UNKNOWN_OPERATOR)
            if source in self.windows:
                self.windows[node] = self.windows[source]
            return self._noted(node, self.known[source])
        return self._aligned(node, super()._call)

    def _aligned(self, node: fx.Node, call: Callable[[fx.Node], dict[str, Any]]) -> dict[str, Any]:
        """What is computed of tensors whose elements meet, at the places of the first."""
        tensors = [source for source in node.all_input_nodes if source in self.windows]
        before = dict(self.known)
        for source in tensors:
            if source.meta["val"].shape != node.meta["val"].shape:
                raise RefusedError(in_words(node.target), UNKNOWN_OPERATOR)
            self.known[source] = self._moved(source, self.windows[tensors[0]])
        known = call(node)
        self.known = before
        if tensors:
            self.windows[node] = self.windows[tensors[0]]
        return known

    def _moved(self, node: fx.Node, windows: Sequence[Window]) -> dict[str, Any]:
        """A tensor's expression at places of other windows of the same sizes."""
        own = self.windows[node]
        return self._shifted(self.known[node], [a.low - b.low for a, b in zip(own, windows, strict=True)])

    def _is_apart(self, node: fx.Node) -> bool:
        """Whether a tensor has other places than the arguments."""
        return any(
            window != Window(0, size)
            for window, size in zip(self.windows.get(node, ()), self.sample.shape, strict=False)
        )

    # ---- What moves elements

    def _slice(self, node: fx.Node) -> dict[str, Any]:
        source, dim, start, end, step = (*node.args, *(0, None, None, 1)[len(node.args) - 1 :])
        return self._cut(node, source, dim, start, end, step)

    def _narrow(self, node: fx.Node) -> dict[str, Any]:
        source, dim, start, length = node.args
        return self._cut(node, source, dim, start, start + length, 1)

    def _cut(self, node: fx.Node, source: fx.Node, dim: int, start: Any, end: Any, step: int) -> dict[str, Any]:
        if source not in self.windows:
            return self.known[source]
        dim %= self.rank
        windows = list(self.windows[source])
        low, size = windows[dim].low, windows[dim].size
        start, end, _ = slice(start, end).indices(size)
        if step != 1:
            raise RefusedError(in_words(node.target), UNKNOWN_OPERATOR)
        windows[dim] = Window(low + start, max(0, end - start))
        self.windows[node] = tuple(windows)
        self._note_least(dim, size, start, end)
        return self.known[source]

    def _note_least(self, dim: int, size: int, start: int, end: int) -> None:
        """Notes the least size of the dimension for a slice, whose ends are counted from the nearer one."""
        far, whole = size // 2, self.sample.shape[dim]
        if size <= whole // 2:
            return  # Of so many elements whatever the size.
        cut = start + (size - end) if end > far else end
        least = size - start if start > far else cut
        self.least[dim] = max(self.least[dim], least - (size - whole))

    def _constant_pad_nd(self, node: fx.Node) -> dict[str, Any]:
        source, pads = node.args[:2]
        number = node.args[2] if len(node.args) > 2 else 0.0
        pairs = [(pads[i], pads[i + 1]) for i in range(0, len(pads), 2)][::-1]
        return self._padded(node, source, [(0, 0)] * (self.rank - len(pairs)) + pairs, number)

    def _slice_backward(self, node: fx.Node) -> dict[str, Any]:
        source, sizes, dim, start, _, step = node.args
        if step != 1:
            raise RefusedError(in_words(node.target), UNKNOWN_OPERATOR)
        dim %= self.rank
        pads = [(0, 0)] * self.rank
        start = min(start % sizes[dim] if start < 0 else start, sizes[dim])
        pads[dim] = (start, sizes[dim] - start - source.meta["val"].shape[dim])
        return self._padded(node, source, pads, 0.0)

    def _padded(self, node: fx.Node, source: fx.Node, pads: Sequence[tuple[int, int]], number: float) -> dict[str, Any]:
        if source not in self.windows:
            if self.known[source].get("constant") == number:
                return self.known[source]
            raise RefusedError(in_words(node.target), UNKNOWN_OPERATOR)
        value, known = node.meta["val"], self.known[source]
        outside = constant(bool(number)) if known["dtype"] == "bool" else constant(float(number))
        windows = []
        for dim, (window, (left, right)) in enumerate(zip(self.windows[source], pads, strict=True)):
            windows.append(Window(window.low - left, window.size + left + right))
            if left < 0 or right < 0:
                self._note_least(dim, window.size, max(0, -left), window.size - max(0, -right))
            if left > 0:
                known = self._chosen(value, dim, window.low, outside, known)
            if right > 0:
                known = self._chosen(value, dim, window.low + window.size, known, outside)
        self.windows[node] = tuple(windows)
        return known

    def _cat(self, node: fx.Node) -> dict[str, Any]:
        tensors, dim = node.args[0], (node.args[1] if len(node.args) > 1 else 0) % self.rank
        sizes = [tensor.meta["val"].shape[dim] for tensor in tensors]
        main = sizes.index(max(sizes))
        if tensors[main] not in self.windows:
            raise RefusedError(in_words(node.target), UNKNOWN_OPERATOR)
        value = node.meta["val"]
        windows = list(self.windows[tensors[main]])
        first = windows[dim].low - sum(sizes[:main])
        windows[dim] = Window(first, sum(sizes))
        self.windows[node] = tuple(windows)
        known = self.known[tensors[main]]
        for i in [*range(main - 1, -1, -1), *range(main + 1, len(tensors))]:
            low = first + sum(sizes[:i])
            other = self.known[tensors[i]]
            if tensors[i] in self.windows:
                places = [*windows[:dim], Window(low, sizes[i]), *windows[dim + 1 :]]
                other = self._moved(tensors[i], places)
            if i < main:
                known = self._chosen(value, dim, low + sizes[i], other, known)
            else:
                known = self._chosen(value, dim, low, known, other)
        return known

    def _chosen(
        self, value: Tensor, dim: int, place: int, before: dict[str, Any], behind: dict[str, Any]
    ) -> dict[str, Any]:
        """What a tensor is before a place along a dimension, and from there on."""
        bound = {"bound": place, "dim": dim, "dtype": "bool", "kind": "element"}
        return self._add("where", [bound, behind, before], value, None, "element")

    def _roll(self, node: fx.Node) -> dict[str, Any]:
        source, distances, dims = (*node.args, [])[:3]
        if source not in self.windows:
            return self.known[source]
        known = self.known[source]
        distances, dims = (value if isinstance(value, (list, tuple)) else [value] for value in (distances, dims))
        for distance, dim in zip(distances, dims, strict=bool(dims)):
            dim %= self.rank
            if self.windows[source][dim] != Window(0, self.sample.shape[dim]):
                raise RefusedError(in_words(node.target), UNKNOWN_OPERATOR)
            known = self._changed(known, lambda leaf, dim=dim, by=distance: self._wrapped(node, leaf, dim, by), {})
        if not dims:
            raise RefusedError(in_words(node.target), UNKNOWN_OPERATOR)
        self.windows[node] = self.windows[source]
        return known

    def _wrapped(self, node: fx.Node, leaf: dict[str, Any], dim: int, distance: int) -> dict[str, Any]:
        if "shift" not in leaf:
            if leaf.get("dim") == dim:
                raise RefusedError(in_words(node.target), UNKNOWN_OPERATOR)
            return leaf
        is_whole = self.shapes[_name(leaf)][dim] == self.sample.shape[dim]
        if not is_whole or (leaf["shift"][dim] and dim not in leaf["wraps"]):
            raise RefusedError(in_words(node.target), UNKNOWN_OPERATOR)
        shift = list(leaf["shift"])
        shift[dim] -= distance
        return leaf | {"shift": shift, "wraps": sorted({*leaf["wraps"], dim})}

    # ---- Expressions at other places

    def _shifted(self, known: dict[str, Any], by: Sequence[int]) -> dict[str, Any]:
        """An expression of places that lie so far away."""

        def moved(leaf: dict[str, Any]) -> dict[str, Any]:
            if "shift" in leaf:
                return leaf | {"shift": [a + b for a, b in zip(leaf["shift"], by, strict=True)]}
            return leaf | {"bound": leaf["bound"] - by[leaf["dim"]]} if "bound" in leaf else leaf

        return self._changed(known, moved, {}) if any(by) else known

    def _changed(
        self, known: dict[str, Any], change: Callable[[dict[str, Any]], dict[str, Any]], done: dict[int, dict[str, Any]]
    ) -> dict[str, Any]:
        """An expression of other arguments."""
        if "node" not in known:
            return change(known)
        index = known["node"]
        if index not in done:
            computed = self.graph.nodes[index]
            arguments = [self._changed(argument, change, done) for argument in computed["arguments"]]
            done[index] = self._simplified({**computed, "arguments": arguments}, known)
        return done[index]

    def _simplified(self, computed: dict[str, Any], known: dict[str, Any]) -> dict[str, Any]:
        """A node, or what it is where it chooses by a bound that is known, or that is the tensor's own."""
        if computed["op"] == "where":
            condition, chosen, other = computed["arguments"]
            if "outside" in condition:
                inside = {"inside": condition["outside"], "dtype": "bool", "kind": "element"}
                condition, chosen, other = computed["arguments"] = [inside, other, chosen]
            if "constant" in condition:
                return chosen if condition["constant"] else other
            if "inside" in condition:
                if other.get("constant") == 0 and self._is_0_outside(chosen, *condition["inside"]):
                    return chosen
                if self._is_wrapped(chosen, other, *condition["inside"]):
                    return other
                computed = self._joined_choice(computed)
        self.graph.nodes.append(computed)
        return {**known, "node": len(self.graph.nodes) - 1}

    def _joined_choice(self, computed: dict[str, Any]) -> dict[str, Any]:
        """A choice by two bounds, where what is chosen is one with the same other number."""
        condition, chosen, other = computed["arguments"]
        inner = self.graph.nodes[chosen["node"]] if "node" in chosen else None
        if inner is None or inner["op"] != "where" or inner["arguments"][2] != other or "constant" not in other:
            return computed
        # Without a branch, which compilers make of `&&`, and do not always undo: they have no vectors then.
        both = {"op": "bitwise_and", "arguments": [condition, inner["arguments"][0]], "dtype": "bool"}
        self.graph.nodes.append({**both, "kind": "element", "name": None})
        joined = {"node": len(self.graph.nodes) - 1, "dtype": "bool", "kind": "element"}
        return {**computed, "arguments": [joined, inner["arguments"][1], other]}

    def _is_0_outside(self, known: dict[str, Any], dim: int, distance: int) -> bool:
        """Whether it is 0 wherever there is no place so far away, as an argument is that has no element there."""
        if "node" in known:
            node = self.graph.nodes[known["node"]]
            numbers = [a for a in node["arguments"] if math.isfinite(a.get("constant", math.inf))]
            others = [a for a in node["arguments"] if a not in numbers]
            is_scaled = node["op"] in ("neg", "mul") or (node["op"] == "div" and numbers == node["arguments"][1:])
            return is_scaled and len(others) == 1 and self._is_0_outside(others[0], dim, distance)
        if "shift" not in known or dim % self.rank in known["wraps"]:
            return False
        shift, size = known["shift"][dim], self.shapes[_name(known)][dim]
        return shift <= distance if distance < 0 else shift >= distance + size - self.domain[dim]

    def _is_wrapped(self, chosen: dict[str, Any], other: dict[str, Any], dim: int, distance: int) -> bool:
        """Whether the other is the same argument at the same distance, but wraps around where there is no place so far
        away."""
        if "shift" not in chosen or "shift" not in other or _name(chosen) != _name(other) or chosen["wraps"]:
            return False
        is_alone = [i for i, by in enumerate(chosen["shift"]) if by] == other["wraps"] == [dim % self.rank]
        return is_alone and chosen["shift"] == other["shift"] and chosen["shift"][dim] == distance

    # ---- Results

    def _read_outputs(self, nodes: Sequence[fx.Node | None]) -> None:
        shapes = {tuple(node.meta["val"].shape) for node in nodes if node is not None}
        if any(node is not None and node not in self.windows for node in nodes):
            raise RefusedError("a result that is no neighbour", UNKNOWN_OPERATOR)
        if len(shapes) > 1 or (self.of_gradient and shapes and shapes != {self.sample.shape}):
            raise NeighboursError("results of several sizes, of neighbours of elements", UNKNOWN_OPERATOR + 1)
        self.domain = next(iter(shapes), self.sample.shape)
        if any(a != b for a, b in list(zip(self.domain, self.sample.shape, strict=True))[:-2]):
            raise RefusedError("a shift along another dimension than the last two", UNKNOWN_OPERATOR)
        self.graph.border = [a - b for a, b in zip(self.domain, self.sample.shape, strict=True)][-2:]
        self.graph.least = self.least[-2:]
        done: dict[int, dict[str, Any]] = {}
        for node in nodes:
            if node is None:
                self.graph.outputs.append(None)
                continue
            refuse_other_dtype(node.meta["val"], self.known[node])
            known = self._shifted(self.known[node], [window.low for window in self.windows[node]])
            known = self._changed(known, self._resolved, {} if "node" in known else done)
            self.graph.outputs.append(known | {"kind": "element", "keeps": False})
        self._drop_unread()

    def _resolved(self, leaf: dict[str, Any]) -> dict[str, Any]:
        """An argument as kernels read it: at a distance in the last two dimensions."""
        if "bound" in leaf:
            return self._resolved_bound(leaf["dim"], leaf["bound"])
        if "shift" not in leaf:
            return leaf
        shift, wraps = list(leaf["shift"]), set(leaf["wraps"])
        for dim, size in enumerate(self.shapes[_name(leaf)]):
            if abs(shift[dim]) > size // 2:  # From the other end, as where cat puts first elements behind the last.
                shift[dim] -= math.copysign(size, shift[dim])
                wraps.add(dim)
            shift[dim] = int(shift[dim])
            self._refuse_distance(dim, abs(shift[dim]))
        wraps = sorted(dim for dim in wraps if shift[dim])
        if wraps and any(distance and dim not in wraps for dim, distance in enumerate(shift)):
            raise NeighboursError("neighbours of which some wrap around and others do not", UNKNOWN_OPERATOR + 1)
        return leaf | {"shift": shift, "wraps": wraps}

    def _resolved_bound(self, dim: int, bound: int) -> dict[str, Any]:
        """Whether a place is at a bound or behind it: counted from the nearer end, as the samples have other sizes."""
        size = self.domain[dim]
        if bound <= 0 or bound >= size:
            return constant(bound <= 0)
        is_near = bound <= size // 2
        self._refuse_distance(dim, bound if is_near else size - bound)
        where = {"inside": [dim - self.rank, -bound]} if is_near else {"outside": [dim - self.rank, size - bound]}
        return {**where, "dtype": "bool", "kind": "element"}

    def _refuse_distance(self, dim: int, distance: int) -> None:
        if distance and dim < self.rank - 2:
            raise RefusedError("a shift along another dimension than the last two", UNKNOWN_OPERATOR)
        if distance > _FARTHEST:
            raise NeighboursError(f"a neighbour farther away than {_FARTHEST}", UNKNOWN_OPERATOR + 1)

    def _drop_unread(self) -> None:
        """Leaves the nodes that outputs need, of arguments as kernels read them."""
        nodes, places = self.graph.nodes, {}
        pending = [output["node"] for output in self.graph.outputs if output and "node" in output]
        needed: set[int] = set()
        while pending:
            index = pending.pop()
            if index not in needed:
                needed.add(index)
                pending += [a["node"] for a in nodes[index]["arguments"] if "node" in a]
        self.graph.nodes = []
        # Of expressions that were changed, arguments come behind what was computed of them.
        for index in _in_order(nodes, needed):
            places[index] = len(self.graph.nodes)
            arguments = [self._as_read(a, places) for a in nodes[index]["arguments"]]
            self.graph.nodes.append({**nodes[index], "arguments": arguments})
        self.graph.outputs = [out and self._as_read(out, places) for out in self.graph.outputs]

    def _as_read(self, argument: dict[str, Any], places: dict[int, int]) -> dict[str, Any]:
        if "node" in argument:
            return {**argument, "node": places[argument["node"]]}
        if "shift" not in argument:
            return argument
        lines, columns = [0, *argument["shift"]][-2:]
        return {**argument, "shift": [lines, columns], "wraps": bool(argument["wraps"])}


def _in_order(nodes: Sequence[dict[str, Any]], needed: set[int]) -> list[int]:
    """Nodes, each behind its arguments."""
    done: dict[int, None] = {}

    def visit(index: int) -> None:
        if index not in done:
            for argument in nodes[index]["arguments"]:
                if "node" in argument:
                    visit(argument["node"])
            done[index] = None

    for index in sorted(needed):
        visit(index)
    return list(done)


def _name(leaf: dict[str, Any]) -> tuple[str, Any]:
    """What tells an argument, or a gradient of a result."""
    return ("grad", leaf["grad"]) if "grad" in leaf else ("input", leaf["input"])
