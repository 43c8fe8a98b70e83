"""Draws the inputs of a case: tensors that the judge keeps, and for every call values that nobody has seen."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from kernelgen.worker import mutation
from kernelgen.worker.evaluation import blamed_on, copies, same_bits, tensors
from kernelgen.worker.inputs import Make
from kernelgen.worker.judge.noise import Mixture, NoiseTape, generator
from kernelgen.worker.op import Op


@dataclass
class JudgedInputs:
    """The judge's own arguments and cotangents of a call, and the copies that the op gets."""

    args: tuple[Any, ...]
    cotangents: list[Tensor]
    shared: list[Tensor] = field(default_factory=list)
    shared_cotangents: list[Tensor] = field(default_factory=list)
    mixtures: list[Mixture] = field(default_factory=list)
    mixtures_of_cotangents: list[Mixture] = field(default_factory=list)
    mutates: tuple[int, ...] = ()

    def pairs(self) -> list[tuple[Tensor, Tensor]]:
        """Each argument, and the copy of it."""
        return [*zip(distinct(self.args), self.shared, strict=True)]

    def pairs_of_cotangents(self) -> list[tuple[Tensor, Tensor]]:
        return [*zip(self.cotangents, self.shared_cotangents, strict=True)]

    def were_changed(self) -> bool:
        """Whether the op wrote to what is none of its results."""
        results = {id(tensor) for tensor in self.written()}
        pairs = [pair for pair in self.pairs() if id(pair[1]) not in results] + self.pairs_of_cotangents()
        return not all(same_bits(ours, theirs) for ours, theirs in pairs)

    def written(self) -> list[Tensor]:
        """The op's copies of the arguments that it writes to."""
        copy_of = {id(ours): theirs for ours, theirs in self.pairs()}
        return [copy_of[id(tensor)] for tensor in mutation.written(self.args, self.mutates)]


class Drawing:
    """The inputs of one case. Of a first draw it keeps how the tensors lie, and no values.

    Args:
        op: as the trusted lab.py describes it.
        backward: draw a cotangent for each floating-point output, too.
    """

    def __init__(
        self,
        op: Op,
        sizes: Mapping[str, int],
        dtype: torch.dtype,
        device: str,
        noise: NoiseTape,
        *,
        backward: bool = False,
    ) -> None:
        self.op, self.sizes, self.dtype = op, dict(sizes), dtype
        self.device, self.backward, self._noise = device, backward, noise
        make = self._make(_RememberingMake)
        args, cotangents = op.inputs(make, **self.sizes), []
        # All its tensors are normal numbers as `make` drew them.
        self._is_plain = all(map(make.is_as_drawn, distinct(args)))
        if backward:
            outputs = tensors(op.reference(*copies(args)))
            cotangents = [torch.empty_like(out).contiguous() for out in outputs if out.is_floating_point()]
        self.nbytes = sum(t.numel() * t.element_size() for t in (*distinct(args), *cotangents))
        noise.reach(max((t.numel() for t in (*distinct(args), *cotangents)), default=0))
        self._args, self._cotangents = _alike((args, cotangents), "meta")

    def new_set(self) -> JudgedInputs:
        """Tensors for a set, whose values `renew` draws."""
        args = _alike(self._args, self.device) if self._is_plain else self._draw()
        return JudgedInputs(args, _alike(self._cotangents, self.device), mutates=self.op.mutates)

    def hand_over(self, inputs: JudgedInputs) -> None:
        """Gives the op the values of a new set where not any numbers will do, such as indices: what captures a graph
        calls it before there are new ones."""
        if not self._is_plain:
            for ours, theirs in inputs.pairs():
                theirs.data.copy_(ours.data)

    def renew(self, inputs: JudgedInputs, values: str = "normal") -> None:
        """New values of the arguments, of a kind that fuzz draws, which the op sees at once.

        Raises:
            MismatchError: `inputs` of its lab.py refuses them.
        """
        if self._is_plain and values == "normal":
            inputs.mixtures = [self._noise.fill(theirs) for theirs in inputs.shared]
            return
        with blamed_on("inputs"):
            drawn = self._draw(values)
        for ours, new in zip(distinct(inputs.args), distinct(drawn), strict=True):
            ours.data.copy_(new.data)
        for ours, theirs in inputs.pairs():
            theirs.data.copy_(ours.data)

    def renew_cotangents(self, inputs: JudgedInputs) -> None:
        inputs.mixtures_of_cotangents = [self._noise.fill(theirs) for theirs in inputs.shared_cotangents]

    def recall(self, inputs: JudgedInputs) -> None:
        """Puts the values that `renew` drew into the judge's own tensors, where they are not yet: few are looked at."""
        if self._is_plain:
            for ours, mixture in zip(distinct(inputs.args), inputs.mixtures, strict=True):
                self._noise.fill(ours, mixture)
        self.recall_cotangents(inputs)

    def recall_cotangents(self, inputs: JudgedInputs) -> None:
        for ours, mixture in zip(inputs.cotangents, inputs.mixtures_of_cotangents, strict=True):
            self._noise.fill(ours, mixture)

    def _draw(self, values: str = "normal") -> tuple[Any, ...]:
        return self.op.inputs(self._make(Make, values=values), **self.sizes)

    def _make(self, kind: type[Make], **options: Any) -> Any:
        make = kind(self.device, self.dtype, requires_grad=self.backward, **options)
        make._generator = generator(self.device)
        return make


class _RememberingMake(Make):
    """Knows which tensors still hold what it drew."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._drawn: dict[int, tuple[Tensor, Tensor]] = {}

    def __call__(
        self, shape: Sequence[int], differentiable: bool = True, between: tuple[float, float] | None = None
    ) -> Tensor:
        tensor = super().__call__(shape, differentiable, between)
        if between is None:
            self._drawn[id(tensor)] = tensor, tensor.detach().clone()
        return tensor

    def is_as_drawn(self, tensor: Tensor) -> bool:
        drawn = self._drawn.get(id(tensor))
        return drawn is not None and tensor.is_floating_point() and same_bits(*drawn)


def distinct(args: Any) -> list[Tensor]:
    """The tensors among some arguments, each once."""
    return list({id(tensor): tensor for tensor in tensors(args)}.values())


def _alike(tree: Any, device: str) -> Any:
    """New tensors on a device in place of these; one that occurs twice is one."""
    of_id: dict[int, Tensor] = {}

    def alike(tensor: Tensor) -> Tensor:
        if id(tensor) not in of_id:
            of_id[id(tensor)] = _empty_like(tensor, device).requires_grad_(tensor.requires_grad)
        return of_id[id(tensor)]

    return pytree.tree_map_only(Tensor, alike, tree)


def _empty_like(tensor: Tensor, device: str) -> Tensor:
    if not tensor.is_contiguous():
        return torch.empty_like(tensor, device=device)
    # The same, but in C++ from and to the device "meta", too.
    return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=device)
