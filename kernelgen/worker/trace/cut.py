"""How the last dimension of a tensor is cut into parts of equal sizes."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor


@dataclass(frozen=True)
class Cut:
    """Parts that lie one after the other, as chunk has them, or take turns element by element, as x[..., ::2]."""

    parts: int = 1
    in_turns: bool = False

    def as_dict(self) -> dict[str, Any]:
        return {"parts": self.parts, "in_turns": self.in_turns}

    def whole(self, shape: Sequence[int]) -> tuple[int, ...]:
        """The shape of a tensor whose parts have this one."""
        return (*shape[:-1], shape[-1] * self.parts) if self.parts > 1 else tuple(shape)

    def split(self, tensor: Tensor) -> list[Tensor]:
        if self.parts == 1:
            return [tensor]
        if self.in_turns:
            return [tensor[..., part :: self.parts] for part in range(self.parts)]
        size = tensor.shape[-1] // self.parts
        return [tensor.narrow(-1, part * size, size) for part in range(self.parts)]

    def join(self, parts: Sequence[Tensor]) -> Tensor:
        if self.parts == 1:
            return parts[0]
        return torch.stack(list(parts), -1).flatten(-2) if self.in_turns else torch.cat(list(parts), -1)


WHOLE = Cut()
