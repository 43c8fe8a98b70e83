"""Graphs of functions that cut the last dimension of tensors into parts of equal sizes, or join results of such.

A piece is a value of the shape of a part, or a number for each of its rows or columns, or for all. Each element of a
tensor is known by a number: its piece's, and its place in the piece. What moves elements, such as split, cat or a
slice, is run on these numbers. What works element by element is known piece by piece: of each combination of pieces
that meet, one piece comes, where all elements are at the same places. Reductions are of whole pieces.
"""

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, fx

from kernelgen.worker.trace.cut import WHOLE, Cut
from kernelgen.worker.trace.graph import (
    Graph,
    Sample,
    constant,
    dtype_of_argument,
    filled,
    inverse,
    order_of,
    refuse_other_dtype,
)
from kernelgen.worker.trace.operators import (
    BINARY,
    CASTS,
    FILLED,
    MOVES,
    REDUCTIONS,
    UNARY,
    in_words,
    operator_of,
    unknown,
)
from kernelgen.worker.trace.reader import Reader, as_written
from kernelgen.worker.trace.refusals import UNKNOWN_OPERATOR, RefusedError

_MOST_PIECES = 27  # That one operator computes: the terms of a product of two matrices that turn points.
# What says which elements are neighbours.
_TURNING = ("flip", "roll")
# What joins the results of reductions of pieces.
_JOINED = {"sum": "add", "mean": "add", "amax": "maximum", "amin": "minimum"}


def moves_elements(target: Any) -> bool:
    return isinstance(target, torch._ops.OpOverload) and target._schema.name.partition("::")[2] in MOVES


