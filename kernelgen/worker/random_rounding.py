"""Monte Carlo arithmetic: how far rounding alone moves what a function computes (Parker, Monte Carlo arithmetic, 1997).

In float64 there is no wider dtype to compare with. A result that should be 0, but is the difference of large numbers,
is rounding alone: of the reference's own, and of another size in each right implementation.
"""

from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

# An op may take more steps to a result than the reference does, or less stable ones.
_ROUNDINGS = 256


class RandomRounding(TorchDispatchMode):
    """Moves every float64 result of PyTorch's operators by up to a few roundings, up or down by chance."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self._seed = seed
        self._generators: dict[torch.device, torch.Generator] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        results = func(*args, **(kwargs or {}))
        # What writes or views memory has results that others hold, too.
        if any(argument.alias_info is not None for argument in func._schema.arguments):
            return results
        return pytree.tree_map_only(Tensor, self._moved, results)

    def _moved(self, value: Tensor) -> Tensor:
        if value.dtype != torch.float64:
            return value
        if value.device not in self._generators:
            self._generators[value.device] = torch.Generator(value.device).manual_seed(self._seed)
        generator = self._generators[value.device]
        share = torch.rand(value.shape, dtype=value.dtype, device=value.device, generator=generator) * 2 - 1
        return value * (1 + _ROUNDINGS * torch.finfo(value.dtype).eps * share)
