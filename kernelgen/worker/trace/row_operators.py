"""Operators that reduce the rows of a tensor, or pick an element of each by its place."""

import math
from collections.abc import Sequence
from typing import Any

from torch import Tensor, fx

from kernelgen.worker.trace.graph import constant
from kernelgen.worker.trace.node_writer import NodeWriter
from kernelgen.worker.trace.operators import SCANS, in_words
from kernelgen.worker.trace.refusals import OtherRowsError, RefusedError


class RowOperators(NodeWriter):
    def _reduced(self, name: str, node: fx.Node, value: Tensor) -> dict[str, Any]:
        source = node.args[0].meta["val"]
        dims = node.args[1] if len(node.args) > 1 else node.kwargs.get("dim")
        dims = list(range(source.ndim)) if dims is None or dims == [] else [dims] if isinstance(dims, int) else dims
        sizes = math.prod(source.shape[dim] for dim in dims)
        if name == "prod" and not value.is_floating_point():
            raise RefusedError("prod of whole numbers", 2)  # Which wraps around.
        if sizes == 1:
            return self._noted(node, self._argument(node.args[0]))
        argument = self._argument(node.args[0])
        if name == "sum" and (summed := self._summed_later(node, argument, dims)):
            return self._noted(node, argument | {"summed": summed})
        if self._reduces_repeated(source.shape, dims):
            return self._rows(name, argument, node, value)
        if tuple(source.shape) == self.sample.shape:
            reduced = tuple(sorted(dim % source.ndim for dim in dims))
        elif self.sample.split and tuple(source.shape) == self.sample.joined_shape():
            reduced = self.sample.split.dims_of_joined([dim % source.ndim for dim in dims], len(self.sample.shape))
        else:
            reduced = tuple(dim for dim, size in enumerate(self.sample.shape) if sizes % size == 0)
        kind = self.sample.kind(source.shape)
        if kind == "row" and sizes == self.sample.rows and name in ("sum", "mean"):
            return self._total(name, argument, node, value)
        if kind != "element":
            raise RefusedError(f"{name} of something else than whole rows", 2)
        if reduced == self.sample.dims:
            return self._rows(name, argument, node, value)
        if self.sample.sums_all and len(reduced) == len(self.sample.shape) and name in ("sum", "mean"):
            of_row = self._add("row_sum", [argument], value, None, "row")
            total = self._add("total", [of_row], value, None, "total")
            if name == "mean":
                total = self._add("div", [total, constant(math.prod(self.sample.shape))], value, None, "total")
            return self._noted(node, total)
        if set(reduced).isdisjoint(self.sample.dims) and name == "sum" and self._are_all_rows(reduced):
            return self._add("column_sum", [argument], value, self.names.get(node.name), "column")
        raise OtherRowsError(f"{name} over several sets of dimensions", reduced)

    def _summed_later(self, node: fx.Node, argument: dict[str, Any], dims: Sequence[int]) -> tuple[int, ...] | None:
        """The dimensions that are added up once kernels have computed the terms, where this sum, or a later one, leaves
        those of a tensor that is repeated; None of any other sum."""
        source, rank = node.args[0].meta["val"], len(self.sample.shape)
        is_known = source.ndim <= rank and argument["kind"] in ("element", "row")
        if not self.of_gradient or not self.sample.spreads or not is_known:
            return None
        if self._reduces_repeated(source.shape, dims):
            return None
        places = list(range(rank - source.ndim, rank))
        if tuple(source.shape) == self.sample.row_shape():
            places = [dim for dim in range(rank) if dim not in self.sample.dims]
        of_part = source.shape if self.sample.cuts is None else (*source.shape[:-1], self.sample.shape[-1])
        places = list(self.sample.order_of(of_part) or places)
        reduced = {places[dim] for dim in dims}
        if self.sample.split and tuple(source.shape) == self.sample.joined_shape():
            reduced = set(self.sample.split.dims_of_joined([dim % source.ndim for dim in dims], rank))
        summed = tuple(sorted(reduced | set(argument.get("summed", ()))))
        is_of_columns = set(summed).isdisjoint(self.sample.dims) and self._are_all_rows(summed)
        is_of_rows = set(summed) == set(self.sample.dims) or is_of_columns
        lacks = [set(range(rank)) - {dim + rank for dim in of} for of in self.sample.spreads.values()]
        if any(set(summed) == of for of in lacks):
            return summed
        return summed if any(set(summed) < of for of in lacks) and not is_of_rows else None

    def _reduces_repeated(self, shape: Sequence[int], dims: Sequence[int]) -> bool:
        """Whether a tensor of this shape, which is repeated along dimensions of no row, is reduced row by row."""
        for own in self.sample.spreads.values():
            own_dims = [dim + len(self.sample.shape) for dim in own]
            if tuple(shape) == tuple(self.sample.shape[dim] for dim in own_dims):
                return tuple(sorted(own_dims[dim % len(shape)] for dim in dims)) == self.sample.dims
        if len(shape) != len(self.sample.shape):
            return False
        repeated = {dim for dim, size in enumerate(shape) if size != self.sample.shape[dim]}
        is_repeated = bool(repeated) and bool(self.sample.spreads) and all(shape[dim] == 1 for dim in repeated)
        reduced = tuple(sorted(dim % len(shape) for dim in dims))
        return is_repeated and reduced == self.sample.dims and repeated.isdisjoint(reduced)

    def _total(self, name: str, argument: dict[str, Any], node: fx.Node, value: Tensor) -> dict[str, Any]:
        """The sum, or the mean, of a number of each row."""
        if "constant" in argument and not isinstance(argument["constant"], str):
            number = float(argument["constant"]) * (self.sample.rows if name == "sum" else 1)
            return self._noted(node, constant(number))
        if argument["kind"] != "row":  # The same number for all.
            argument = argument | {"kind": "row"}
        if argument["dtype"] == "bool":
            argument = self._add("to_float", [argument], node.args[0].meta["val"].double())
        argument = self._with_hidden_checks(argument, node.args[0].meta["val"].double())
        total = self._add("total", [argument], value, None, "total")
        if name == "mean":
            total = self._add("div", [total, constant(self.sample.rows)], value, None, "total")
        return self._noted(node, total)

    def _with_place(self, name: str, node: fx.Node, values: tuple[Tensor, ...]) -> dict[str, Any]:
        """The largest number of each row, and its place."""
        place = self._reduced(f"arg{name}", node, values[1])
        number = self._reduced(f"a{name}", node, values[0])
        self.pairs[node] = (number, place)
        return number

    def _running(self, name: str, node: fx.Node, value: Tensor) -> dict[str, Any]:
        """The totals of each row's elements up to each of them; of a row that is turned, from each of them on."""
        dim = node.args[1] % max(1, value.ndim)
        argument = self._argument(node.args[0])
        if self.sample.kind(value.shape) != "element" or value.ndim != len(self.sample.shape):
            raise RefusedError(f"{name} of something else than whole rows", 2)
        if self.sample.dims != (dim,):
            raise OtherRowsError(f"{name} along another dimension than others", (dim,))
        if not value.is_floating_point():
            raise RefusedError(f"{name} of whole numbers", 2)
        if argument["dtype"] == "bool":
            argument = self._add("to_float", [argument], value)
        op = SCANS[name] + ("_back" if argument.get("turned") else "")
        return self._add(op, [argument], value, self.names.get(node.name), "element")

    def _turned(self, node: fx.Node) -> dict[str, Any]:
        """The elements of each row from the last to the first. What is computed of such rows alone is turned, too."""
        known, shape = self._argument(node.args[0]), node.meta["val"].shape
        dims = {dim % len(shape) for dim in node.args[1]}
        if all(shape[dim] == 1 for dim in dims) or known["kind"] in ("scalar", "total"):
            return known
        if known["kind"] != "element" or len(shape) != len(self.sample.shape) or len(dims) != 1:
            raise RefusedError(in_words(node.target), 2)
        if dims != set(self.sample.dims):
            raise OtherRowsError("flip along another dimension than others", tuple(dims))
        return known | {"turned": not known.get("turned", False)}

    def _placed(self, name: str, node: fx.Node, value: Tensor) -> dict[str, Any]:
        """An element at a place of each row: the sum of the row where all others are 0."""
        tensor, dim, index = node.args[:3]
        shape, place = self.sample.shape, self._argument(index)
        is_of_row = (
            self.sample.dims == (dim % max(1, len(shape)),) and place["kind"] == "row" and place["dtype"] == "int"
        )
        kinds = ("element", "row", "scalar", "total") if name == "scatter" else ("element", "scalar")
        if not is_of_row or self.known[tensor]["kind"] not in kinds:
            raise RefusedError(in_words(node.target), 2)
        element = index.meta["val"].new_empty(()).expand(shape)  # Of the right shape, for _add.
        is_there = self._add("eq", [{"place": True, "dtype": "int", "kind": "element"}, place], element.bool())
        others = self._checked_zero(place, value)
        if name == "gather":
            wide = tensor.meta["val"]
            chosen = self._add("where", [is_there, self._argument(tensor), others], wide)
            return self._add("row_sum", [chosen], value, self.names.get(node.name), "row")
        if self.known[tensor].get("constant") != 0.0:
            if name != "scatter" or len(node.args) > 4 or node.kwargs or not value.is_floating_point():
                raise RefusedError(f"{in_words(node.target)} on other numbers than zeros", 2)
            kept = self._argument(tensor)
            others = kept if others.get("constant") == 0.0 else self._add("add", [kept, others], value)
        return self._add("where", [is_there, self._argument(node.args[3]), others], value)

    def _places(self, node: fx.Node) -> dict[str, Any]:
        """The places of a row's elements, which arange is where it counts these."""
        start, step, value = node.kwargs["start"], node.kwargs["step"], node.meta["val"]
        if len(self.sample.dims) != 1 or value.numel() != self.sample.columns or step != 1:
            raise RefusedError(f"{in_words(node.target)} of other sizes than rows have", 2)
        places = {"place": True, "dtype": "int", "kind": "column"}
        return self._add("add", [places, constant(start)], value) if start else places

    def _checked_zero(self, place: dict[str, Any], value: Tensor) -> dict[str, Any]:
        """The 0 of the elements that are not at the place; NaN where none of the row is."""
        is_found = "node" in place and self.graph.nodes[place["node"]]["op"] in ("row_argmax", "row_argmin")
        if is_found or not value.is_floating_point():
            return constant(0.0)
        zero = self._add("checked_zero", [place], value, None, "row")
        self.checks[zero["node"]] = ({zero["node"]}, set())
        return zero

    def _are_all_rows(self, dims: Sequence[int]) -> bool:
        return len(dims) + len(self.sample.dims) == len(self.sample.shape)

    def _rows(self, name: str, argument: dict[str, Any], node: fx.Node, value: Tensor) -> dict[str, Any]:
        columns = constant(self.sample.columns)
        if name == "mean":
            total = self._add("row_sum", [argument], value, None, "row")
            return self._add("div", [total, columns], value, self.names.get(node.name), "row")
        if name == "var":
            return self._variance(argument, node, value)
        return self._add(f"row_{name}", [argument], value, self.names.get(node.name), "row")

    def _variance(self, argument: dict[str, Any], node: fx.Node, value: Tensor) -> dict[str, Any]:
        correction = node.kwargs.get("correction", node.args[2] if len(node.args) > 2 else 1)
        count = constant(self.sample.columns)
        total = self._add("row_sum", [argument], value, None, "row")
        mean = self._add("div", [total, count], value, "mean", "row")
        wide = node.args[0].meta["val"]
        centred = self._add("sub", [argument, mean], wide, "centred")
        squares = self._add("row_sum", [self._add("mul", [centred, centred], wide)], value, None, "row")
        freedom = constant(self.sample.columns - correction)
        return self._add("div", [squares, freedom], value, self.names.get(node.name) or "variance", "row")