class PartsReader(Reader):
    """Turns a graph of torch.fx into a Graph whose outputs are the parts of the results, one after the other.

    Args:
        labels: of each argument; `cut` says how a tensor's last dimension is cut.
        cuts: how the outputs have to be cut; None where that is to be seen.
    """

    def __init__(
        self, sample: Sample, labels: list[dict[str, Any]], names: dict[str, str], cuts: Sequence[Cut] | None
    ) -> None:
        super().__init__(sample, labels, names)
        self.cuts = cuts
        self.pieces: list[dict[str, Any]] = []
        self.size = math.prod(sample.shape)
        self.places = torch.arange(self.size).reshape(sample.shape)
        # By node of torch.fx: piece * size + place of each element; a tensor, or several.
        self.numbers: dict[fx.Node, Any] = {}

    def read(self, graph: fx.Graph) -> Graph:
        graph.eliminate_dead_code()
        for node in graph.nodes:
            if node.op == "placeholder":
                self.numbers[node] = self._input(node, next(self.labels))
            elif node.op == "call_function":
                self.numbers[node] = self._moved_or_computed(node)
            elif node.op == "get_attr":
                self.numbers[node] = self._constants(node)
            elif node.op == "output":
                self._read_outputs(node.args[0])
        return self.graph

    def _input(self, node: fx.Node, label: Mapping[str, Any]) -> Tensor:
        cut, value = label["cut"], node.meta["val"]
        dtype = dtype_of_argument(value, label["kind"])
        known = {key: value for key, value in label.items() if key != "cut"} | {"dtype": dtype}
        is_repeated = known.get("input") in self.sample.spreads
        known |= {"repeated": True} if is_repeated else {}
        if cut == WHOLE:
            piece = self._new_piece(known, value.shape)
            return piece.reshape(value.shape) if piece.numel() == value.numel() else piece
        pieces = [{**known, "part": part, "cut": cut.as_dict()} for part in range(cut.parts)]
        shape = self.sample.shape[-value.ndim :]  # Of vectors, the elements of a row alone.
        shape = self.sample.spread_shape(known["input"]) if is_repeated else shape
        whole = cut.join([self._new_piece(piece, shape) for piece in pieces])
        return self.sample.arranged(whole, value.shape) if whole.numel() == value.numel() else whole

    def _constants(self, node: fx.Node) -> Tensor:
        """The numbers of a tensor that the function is written with, of which every element is a piece."""
        value = getattr(node.graph.owning_module, node.target)
        if not isinstance(value, Tensor) or not 1 < value.numel() <= _MOST_PIECES:
            return self._new_piece(self._attribute(node), node.meta["val"].shape)
        pieces = [self._new_piece(constant(as_written(element)), ()) for element in value.flatten()]
        return torch.stack(pieces).reshape(value.shape)

    def _new_piece(self, known: dict[str, Any], shape: Sequence[int]) -> Tensor:
        """The numbers of a tensor that is one piece; of what has no places, in any shape."""
        self.pieces.append(known)
        first = (len(self.pieces) - 1) * self.size
        if _is_anywhere(known):
            return torch.full(tuple(shape), first)
        is_dropped = self.sample.of_points and tuple(shape) == self.sample.shape[:-1]
        return first + (self.places.squeeze(-1) if is_dropped else self.places)

    def _moved_or_computed(self, node: fx.Node) -> Any:
        if node.target is operator.getitem:
            return self._named(node, self.numbers[node.args[0]][node.args[1]])
        if moves_elements(node.target):
            return self._named(node, self._moved(node))
        name, value = operator_of(node.target), node.meta["val"]
        if name is None or not isinstance(value, Tensor):
            raise RefusedError(in_words(node.target), UNKNOWN_OPERATOR)
        if name in FILLED:
            return self._new_piece(filled(name, node), value.shape)
        if name == "broadcast_in_dim":
            return self._named(node, _broadcast_in_dim(self.numbers[node.args[0]], *node.args[1:3]))
        if name in ("copy", "copy_"):
            return self._named(node, self._copied(node))
        if name in REDUCTIONS:
            self._refuse_single_elements(name, node)
        if name in REDUCTIONS and (piece := self._only_piece(self.numbers[node.args[0]])) is not None:
            self.known[node.args[0]] = self.pieces[piece]
            return self._named(node, self._new_piece(self._call(node), value.shape))
        if name in _JOINED and not self.sample.of_points and (pieces := self._pieces_of_rows(node)):
            return self._named(node, self._new_piece(self._reduced_together(name, node, pieces), value.shape))
        if name == "sum" and (summed := self._summed_parts_later(node)) is not None:
            return self._named(node, summed)
        if name in _JOINED:
            return self._taken_together(name, node)
        if torch.Tag.pointwise not in node.target.tags and name not in (*CASTS, *UNARY, *BINARY):
            raise unknown(node.target)
        return self._computed(node)

    def _copied(self, node: fx.Node) -> Tensor:
        """The numbers of what is copied to a tensor; of what is written to a view, its whole has them from here on."""
        numbers = self.numbers[node.args[1]].broadcast_to(node.meta["val"].shape)
        if operator_of(node.target) == "copy":
            return numbers
        try:
            return self.numbers[node.args[0]].copy_(numbers)
        except RuntimeError as error:  # Its elements share their numbers.
            raise RefusedError(in_words(node.target), UNKNOWN_OPERATOR) from error

    def _refuse_single_elements(self, name: str, node: fx.Node) -> None:
        """A reduction of single elements is one of more where a part is not a single element, as was assumed."""
        source, dims = node.args[0].meta["val"], node.args[1] if len(node.args) > 1 else None
        dims = [dims] if isinstance(dims, int) else dims or range(source.ndim)
        if not self.of_gradient and source.ndim and all(source.shape[dim] == 1 for dim in dims):
            raise RefusedError(f"{name} of single elements", UNKNOWN_OPERATOR)

    def _summed_parts_later(self, node: fx.Node) -> Tensor | None:
        """The sums of pieces that lie one after the other along dimensions that a tensor is repeated along; None of any
        other sum."""
        value, pieces = node.meta["val"], self._pieces_in_rows(self.numbers[node.args[0]])
        dims = node.args[1] if len(node.args) > 1 else None
        if not pieces or not dims or value.ndim == 0 or value.shape[-1] % len(pieces):
            return None
        every = [self._summed_later(node, self.pieces[piece], dims) for piece in pieces]
        if None in every:
            return None
        shape = (*value.shape[:-1], value.shape[-1] // len(pieces))
        known = [self.pieces[piece] | {"summed": summed} for piece, summed in zip(pieces, every, strict=True)]
        return Cut(len(pieces)).join([self._new_piece(of, shape) for of in known])

    def _pieces_of_rows(self, node: fx.Node) -> list[int]:
        """The pieces that lie one after the other in rows that are reduced as a whole; none where it is another tensor,
        or another reduction."""
        numbers = self.numbers[node.args[0]]
        dims = node.args[1] if len(node.args) > 1 else None
        is_last = dims is not None and [dim % numbers.ndim for dim in dims] == [numbers.ndim - 1]
        return self._pieces_in_rows(numbers) if is_last else []

    def _pieces_in_rows(self, numbers: Tensor) -> list[int]:
        """The pieces that lie one after the other in rows; none where there are not several."""
        columns = self.sample.shape[-1]
        parts = numbers.shape[-1] // columns if numbers.ndim and numbers.shape[-1] % columns == 0 else 0
        pieces = [self._piece(part) for part in Cut(parts).split(numbers)] if parts > 1 else [None]
        return [] if None in pieces else pieces

    def _reduced_together(self, name: str, node: fx.Node, pieces: Sequence[int]) -> dict[str, Any]:
        """A reduction of rows that are joined of pieces: that of each, taken together."""
        value = node.meta["val"]
        op = {"mean": "sum"}.get(name, name)
        every = [self._add(f"row_{op}", [self.pieces[piece]], value, None, "row") for piece in pieces]
        total = every[0]
        for other in every[1:]:
            total = self._add(_JOINED[name], [total, other], value)
        if name == "mean":
            total = self._add("div", [total, constant(float(len(pieces) * self.sample.columns))], value)
        return self._noted(node, total)

    def _moved(self, node: fx.Node) -> Any:
        args, kwargs = fx.map_arg((node.args, node.kwargs), lambda argument: self.numbers[argument])
        name = operator_of(node.target) or node.target._schema.name.partition("::")[2]
        if name in _TURNING and all(node.args[0].meta["val"].shape[dim] == 1 for dim in args[-1]):
            raise RefusedError(in_words(node.target), UNKNOWN_OPERATOR)  # Of more, it would matter.
        if name in ("view", "_unsafe_view"):  # Of numbers that may lie otherwise than the elements do.
            return args[0].reshape(args[1])
        if name in ("clone", "contiguous"):
            return args[0].clone()
        return node.target(*args, **kwargs)

    def _computed(self, node: fx.Node) -> Tensor:
        """Piece by piece, for each combination of pieces that meet."""
        value, arguments = node.meta["val"], list(dict.fromkeys(node.all_input_nodes))

        def compute(combination: tuple[int, ...]) -> dict[str, Any]:
            pieces = [self.pieces[piece] for piece in combination]
            self.known |= dict(zip(arguments, pieces, strict=True))
            # What is computed of a tensor that is repeated, before it meets elements.
            is_repeated = any("repeated" in piece for piece in pieces) and all(map(_is_anywhere, pieces))
            return self._call(node) | ({"repeated": True} if is_repeated else {})

        numbers = [self.numbers[argument].broadcast_to(value.shape) for argument in arguments]
        return self._piece_by_piece(node, numbers, compute)

    def _taken_together(self, name: str, node: fx.Node) -> Tensor:
        """A sum or the like of pieces, where all terms of each are at the same place."""
        value, numbers = node.meta["val"], self.numbers[node.args[0]]
        dims = node.args[1] if len(node.args) > 1 and node.args[1] else range(numbers.ndim)
        dims = [dim % numbers.ndim for dim in ([dims] if isinstance(dims, int) else dims)]

        def compute(combination: tuple[int, ...]) -> dict[str, Any]:
            total = self.pieces[combination[0]]
            for piece in combination[1:]:
                total = self._add(_JOINED[name], [total, self.pieces[piece]], value)
            if name == "mean":
                total = self._add("div", [total, constant(float(len(combination)))], value)
            return self._noted(node, total)

        moved = numbers.movedim(dims, list(range(len(dims)))).flatten(0, len(dims) - 1)
        return self._piece_by_piece(node, list(moved), compute).reshape(value.shape)

    def _piece_by_piece(
        self, node: fx.Node, numbers: list[Tensor], compute: Callable[[tuple[int, ...]], dict[str, Any]]
    ) -> Tensor:
        """The numbers of what is computed of tensors: a new piece for each combination of pieces that meet."""
        pieces, places = self._meeting(node, numbers)
        if tuple(places.shape) == self.sample.shape and (places < 0).all():  # Of numbers of rows and of columns.
            places = self.places
        places = places.clamp(min=0)
        result = torch.empty(places.shape, dtype=torch.int64)
        for combination in self._combinations(node, pieces):
            self.pieces.append(compute(combination))
            is_here = torch.stack([of == piece for of, piece in zip(pieces, combination, strict=True)]).all(0)
            result[is_here] = ((len(self.pieces) - 1) * self.size + places)[is_here]
        return result

    def _meeting(self, node: fx.Node, numbers: list[Tensor]) -> tuple[list[Tensor], Tensor]:
        """The pieces of each tensor of numbers, and the places, which are the same in all."""
        if len(numbers) > _MOST_PIECES:
            raise RefusedError(in_words(node.target), UNKNOWN_OPERATOR)
        anywhere = torch.tensor([_is_anywhere(piece) for piece in self.pieces])
        pieces = [tensor // self.size for tensor in numbers]
        places = torch.full(numbers[0].shape, -1)
        for tensor, piece in zip(numbers, pieces, strict=True):
            own = torch.where(anywhere[piece], -1, tensor % self.size)
            if ((own >= 0) & (places >= 0) & (own != places)).any():
                raise RefusedError(f"{in_words(node.target)} of elements of other places", 2)
            places = torch.where(own >= 0, own, places)
        return pieces, places

    def _combinations(self, node: fx.Node, pieces: list[Tensor]) -> list[tuple[int, ...]]:
        combinations = list(dict.fromkeys(zip(*(piece.flatten().tolist() for piece in pieces), strict=True)))
        if len(combinations) > _MOST_PIECES:
            raise RefusedError(in_words(node.target), UNKNOWN_OPERATOR)
        return combinations

    def _named(self, node: fx.Node, numbers: Any) -> Any:
        """Notes the variable that holds a piece."""
        name = self.names.get(node.name)
        if name and isinstance(numbers, Tensor) and (piece := self._piece(numbers)) is not None:
            known = self.pieces[piece]
            if "part" in known and "input" in known:
                self.graph.part_names.setdefault((known["input"], known["part"]), name)
            self._noted(node, known)
        return numbers

    def _only_piece(self, numbers: Tensor) -> int | None:
        """The piece that a tensor is, which may be numbers of rows; None where it is something else."""
        piece = int(numbers.flatten()[0]) // self.size
        if _is_anywhere(self.pieces[piece]) and (numbers // self.size == piece).all():
            return piece
        return self._piece(numbers)

    def _piece(self, numbers: Tensor) -> int | None:
        """The piece that a tensor is; None where it is something else."""
        if tuple(numbers.shape) != self.sample.shape:
            return None
        piece = int(numbers.flatten()[0]) // self.size
        if not (numbers // self.size == piece).all():
            return None
        return piece if _is_anywhere(self.pieces[piece]) or (numbers % self.size == self.places).all() else None

    def _read_outputs(self, nodes: Sequence[fx.Node | None]) -> None:
        for i, node in enumerate(nodes):
            if node is None:
                cut = self.cuts[i]
                outputs: list[dict[str, Any] | None] = [None] * cut.parts
            else:
                cut, outputs = self._cut_output(node, self.cuts and self.cuts[i])
            self.graph.cuts.append(cut)
            self.graph.outputs += outputs

    def _cut_output(self, node: fx.Node, cut: Cut | None) -> tuple[Cut, list[dict[str, Any] | None]]:
        numbers, value = self.numbers[node], node.meta["val"]
        shape = tuple(numbers.shape)
        if repeated := self._gradients_of_repeated(numbers, value, cut):
            return cut or WHOLE, repeated
        if self.sample.of_points and shape == self.sample.shape[:-1]:
            piece = self._piece(numbers.unsqueeze(-1))
            if piece is not None and not _is_anywhere(self.pieces[piece]):
                return WHOLE, [self._part_of_output(value, self.pieces[piece]) | {"dropped": True}]
        piece = self._only_piece(numbers)
        if piece is not None and shape in self._shapes_of_numbers(self.pieces[piece]["kind"]):
            known = self._part_of_output(value, self.pieces[piece])
            keeps = self.pieces[piece]["kind"] == "row" and len(shape) == len(self.sample.shape)
            return WHOLE, [known | {"kind": self.pieces[piece]["kind"], "keeps": keeps}]
        parts = numbers.numel() // self.size if numbers.numel() % self.size == 0 else 0
        choices = [cut] if cut else [Cut(parts, False), *([Cut(parts, True)] if parts > 1 else [])]
        if self.sample.shape[-1] == 1:  # Both are the same: neighbours are read together.
            choices.reverse()
        for choice in choices:
            whole, how = self._whole(numbers, choice)
            pieces = [self._piece(part) for part in choice.split(whole)] if whole is not None else [None]
            if None not in pieces:
                return choice, [self._part_of_output(value, self.pieces[piece]) | how for piece in pieces]
        raise RefusedError("a result of which the elements are arranged in another way", UNKNOWN_OPERATOR)

    def _whole(self, numbers: Tensor, cut: Cut) -> tuple[Tensor | None, dict[str, Any]]:
        """The numbers of a result in the shape of the operator's, and how the function has these; None where they are
        of none."""
        shape, whole, split = tuple(numbers.shape), cut.whole(self.sample.shape), self.sample.split
        how = {"joined": False} if split else {}
        if shape == whole:
            return numbers, how
        if split and shape == split.joined_shape(whole, range(len(whole))):
            return numbers.reshape(whole), {"joined": True}
        if order := order_of(whole, shape):
            return numbers.permute(inverse(order)), how | {"order": list(order)}
        return None, {}

    def _gradients_of_repeated(self, numbers: Tensor, value: Tensor, cut: Cut | None) -> list[dict[str, Any]]:
        """The gradients of the parts of a tensor that is repeated; none where it is another one."""
        gradients = []
        for part in (cut or WHOLE).split(numbers) if self.sample.spreads and numbers.ndim else ():
            piece = int(part.flatten()[0]) // self.size
            known = self.pieces[piece]
            if not (part // self.size == piece).all() or "summed" not in known:
                return []
            gradients.append(self._gradient_of_repeated(known, value.new_empty(part.shape)))
        return gradients

    def _shapes_of_numbers(self, kind: str) -> list[tuple[int, ...]]:
        """The shapes of what has a number for each row or column, or one for all."""
        columns = tuple(self.sample.shape[dim] for dim in self.sample.dims)
        rows = [self.sample.row_shape(), self.sample.row_shape(keeps=True)]
        return {"row": rows, "column": [columns], "total": [()]}.get(kind, [])

    def _part_of_output(self, value: Tensor, known: dict[str, Any]) -> dict[str, Any]:
        refuse_other_dtype(value, known)
        return known | {"kind": "element", "keeps": False}


def _broadcast_in_dim(tensor: Tensor, shape: Sequence[int], dims: Sequence[int]) -> Tensor:
    """A tensor whose dimensions are these of a larger shape."""
    sizes = [1] * len(shape)
    for dim, size in zip(dims, tensor.shape, strict=True):
        sizes[dim] = size
    return tensor.reshape(sizes).expand(shape)


def _is_anywhere(known: Mapping[str, Any]) -> bool:
    """Whether a piece is a number that all elements of a row, of a column, or all of them have in common. Which of them
    meet is not looked at here: where rows meet other rows, the graph is not the function, as check.py sees. So it is
    of a tensor that is repeated, and of its gradient."""
    return known["kind"] != "element" or "repeated" in known or "summed" in known
