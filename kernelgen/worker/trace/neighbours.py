"""Graphs of functions that read the neighbours of an element: by shifted slices, by padding, by rolling, by flipping.

Each tensor in between is an expression of a place, and a window of places: element i of a dimension is the expression
at the place i + low. A slice moves the window, padding widens it, and chooses a number outside of what it was; where
tensors of different windows meet, the expression of one is shifted. A view has the expression of its whole, which a
write changes for all views. So all that is read are arguments, at a constant distance from the place: {"input": name,
"shift": [lines, columns]}, which is 0 outside of the tensor; or of a dimension that `wraps` the element from the other
end; `flips` are the dimensions that are counted from the last element on. {"inside": [dim, distance]} is whether there
is a place so far away.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, fx

from kernelgen.worker.trace.graph import Graph, constant, dtype_of_argument, filled
from kernelgen.worker.trace.operators import FILLED, REDUCTIONS, SCANS, in_words, operator_of
from kernelgen.worker.trace.placed_expressions import PlacedExpressions, Window, name_of
from kernelgen.worker.trace.refusals import UNKNOWN_OPERATOR, NeighboursError, RefusedError

# The same elements at the same places.
_COPIES = ("alias", "clone", "contiguous", "detach", "lift_fresh", "lift_fresh_copy", "expand", "view", "_unsafe_view")
_SHIFTED = (
    *("cat", "constant_pad_nd", "flip", "narrow", "roll", "select", "select_backward", "slice", "slice_backward"),
    "unsqueeze",
)
# What shares its elements with its argument, so that what is written to one is written to the other.
_VIEWS = ("alias", "detach", "narrow", "select", "slice", "unsqueeze", "view")


class NeighboursReader(PlacedExpressions):
    """Turns a graph of torch.fx into a Graph whose arguments are read at a distance."""

    def read(self, graph: fx.Graph) -> Graph:
        self.roots, self.written = _roots(graph)
        return super().read(graph)

    def _placeholder(self, node: fx.Node, label: dict[str, Any]) -> dict[str, Any]:
        value = node.meta["val"]
        if value.ndim != self.rank:
            raise RefusedError("a tensor of another rank, beside neighbours", UNKNOWN_OPERATOR)
        self.shapes[name_of(label)] = tuple(value.shape)
        self.windows[node] = tuple(Window(0, size) for size in value.shape)
        known = label | {"dtype": dtype_of_argument(value, label["kind"])}
        return known | {"shift": [0] * self.rank, "wraps": [], "flips": []}

    def _call(self, node: fx.Node) -> dict[str, Any]:
        name = _name(node)
        if name in _SHIFTED:
            return self._noted(node, getattr(self, f"_{name}")(node))
        if name in FILLED:
            if node in self.written:
                self.windows[node] = tuple(Window(0, size) for size in node.meta["val"].shape)
            return filled(name, node)
        if name in (*REDUCTIONS, *SCANS):
            is_apart = any(self._is_apart(source) for source in node.all_input_nodes)
            kind, of = (NeighboursError, " of neighbours of elements") if is_apart else (RefusedError, "")
            raise kind(in_words(node.target) + of, UNKNOWN_OPERATOR + is_apart)
        if name in ("copy", "copy_"):
            return self._copied(node, name)
        if name in ("slice_scatter", "select_scatter"):
            return self._noted(node, self._scattered(node, name))
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
            self.known[source] = self._moved(node, source, self.windows[tensors[0]])
        known = call(node)
        self.known = before
        if tensors:
            self.windows[node] = self.windows[tensors[0]]
        return known

    def _moved(self, node: fx.Node, source: fx.Node, windows: Sequence[Window]) -> dict[str, Any]:
        """A tensor's expression at places of other windows of the same sizes, for a node."""
        own = self.windows[source]
        if [window.is_dropped for window in own] != [window.is_dropped for window in windows]:
            raise RefusedError(in_words(node.target), UNKNOWN_OPERATOR)
        return self._shifted(self.known[source], [a.low - b.low for a, b in zip(own, windows, strict=True)])

    def _is_apart(self, node: fx.Node) -> bool:
        """Whether a tensor has other places than the arguments."""
        return any(
            window != Window(0, size)
            for window, size in zip(self.windows.get(node, ()), self.sample.shape, strict=False)
        )

    # ---- What is written to a part of a tensor

    def _copied(self, node: fx.Node, name: str) -> dict[str, Any]:
        """The elements of a tensor that are copied to another one; what is written to a view is its whole's."""
        target, source = node.args[:2]
        windows = self.windows.get(target)
        known = self.known[source]
        if source in self.windows:
            if windows is None or source.meta["val"].shape != target.meta["val"].shape:
                raise RefusedError(in_words(node.target), UNKNOWN_OPERATOR)
            known = self._moved(node, source, windows)
        elif known["kind"] != "scalar":
            raise RefusedError(in_words(node.target), UNKNOWN_OPERATOR)
        known = self._of_dtype(known, self.known[target]["dtype"])
        if windows is None:
            return known
        self.windows[node] = windows
        if name == "copy":
            return self._noted(node, known)
        root = self.roots.get(target, target)
        whole = self._overwritten(node.meta["val"], root, windows, known)
        for view in self.known:
            if view is root or self.roots.get(view) is root:
                self.known[view] = whole
        return whole

    def _scattered(self, node: fx.Node, name: str) -> dict[str, Any]:
        """A copy of a tensor of which a slice is other elements."""
        target, source, dim, *bounds = node.args
        if target not in self.windows:
            raise RefusedError(in_words(node.target), UNKNOWN_OPERATOR)
        windows, dim = list(self.windows[target]), self._dim(target, dim)
        low, size = windows[dim].low, windows[dim].size
        self.windows[node] = self.windows[target]
        if name == "select_scatter":
            index = bounds[0] % size
            windows[dim] = Window(low + index, 1, is_dropped=True)
            start, end = index, index + 1
        else:
            start, end, step = slice(*bounds).indices(size)
            windows[dim] = Window(low + start, end - start)
            if step != 1:
                raise RefusedError(in_words(node.target), UNKNOWN_OPERATOR)
        self._note_least(dim, size, start, end)
        known = self.known[source]
        if source in self.windows:
            known = self._moved(node, source, windows)
        elif known["kind"] != "scalar":
            raise RefusedError(in_words(node.target), UNKNOWN_OPERATOR)
        known = self._of_dtype(known, self.known[target]["dtype"])
        return self._overwritten(node.meta["val"], target, windows, known)

    def _of_dtype(self, known: dict[str, Any], dtype: str) -> dict[str, Any]:
        """What is written to a tensor of this dtype."""
        if "constant" in known and dtype in ("bool", "float"):
            return constant(bool(known["constant"]) if dtype == "bool" else float(known["constant"]))
        if known["dtype"] != dtype:
            raise RefusedError("what is written to a tensor of another dtype", UNKNOWN_OPERATOR)
        return known

    def _overwritten(
        self, value: Tensor, root: fx.Node, windows: Sequence[Window], known: dict[str, Any]
    ) -> dict[str, Any]:
        """What a tensor is of which the elements in these windows are overwritten."""
        before = self.known[root]
        for dim, (part, whole) in enumerate(zip(windows, self.windows[root], strict=True)):
            if part.low > whole.low:
                known = self._chosen(value, dim, part.low, before, known)
            if part.end < whole.end:
                known = self._chosen(value, dim, part.end, known, before)
        return known

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
        dim = self._dim(source, dim)
        windows = list(self.windows[source])
        low, size = windows[dim].low, windows[dim].size
        start, end, _ = slice(start, end).indices(size)
        if step != 1:
            raise RefusedError(in_words(node.target), UNKNOWN_OPERATOR)
        windows[dim] = Window(low + start, max(0, end - start))
        self.windows[node] = tuple(windows)
        self._note_least(dim, size, start, end)
        return self.known[source]

    def _dim(self, node: fx.Node, dim: int) -> int:
        """The dimension of the arguments that a tensor's is, which may lack some."""
        kept = [place for place, window in enumerate(self.windows[node]) if not window.is_dropped]
        return kept[dim]

    def _select(self, node: fx.Node) -> dict[str, Any]:
        source, dim, index = node.args
        if source not in self.windows:
            return self.known[source]
        dim = self._dim(source, dim)
        size = self.windows[source][dim].size
        index %= size
        windows = list(self.windows[source])
        windows[dim] = Window(windows[dim].low + index, 1, is_dropped=True)
        self.windows[node] = tuple(windows)
        self._note_least(dim, size, index, index + 1)
        return self.known[source]

    def _unsqueeze(self, node: fx.Node) -> dict[str, Any]:
        source, dim = node.args
        if source in self.windows:
            self.windows[node] = self._widened(node, source, dim % node.meta["val"].ndim)
        return self.known[source]

    def _widened(self, node: fx.Node, source: fx.Node, dim: int) -> tuple[Window, ...]:
        """The windows of a tensor that has a dimension again which it lacked."""
        windows = list(self.windows[source])
        for place, window in enumerate(windows):
            before = sum(not other.is_dropped for other in windows[:place])
            if window.is_dropped and before == dim:
                windows[place] = replace(window, is_dropped=False)
                return tuple(windows)
        raise RefusedError(in_words(node.target), UNKNOWN_OPERATOR)

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
        pairs = [(0, 0)] * (node.meta["val"].ndim - len(pairs)) + pairs
        return self._padded(node, source, self.windows.get(source), pairs, number)

    def _slice_backward(self, node: fx.Node) -> dict[str, Any]:
        source, sizes, dim, start, _, step = node.args
        if step != 1:
            raise RefusedError(in_words(node.target), UNKNOWN_OPERATOR)
        start = min(start % sizes[dim] if start < 0 else start, sizes[dim])
        pads = [(0, 0)] * len(sizes)
        pads[dim] = (start, sizes[dim] - start - source.meta["val"].shape[dim])
        return self._padded(node, source, self.windows.get(source), pads, 0.0)

    def _select_backward(self, node: fx.Node) -> dict[str, Any]:
        source, sizes, dim, index = node.args
        index, dim = index % sizes[dim], dim % len(sizes)
        pads = [(0, 0)] * len(sizes)
        pads[dim] = (index, sizes[dim] - index - 1)
        windows = self._widened(node, source, dim) if source in self.windows else None
        return self._padded(node, source, windows, pads, 0.0)

    def _padded(
        self,
        node: fx.Node,
        source: fx.Node,
        windows: Sequence[Window] | None,
        pads: Sequence[tuple[int, int]],
        number: float,
    ) -> dict[str, Any]:
        """A tensor, which has these windows, with a number around it."""
        if windows is None:
            if self.known[source].get("constant") == number:
                return self.known[source]
            raise RefusedError(in_words(node.target), UNKNOWN_OPERATOR)
        value, known = node.meta["val"], self.known[source]
        outside = constant(bool(number)) if known["dtype"] == "bool" else constant(float(number))
        padded = list(windows)
        kept = [dim for dim, window in enumerate(windows) if not window.is_dropped]
        for dim, (left, right) in zip(kept, pads, strict=True):
            window = windows[dim]
            padded[dim] = Window(window.low - left, window.size + left + right)
            if left < 0 or right < 0:
                self._note_least(dim, window.size, max(0, -left), window.size - max(0, -right))
            if left > 0:
                known = self._chosen(value, dim, window.low, outside, known)
            if right > 0:
                known = self._chosen(value, dim, window.end, known, outside)
        self.windows[node] = tuple(padded)
        return known

    def _cat(self, node: fx.Node) -> dict[str, Any]:
        tensors, place = node.args[0], node.args[1] if len(node.args) > 1 else 0
        sizes = [tensor.meta["val"].shape[place] for tensor in tensors]
        main = sizes.index(max(sizes))
        if tensors[main] not in self.windows:
            raise RefusedError(in_words(node.target), UNKNOWN_OPERATOR)
        value, dim = node.meta["val"], self._dim(tensors[main], place)
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
                other = self._moved(node, tensors[i], places)
            if i < main:
                known = self._chosen(value, dim, low + sizes[i], other, known)
            else:
                known = self._chosen(value, dim, low, known, other)
        return known

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

    def _flip(self, node: fx.Node) -> dict[str, Any]:
        source, dims = node.args
        known = self.known[source]
        if source not in self.windows:
            return known
        self.windows[node] = self.windows[source]
        for dim in (self._dim(source, dim) for dim in dims):
            window = self.windows[source][dim]
            known = self._flipped(known, dim, window.low + window.end - 1)
        return known

    def _wrapped(self, node: fx.Node, leaf: dict[str, Any], dim: int, distance: int) -> dict[str, Any]:
        if "shift" not in leaf:
            if leaf.get("dim") == dim:
                raise RefusedError(in_words(node.target), UNKNOWN_OPERATOR)
            return leaf
        is_whole = self.shapes[name_of(leaf)][dim] == self.sample.shape[dim]
        if not is_whole or dim in leaf["flips"] or (leaf["shift"][dim] and dim not in leaf["wraps"]):
            raise RefusedError(in_words(node.target), UNKNOWN_OPERATOR)
        shift = list(leaf["shift"])
        shift[dim] -= distance
        return leaf | {"shift": shift, "wraps": sorted({*leaf["wraps"], dim})}


def _name(node: fx.Node) -> str:
    return operator_of(node.target) or getattr(node.target, "_schema", node.target).name.partition("::")[2]


def _roots(graph: fx.Graph) -> tuple[dict[fx.Node, fx.Node], set[fx.Node]]:
    """The tensor that each view is a part of, and the tensors to which something is written."""
    roots: dict[fx.Node, fx.Node] = {}
    written: set[fx.Node] = set()
    for node in graph.nodes:
        if node.op == "call_function" and isinstance(node.target, torch._ops.OpOverload):
            if _name(node) in (*_VIEWS, "copy_"):
                roots[node] = roots.get(node.args[0], node.args[0])
            if _name(node) == "copy_":
                written.add(roots[node])
    return roots, written
