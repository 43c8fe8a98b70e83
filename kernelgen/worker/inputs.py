"""Draws an op's input tensors: on a device, in a dtype, a memory layout and a kind of values."""

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from kernelgen.worker.op import Op, call_with

# How a tensor lies in memory. The elements of its storage that a view leaves out hold NaN, which shows a kernel that
# reads them. `wide rows` and `odd rows` are some columns of a wider tensor: of 16 more, or of 3 more. A kernel has to
# look at every address before it loads vectors, so in `first misaligned` the first tensor alone is misaligned, in
# `others misaligned` all but the first. `mixed` gives each tensor another layout.
LAYOUTS = (
    "contiguous",
    "transposed",
    "strided",
    "reversed dimensions",
    "expanded",
    "offset",
    "misaligned",
    "wide rows",
    "odd rows",
    "first misaligned",
    "others misaligned",
    "mixed",
)
# The rows of the first tensor lie so far apart that an element's index needs more than 32 bits. It takes gigabytes.
FAR_ROWS, _FAR = "far rows", 2**31 + 2**27
# The kinds of values; see `Make._special`.
VALUES = (
    "normal",
    "zeros",
    "wide range",
    "huge",
    "denormal",
    "infinite",
    "nan",
    "large mean",
    "signed zeros",
    "equal",
    "outliers",
)
# How the tensors of a call share memory: not at all; all arguments of a shape are the same tensor; or each is a view
# that starts one element after the last.
ALIASES = ("none", "same", "overlapping")

# Columns to the left and to the right of those that are a part of a wider tensor.
_MARGINS = {"wide rows": (8, 8), "odd rows": (1, 2)}
# Elements before and after the data of an `offset` tensor, which is aligned to 16 bytes in every dtype.
_MARGIN = 64


