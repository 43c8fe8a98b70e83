"""Random arguments in every memory layout, and what can be done with arguments: copies, leaves, functions of them.

kernelgen's lab draws the same layouts with code of its own, since a project works without kernelgen, and the lab also
judges projects that were stamped with an older suite. kernelgen's tests hold the two to the same strides.
"""

import functools
import itertools
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

LAYOUTS = ("transposed", "strided", "reversed dimensions", "expanded", "misaligned", "mixed")


class Make:
    """Draws an op's random inputs: on a device, in a dtype and a memory layout, taking gradients or not."""

    def __init__(
        self, device: str, dtype: torch.dtype, layout: str = "contiguous", requires_grad: bool = False
    ) -> None:
        self.device = device
        self.dtype = dtype
        self.requires_grad = requires_grad
        self._layouts = itertools.cycle(LAYOUTS[:-1] if layout == "mixed" else [layout])

    def __call__(
        self, shape: Sequence[int], *, differentiable: bool = True, between: tuple[float, float] | None = None
    ) -> Tensor:
        """A tensor of normally distributed numbers, or of numbers between two others.

        `differentiable=False` is for what the op takes no gradient of.
        """
        tensor = self._drawn(tuple(shape), next(self._layouts), between)
        return tensor.detach().requires_grad_(self.requires_grad and differentiable)

    def integers(self, shape: Sequence[int], below: int, dtype: torch.dtype = torch.int64) -> Tensor:
        """Whole numbers in [0, below); contiguous."""
        return torch.randint(below, tuple(shape), device=self.device, dtype=dtype)

    def _drawn(self, shape: tuple[int, ...], layout: str, between: tuple[float, float] | None) -> Tensor:
        def normal(*sizes: int) -> Tensor:
            if between:
                low, high = between
                return low + (high - low) * torch.rand(sizes, device=self.device, dtype=self.dtype)
            return torch.randn(sizes, device=self.device, dtype=self.dtype)

        if layout == "contiguous" or not shape:
            return normal(*shape)
        if layout == "misaligned":
            # Contiguous, but the first element lies one past a 16-byte boundary.
            return normal(torch.Size(shape).numel() + 1)[1:].view(shape)
        if layout == "expanded":
            return normal(1, *shape[1:]).expand(shape)
        if layout == "strided" or len(shape) == 1:
            return normal(*shape[:-1], 2 * shape[-1])[..., ::2]
        if layout == "transposed":
            return normal(*shape[:-2], shape[-1], shape[-2]).transpose(-1, -2)
        return normal(*reversed(shape)).permute(*reversed(range(len(shape))))


def random_like(tensor: Tensor) -> Tensor:
    """A tensor of the same shape, dtype and device: normal numbers, or whole ones of 0 and 1 in any other dtype."""
    if tensor.is_floating_point() and tensor.dtype.itemsize == 1:  # PyTorch draws no numbers of 8 bits.
        return torch.randn_like(tensor, dtype=torch.float32).to(tensor.dtype)
    if tensor.is_floating_point() or tensor.is_complex():
        return torch.randn_like(tensor)
    return torch.randint(2, tensor.shape, device=tensor.device).to(tensor.dtype)


def tensors(tree: Any) -> list[Tensor]:
    """The tensors in nested lists, tuples and dicts."""
    return [leaf for leaf in pytree.tree_leaves(tree) if isinstance(leaf, Tensor)]


def others(tree: Any) -> list[Any]:
    """What is no tensor in nested lists, tuples and dicts."""
    return [leaf for leaf in pytree.tree_leaves(tree) if not isinstance(leaf, Tensor)]


def copies(args: Any, dtype: torch.dtype | None = None) -> Any:
    """Copies of all tensors, the floating-point ones in `dtype`; leaves that take gradients where the originals do."""

    def copy(tensor: Tensor) -> Tensor:
        cast = dtype if tensor.is_floating_point() else None
        return tensor.detach().to(cast, copy=True).requires_grad_(tensor.requires_grad)

    return pytree.tree_map_only(Tensor, copy, args)


def nearby(args: Any, roundings: int = 1, together: int = 0) -> Any:
    """Copies whose floating-point numbers are some roundings off, up or down by chance; but for those of 8 bits.

    All of a tensor are up to `together` roundings off in one direction besides: otherwise a mean of many stays.
    """
    moved = copies(args)
    with torch.no_grad():
        for tensor in tensors(moved):
            if tensor.is_floating_point() and tensor.dtype.itemsize > 1:
                signs = 1 - 2 * torch.randint(2, tensor.shape, device=tensor.device).double()
                moves = roundings * signs + together * (2 * torch.rand((), device=tensor.device) - 1)
                tensor.copy_(tensor.double() * (1 + torch.finfo(tensor.dtype).eps * moves))
    return moved


def on_copies(function: Callable[..., Any], *positions: int) -> Callable[..., Any]:
    """A function that writes to the arguments at some positions, as one that returns what it wrote, and its returns."""

    @functools.wraps(function)
    def functional(*args: Any) -> Any:
        args = list(args)
        for i in positions:
            args[i] = args[i].clone() if isinstance(args[i], Tensor) else [tensor.clone() for tensor in args[i]]
        returned = function(*args)
        return [args[i] for i in positions], returned

    return functional


def by_name(function: Callable[..., Any], *names: str) -> Callable[..., Any]:
    """A function that takes its keyword-only arguments of these names by position, after the others."""

    @functools.wraps(function)
    def positional(*args: Any) -> Any:
        count = len(args) - len(names)
        return function(*args[:count], **dict(zip(names, args[count:])))

    positional.by_name = names  # type: ignore[attr-defined]
    return positional


def flattened(function: Callable[..., Any], args: Sequence[Any]) -> tuple[Callable[..., Any], list[Any]]:
    """A function of the leaves of some arguments, and the leaves: gradcheck does not look into lists."""
    leaves, structure = pytree.tree_flatten(tuple(args))
    return lambda *values: function(*pytree.tree_unflatten(values, structure)), leaves
