"""Expressions of a place whose arguments are read at distances from it, and how kernels read them."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor, fx

from kernelgen.worker.trace.graph import Sample, constant, refuse_other_dtype
from kernelgen.worker.trace.reader import Reader
from kernelgen.worker.trace.refusals import UNKNOWN_OPERATOR, NeighboursError, RefusedError

# The farthest that a neighbour lies.
_FARTHEST = 8
# The operators that a kernel computes for each element: of what is computed of neighbours' neighbours, there are soon
# thousands. And those of expressions at all places that come up while these are looked for.
_MOST_OPERATORS, _MOST_EXPRESSIONS = 500, 50_000


@dataclass(frozen=True)
class Window:
    """The places of a tensor along a dimension."""

    low: int
    size: int
    is_dropped: bool = False  # Whether the tensor lacks the dimension, of which it has a single place.

    @property
    def end(self) -> int:
        return self.low + self.size


class PlacedExpressions(Reader):
    """Turns expressions of places into a Graph whose arguments are read at a distance."""

    def __init__(self, sample: Sample, labels: list[dict[str, Any]], names: dict[str, str]) -> None:
        super().__init__(sample, labels, names)
        self.rank = len(sample.shape)
        # By node of torch.fx that is no number; the shapes of the arguments, by what they are called.
        self.windows: dict[fx.Node, tuple[Window, ...]] = {}
        self.shapes: dict[Any, tuple[int, ...]] = {}
        # The least sizes for which no slice ends before it is meant to.
        self.least = [0] * self.rank

    def _chosen(
        self, value: Tensor, dim: int, place: int, before: dict[str, Any], behind: dict[str, Any]
    ) -> dict[str, Any]:
        """What a tensor is before a place along a dimension, and from there on."""
        bound = {"bound": place, "dim": dim, "dtype": "bool", "kind": "element"}
        return self._add("where", [bound, behind, before], value, None, "element")

    # ---- Expressions at other places

    def _shifted(self, known: dict[str, Any], by: Sequence[int]) -> dict[str, Any]:
        """An expression of places that lie so far away."""

        def moved(leaf: dict[str, Any]) -> dict[str, Any]:
            if "shift" in leaf:
                along = [-b if dim in leaf["flips"] else b for dim, b in enumerate(by)]
                return leaf | {"shift": [a + b for a, b in zip(leaf["shift"], along, strict=True)]}
            return leaf | {"bound": leaf["bound"] - by[leaf["dim"]]} if "bound" in leaf else leaf

        return self._changed(known, moved, {}) if any(by) else known

    def _flipped(self, known: dict[str, Any], dim: int, ends: int) -> dict[str, Any]:
        """An expression of places that are counted from the other end: of `ends` less each."""

        def turned(leaf: dict[str, Any]) -> dict[str, Any]:
            if leaf.get("dim") == dim:
                return leaf | {"bound": ends - leaf["bound"] + 1, "is_before": not leaf.get("is_before", False)}
            if "shift" not in leaf:
                return leaf
            if dim in leaf["wraps"]:
                raise NeighboursError("a flip of elements that wrap around", UNKNOWN_OPERATOR + 1)
            shift, flips = list(leaf["shift"]), {*leaf["flips"]} ^ {dim}
            by = ends - self.shapes[name_of(leaf)][dim] + 1
            shift[dim] += by if dim in flips else -by
            return leaf | {"shift": shift, "flips": sorted(flips)}

        return self._changed(known, turned, {})

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

    def _within(
        self, known: dict[str, Any], places: tuple[tuple[int, int], ...], done: dict[Any, dict[str, Any]]
    ) -> dict[str, Any]:
        """An expression of these places alone, from a first to an end along each dimension: inside of a choice, another
        by a bound that does not part them is none."""
        if "node" not in known:
            return known
        key = (known["node"], places)
        if key not in done:
            computed = self.graph.nodes[known["node"]]
            first, *others = computed["arguments"]
            if computed["op"] != "where" or "bound" not in first:
                arguments = [self._within(argument, places, done) for argument in computed["arguments"]]
                done[key] = known if arguments == computed["arguments"] else self._appended(computed, arguments, known)
            else:
                done[key] = self._within_choice(known, first, others, places, done)
        return done[key]

    def _within_choice(
        self,
        known: dict[str, Any],
        bound: dict[str, Any],
        sides: Sequence[dict[str, Any]],
        places: tuple[tuple[int, int], ...],
        done: dict[Any, dict[str, Any]],
    ) -> dict[str, Any]:
        """A choice by a bound, of what is behind it and what is before."""
        dim, place = bound["dim"], bound["bound"]
        low, end = places[dim]
        if not low < place < end:
            self._note_ends(dim, low, end, place)
        ranges = [(max(low, place), end), (low, min(end, place))]
        chosen = [
            self._within(side, (*places[:dim], part, *places[dim + 1 :]), done) if part[0] < part[1] else None
            for side, part in zip(sides, ranges, strict=True)
        ]
        if None in chosen or chosen[0] == chosen[1]:
            return chosen[0] or chosen[1] or sides[0]
        return self._appended(self.graph.nodes[known["node"]], [bound, *chosen], known)

    def _note_ends(self, dim: int, low: int, end: int, place: int) -> None:
        """Notes the least size for which places at one end of a dimension do not meet a bound that counts from the
        other."""
        size, whole = self.domain[dim], self.sample.shape[dim]
        far = size // 2
        if 0 < place < size and (place > far >= end or place <= far < low):
            meeting = end + size - place if place > far else place + size - low
            self.least[dim] = max(self.least[dim], meeting - (size - whole))

    def _appended(
        self, computed: dict[str, Any], arguments: list[dict[str, Any]], known: dict[str, Any]
    ) -> dict[str, Any]:
        """A node as `computed`, of other arguments."""
        if len(self.graph.nodes) > _MOST_EXPRESSIONS:
            raise _too_many()
        self.graph.nodes.append({**computed, "arguments": arguments})
        return {**known, "node": len(self.graph.nodes) - 1}

    def _simplified(self, computed: dict[str, Any], known: dict[str, Any]) -> dict[str, Any]:
        """A node, or what it is where it chooses by a bound that is known, or that is the tensor's own."""
        if computed["op"] == "where":
            condition, chosen, other = computed["arguments"]
            if condition.get("is_before"):
                condition = {key: value for key, value in condition.items() if key != "is_before"}
                condition, chosen, other = computed["arguments"] = [condition, other, chosen]
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
        return self._appended(computed, computed["arguments"], known)

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
        if "shift" not in known or dim % self.rank in (*known["wraps"], *known["flips"]):
            return False
        shift, size = known["shift"][dim], self.shapes[name_of(known)][dim]
        return shift <= distance if distance < 0 else shift >= distance + size - self.domain[dim]

    def _is_wrapped(self, chosen: dict[str, Any], other: dict[str, Any], dim: int, distance: int) -> bool:
        """Whether the other is the same argument at the same distance, but wraps around where there is no place so far
        away."""
        if "shift" not in chosen or "shift" not in other or name_of(chosen) != name_of(other) or chosen["wraps"]:
            return False
        if chosen["flips"] or other["flips"]:
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
        if any(window.is_dropped for node in nodes if node is not None for window in self.windows[node]):
            raise RefusedError("a result that lacks a dimension, of neighbours of elements", UNKNOWN_OPERATOR)
        self.domain = next(iter(shapes), self.sample.shape)
        if any(a != b for a, b in list(zip(self.domain, self.sample.shape, strict=True))[:-2]):
            raise RefusedError("a shift along another dimension than the last two", UNKNOWN_OPERATOR)
        self.graph.border = [a - b for a, b in zip(self.domain, self.sample.shape, strict=True)][-2:]
        done: dict[int, dict[str, Any]] = {}
        for node in nodes:
            if node is None:
                self.graph.outputs.append(None)
                continue
            refuse_other_dtype(node.meta["val"], self.known[node])
            known = self._shifted(self.known[node], [window.low for window in self.windows[node]])
            known = self._within(known, tuple((0, size) for size in self.domain), {})
            known = self._changed(known, self._resolved, {} if "node" in known else done)
            self.graph.outputs.append(known | {"kind": "element", "keeps": False})
        self.graph.least = self.least[-2:]
        self._drop_unread()

    def _resolved(self, leaf: dict[str, Any]) -> dict[str, Any]:
        """An argument as kernels read it: at a distance in the last two dimensions."""
        if "bound" in leaf:
            return self._resolved_bound(leaf["dim"], leaf["bound"])
        if "shift" not in leaf:
            return leaf
        shift, wraps = list(leaf["shift"]), set(leaf["wraps"])
        for dim, size in enumerate(self.shapes[name_of(leaf)]):
            if (
                abs(shift[dim]) > size // 2 and dim not in leaf["flips"]
            ):  # From the other end, as where cat puts first elements behind the last.
                shift[dim] -= math.copysign(size, shift[dim])
                wraps.add(dim)
            shift[dim] = int(shift[dim])
            self._refuse_distance(dim, abs(shift[dim]))
            if dim in leaf["flips"] and dim < self.rank - 2:
                raise RefusedError("a flip of another dimension than the last two", UNKNOWN_OPERATOR)
        wraps = sorted(dim for dim in wraps if shift[dim])
        is_mixed = leaf["flips"] or any(distance and dim not in wraps for dim, distance in enumerate(shift))
        if wraps and is_mixed:
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
        if len(self.graph.nodes) > _MOST_OPERATORS:
            raise _too_many()
        self.graph.outputs = [out and self._as_read(out, places) for out in self.graph.outputs]

    def _as_read(self, argument: dict[str, Any], places: dict[int, int]) -> dict[str, Any]:
        if "node" in argument:
            return {**argument, "node": places[argument["node"]]}
        if "shift" not in argument:
            return argument
        lines, columns = [0, *argument["shift"]][-2:]
        read = {**argument, "shift": [lines, columns], "wraps": bool(argument["wraps"])}
        flips = read.pop("flips")
        return read | ({"flips": [dim in flips for dim in (self.rank - 2, self.rank - 1)]} if flips else {})


def _too_many() -> NeighboursError:
    return NeighboursError(
        f"more than {_MOST_OPERATORS} operators on neighbours for each element", UNKNOWN_OPERATOR + 1
    )


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


def name_of(leaf: dict[str, Any]) -> tuple[str, Any]:
    """What tells an argument, or a gradient of a result."""
    return ("grad", leaf["grad"]) if "grad" in leaf else ("input", leaf["input"])