class Make:
    """Draws an op's inputs. The same arguments draw the same numbers.

    `make(shape)` gives a tensor that takes a gradient if the op has one and the dtype can. With `between`, its numbers
    are drawn evenly from there, of whatever kind the others are. `make.integers(shape, below)` gives indices.
    `redraw()` puts new values where the tensors drawn so far lie, as a training loop does.
    """

    def __init__(
        self,
        device: str = "cpu",
        dtype: torch.dtype = torch.float32,
        *,
        layout: str = "contiguous",
        values: str = "normal",
        alias: str = "none",
        seed: int = 0,
        requires_grad: bool = False,
    ) -> None:
        self.device = device
        self.dtype = dtype
        self.values = values
        self.layout = layout
        self.alias = alias
        self.requires_grad = requires_grad and (dtype.is_floating_point or dtype.is_complex)
        # Every tensor's whole storage, gaps and margins included, which a call must not change.
        self.storages: list[Tensor] = []
        self._generator = torch.Generator(device).manual_seed(seed)
        self._layouts = _layout_of_each(layout)
        self._fill: list[Callable[[], object]] = []
        self._between: tuple[float, float] | None = None
        self._shared: dict[tuple[Any, ...], tuple[Tensor, int]] = {}

    def __call__(
        self, shape: Sequence[int], differentiable: bool = True, between: tuple[float, float] | None = None
    ) -> Tensor:
        """A tensor of this shape; `differentiable=False` for an input without a gradient."""
        shape, key = tuple(shape), (tuple(shape), differentiable, between)
        self._between = between
        if self.alias != "none" and key in self._shared:
            return self._alias_of(*self._shared[key], shape, key)
        if self.alias == "overlapping":
            view = self._in_storage(shape, lambda storage: storage[: shape_numel(shape)].view(shape))
        else:
            view = self._laid_out(shape, next(self._layouts))
        tensor = self._leaf(view, differentiable)
        self._shared[key] = tensor, 0
        return tensor

    def integers(self, shape: Sequence[int], below: int, dtype: torch.dtype = torch.int64) -> Tensor:
        """Whole numbers in [0, below); contiguous."""
        shape = tuple(shape)
        tensor = torch.empty(shape, dtype=dtype, device=self.device)
        self._add(tensor, lambda: tensor.random_(0, max(below, 1), generator=self._generator))
        return tensor

    def cotangent(self, like: Tensor) -> Tensor:
        """The gradient of an output: normal values, in the layout of the inputs, in memory of its own."""
        make = Make(self.device, like.dtype)
        make._layouts, make._generator, make._fill, make.storages = (
            self._layouts,
            self._generator,
            self._fill,
            self.storages,
        )
        return make(like.shape)

    def redraw(self) -> None:
        """New values at the same addresses."""
        with torch.no_grad():
            for fill in self._fill:
                fill()

    def _alias_of(self, tensor: Tensor, times: int, shape: tuple[int, ...], key: tuple) -> Tensor:
        self._shared[key] = tensor, times + 1
        if self.alias == "same" or times + 1 >= _MARGIN:
            return tensor
        moved = tensor.detach().as_strided(shape, tensor.stride(), tensor.storage_offset() + times + 1)
        return self._leaf(moved, key[1])

    def _leaf(self, view: Tensor, differentiable: bool) -> Tensor:
        return view.detach().requires_grad_(self.requires_grad and differentiable)

    def _laid_out(self, shape: tuple[int, ...], layout: str) -> Tensor:
        n = shape_numel(shape)
        if layout == "offset":
            return self._in_storage((_MARGIN + n,), lambda storage: storage[_MARGIN : _MARGIN + n].view(shape))
        if layout == "misaligned":
            # Contiguous, but its first element lies one element after a 16-byte boundary.
            return self._in_storage((1 + n,), lambda storage: storage[1 : 1 + n].view(shape))
        if not shape or layout == "contiguous":
            return self._in_storage(shape, lambda storage: storage[:n].view(shape))
        if layout == "expanded":
            row = (min(1, shape[0]), *shape[1:])
            return self._in_storage(row, lambda storage: storage[: shape_numel(row)].view(row)).expand(shape)
        if layout == FAR_ROWS:
            wide = (*shape[:-1], max(shape[-1], _FAR // max(1, shape_numel(shape[:-1]))))
            columns = slice(0, shape[-1])
            return self._in_storage(wide, lambda storage: storage[: shape_numel(wide)].view(wide)[..., columns])
        if layout in _MARGINS:
            left, right = _MARGINS[layout]
            wide = (*shape[:-1], left + shape[-1] + right)
            columns = slice(left, left + shape[-1])
            return self._in_storage(wide, lambda storage: storage[: shape_numel(wide)].view(wide)[..., columns])
        if layout == "strided" or len(shape) == 1:
            wide = (*shape[:-1], 2 * shape[-1])
            return self._in_storage(wide, lambda storage: storage[: shape_numel(wide)].view(wide)[..., ::2])
        order = list(range(len(shape)))
        order = [*order[:-2], order[-1], order[-2]] if layout == "transposed" else order[::-1]
        turned = tuple(shape[i] for i in order)
        return self._in_storage(turned, lambda storage: storage[: shape_numel(turned)].view(turned).permute(*order))

    def _in_storage(self, shape: tuple[int, ...], cut: Callable[[Tensor], Tensor]) -> Tensor:
        """A view of a new storage, which holds `shape` and a margin after it. The rest of the storage holds NaN."""
        storage = torch.empty(shape_numel(shape) + _MARGIN, dtype=self.dtype, device=self.device)
        storage.fill_(float("nan") if self.dtype.is_floating_point else 0)
        view = cut(storage)
        # Views that overlap this view read the margin too.
        target, between = storage if self.alias == "overlapping" else view, self._between
        self._add(storage, lambda: target.copy_(self._values(target.shape, between)))
        return view

    def _add(self, storage: Tensor, fill: Callable[[], object]) -> None:
        self.storages.append(storage)
        self._fill.append(fill)
        with torch.no_grad():
            fill()

    def _values(self, shape: torch.Size, between: tuple[float, float] | None = None) -> Tensor:
        if not self.dtype.is_floating_point:
            return torch.randint(-8, 8, shape, generator=self._generator, device=self.device).to(self.dtype)
        if between:
            low, high = between
            return (low + (high - low) * self._uniform(torch.empty(shape, device=self.device))).to(self.dtype)
        normal = torch.randn(shape, generator=self._generator, device=self.device, dtype=_drawn_in(self.dtype))
        return self._special(normal).to(self.dtype)

    def _special(self, normal: Tensor) -> Tensor:
        """Normal numbers, turned into this `Make`'s kind of values."""
        kind, limits = self.values, torch.finfo(self.dtype)
        if kind == "zeros":
            return torch.zeros_like(normal)
        if kind == "wide range":
            return normal * torch.exp2(self._uniform(normal) * 12 - 6)
        if kind == "huge":
            # So large that squares overflow float16, while sums and cubes overflow no wider dtype: PyTorch's own would
            # overflow there too. In float64 the reference has no wider dtype to compute in.
            power = {torch.float16: 0.8, torch.float64: 0.1}.get(self.dtype, 0.375)
            return normal * limits.max**power
        if kind == "denormal":
            return normal * limits.smallest_normal / 4
        if kind == "large mean":
            # So large that a sum of squares, less the square of the sum, has no correct digit.
            return normal + limits.eps**-0.5
        if kind == "equal":
            return normal.flatten()[:1].expand(normal.numel()).reshape(normal.shape) if normal.numel() else normal
        if kind == "outliers":
            # One in a hundred, as activations have them: what is scaled by the largest loses the others.
            factor = 2**5 if self.dtype == torch.float16 else 2**12
            return torch.where(self._uniform(normal) < 0.01, normal * factor, normal)
        if kind == "signed zeros":
            return torch.where(self._uniform(normal) < 0.25, torch.copysign(torch.zeros_like(normal), normal), normal)
        if kind in ("infinite", "nan"):
            strange = self._uniform(normal) < 0.02
            value = float("nan") if kind == "nan" else float("inf")
            return torch.where(strange, torch.copysign(torch.full_like(normal, value), normal), normal)
        return normal

    def _uniform(self, like: Tensor) -> Tensor:
        return torch.rand(like.shape, generator=self._generator, device=self.device, dtype=like.dtype)


def _layout_of_each(layout: str) -> Iterator[str]:
    """The layouts of the tensors, in their order."""
    if layout == "first misaligned":
        return itertools.chain(["misaligned"], itertools.repeat("contiguous"))
    if layout == FAR_ROWS:
        return itertools.chain([FAR_ROWS], itertools.repeat("contiguous"))
    if layout == "others misaligned":
        return itertools.chain(["contiguous"], itertools.repeat("misaligned"))
    return itertools.cycle(LAYOUTS[1 : LAYOUTS.index("first misaligned")] if layout == "mixed" else [layout])


class CountingMake:
    """Takes the place of `Make` where only the shapes of an op's inputs matter: its tensors have no memory."""

    device, dtype, values, requires_grad, seed = "meta", torch.float32, "normal", False, 0

    def __init__(self) -> None:
        self.elements = 0

    def __call__(self, shape: Sequence[int], differentiable: bool = True, between: Any = None) -> Tensor:
        tensor = torch.empty(tuple(shape), device="meta", requires_grad=differentiable)
        self.elements += tensor.numel()
        return tensor

    def integers(self, shape: Sequence[int], below: int, dtype: torch.dtype = torch.int64) -> Tensor:
        return self(shape).detach().to(dtype)


def count_differentiable(op: Op, sizes: Mapping[str, int]) -> int:
    """How many inputs of an op take a gradient at these sizes; 0 if that depends on values."""
    try:
        args = op.inputs(CountingMake(), **sizes)
    except Exception:  # The fault is said of the first case.
        return 0
    leaves = [leaf for leaf in pytree.tree_leaves(args) if isinstance(leaf, Tensor) and leaf.requires_grad]
    return len({id(leaf) for leaf in leaves})


def work_of(op: Op, sizes: Mapping[str, int]) -> tuple[int, int]:
    """The elements of an op's inputs at these sizes, and its operations; 0 where it does not say."""
    count = CountingMake()
    try:
        op.inputs(count, **sizes)
        return count.elements, call_with(op.flops, sizes) if op.flops else 0
    except Exception:  # It needs values, which this stand-in does not draw.
        return 0, 0


def shape_numel(shape: Sequence[int]) -> int:
    """How many elements a shape has."""
    return torch.Size(shape).numel()


def _drawn_in(dtype: torch.dtype) -> torch.dtype:
    """The dtype to draw in: 16-bit numbers are float32 ones, rounded."""
    return torch.float64 if dtype == torch.float64 else torch.float32
