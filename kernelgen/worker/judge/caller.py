"""Has an op called for fuzz, and reads what it returned.

The judge's own tensors hold the values. The op gets copies of their whole storages, gaps and margins included, at
addresses that stay the same until `place` is called again.
"""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from kernelgen.worker.evaluation import Evaluation, own, tensors
from kernelgen.worker.judge.arena import StoragePart, TensorPlace, aligned
from kernelgen.worker.judge.errors import NOT_ASKED_FOR, CallError, RaisedError
from kernelgen.worker.judge.gpu_memory import GpuMemory
from kernelgen.worker.judge.results import checked_layout, rebuilt
from kernelgen.worker.mismatch import MismatchError, NotWrittenError, OpOutOfMemoryError

# In each report of the emulated GPU, which is shown whole.
_EMULATED = "on the emulated GPU"


class Process(Protocol):
    """As `OpProcess`; orders are answered in their order."""

    def order(self, do: str, **arguments: Any) -> None: ...
    def answer(self) -> dict[str, Any]: ...
    def read(self, address: int, nbytes: int) -> Tensor: ...


@dataclass(frozen=True)
class Region:
    """Where a tensor lies in the op's process; `address` in bytes, shape and stride in elements."""

    address: int
    dtype: torch.dtype
    shape: tuple[int, ...]
    stride: tuple[int, ...]

    def layout(self) -> Tensor:
        """A tensor of this layout, without memory."""
        return torch.empty_strided(self.shape, self.stride, dtype=self.dtype, device="meta")


@dataclass(frozen=True)
class CallResult:
    """What one call returned: the container in words, and where the tensors lie."""

    kind: str
    outputs: list[Region]
    grads: list[Region | None]
    values: Evaluation


class Caller:
    """Gives a process orders of `FuzzedOp`.

    Args:
        arena: what the inputs lie in; has `resize` and `storage`.
        device: where the op's tensors are.
    """

    def __init__(self, process: Process, arena: Any, device: str) -> None:
        self._process, self._arena, self._device = process, arena, device
        self._memory = GpuMemory() if device.startswith("cuda") else None
        self._pending = False
        self._sets, self._count = 0, 0
        self._pairs: list[tuple[Tensor, Tensor]] = []
        self._addresses: dict[int, int] = {}

    # ---- Inputs -----------------------------------------------------------------------------------------------

    def place(self, *sets: tuple[Any, Sequence[Tensor]]) -> None:
        """Gives the op copies of these arguments and cotangents, under the numbers 0, 1, …"""
        self.drain()
        self._sets = len(sets)
        storages: dict[int, tuple[torch.UntypedStorage, bool]] = {}
        for tensor in tensors(sets):
            storage = tensor.untyped_storage()
            storages.setdefault(storage._cdata, (storage, tensor.is_floating_point()))
        spans, offset = [], 0
        for storage, is_floating in storages.values():
            spans.append((offset, storage.nbytes(), is_floating))
            offset = aligned(offset + storage.nbytes() + 1)
        handle, whole = self._arena.resize(offset), self._arena.storage
        self._pairs = [
            (_as_bytes(storage), _as_bytes(whole[begin : begin + nbytes]))
            for (storage, _), (begin, nbytes, _) in zip(storages.values(), spans, strict=True)
        ]
        self.hand_over()
        numbers = {key: number for number, key in enumerate(storages)}
        parts = {id(t): _part(t, numbers[t.untyped_storage()._cdata]) for t in tensors(sets)}
        described = pytree.tree_map_only(Tensor, lambda t: parts[id(t)], list(sets))
        answer = self._ask("inputs", arena=handle, storages=spans, sets=described)
        if len(answer["addresses"]) != len(spans):
            raise MismatchError("outputs", NOT_ASKED_FOR)
        self._addresses = dict(zip(storages, answer["addresses"], strict=True))

    def hand_over(self) -> None:
        """Writes the values of the judge's tensors to the op's."""
        for ours, theirs in self._pairs:
            theirs.copy_(ours)
        if self._device.startswith("cuda"):
            torch.cuda.synchronize()

    def were_changed(self) -> bool:
        return not all(torch.equal(ours, theirs) for ours, theirs in self._pairs)

    def region(self, tensor: Tensor) -> Region:
        """Where the op's copy of a placed tensor lies."""
        address = self._addresses[tensor.untyped_storage()._cdata] + tensor.storage_offset() * tensor.element_size()
        return Region(address, tensor.dtype, tuple(tensor.shape), tuple(tensor.stride()))

    # ---- Calls ------------------------------------------------------------------------------------------------

    def order(self, call: str, **arguments: Any) -> None:
        """Has an order of `FuzzedOp` begun; the judge can compute meanwhile."""
        self.drain()
        self._process.order("fuzz", call=call, **arguments)
        self._pending = True
        times = arguments.get("times", 0)
        more = {"contract": 2, "repeat": times, "in_a_graph": times or 1}
        more |= {"several_threads": self._sets * (1 + times), "compiled": self._sets}
        self._count = 1 + len(arguments["modes"]) if call == "draw" else more.get(call, 1)

    def answer(self) -> tuple[list[CallResult], dict[str, Any]]:
        """The results of the last order, read now, and what else was said.

        Raises:
            MismatchError: it raised, or returned what are no tensors.
            NotWrittenError: it is not written yet.
            OpOutOfMemoryError: it says that it ran out of memory.
        """
        self._pending = False
        try:
            answer = self._process.answer()
            if len(answer["calls"]) != self._count:
                raise CallError(NOT_ASKED_FOR)
            self._open(answer["allocations"])
            results = [self._result(facts) for facts in answer["calls"]]
            if self._memory:
                torch.cuda.synchronize()  # Before the process goes on, and writes there.
            return results, answer
        except RaisedError as error:
            raise _as_fault(error) from None
        except CallError as error:
            raise MismatchError("outputs", str(error)) from None
        except ValueError:
            raise MismatchError("outputs", NOT_ASKED_FOR) from None

    def _open(self, allocations: Sequence[Any]) -> None:
        try:
            if self._memory:
                self._memory.open(allocations)
        except RuntimeError as error:
            raise CallError(f"its results cannot be read: {error}") from None

    def call(self, call: str, **arguments: Any) -> list[CallResult]:
        self.order(call, **arguments)
        return self.answer()[0]

    def evaluate(self, number: int = 0, **how: Any) -> Evaluation:
        """The outputs and gradients of a call on a set; `how` as in `FuzzedOp.evaluate`."""
        (result,) = self.call("evaluate", number=number, **how)
        return result.values

    def set_schedules(self, package: str, schedule: int) -> None:
        """Of the emulated GPU."""
        self.drain()
        self._process.order("set_schedules", package=package, schedule=schedule)
        self._process.answer()

    def _ask(self, call: str, **arguments: Any) -> dict[str, Any]:
        self._process.order("fuzz", call=call, **arguments)
        try:
            return self._process.answer()
        except RaisedError as error:
            raise _as_fault(error) from None
        except CallError as error:
            raise MismatchError("outputs", str(error)) from None

    def drain(self) -> None:
        """Makes the process ready for an order: takes an answer that nobody waits for, since the judge knew enough
        before, and closes the op's memory. The op may free it from now on, as PyTorch does where a GPU's memory gets
        short, and CUDA does not say what another process reads of freed memory that it had opened."""
        if self._pending:
            self._pending = False
            with suppress(CallError):
                self._process.answer()
        if self._memory:
            self._memory.close()

    # ---- Results ----------------------------------------------------------------------------------------------

    def _result(self, facts: dict[str, Any]) -> CallResult:
        outputs = [self._read(*some) for some in facts["outputs"]]
        grads = [None if some is None else self._read(*some) for some in facts["grads"]]
        values = Evaluation([value for _, value in outputs], [pair and pair[1] for pair in grads])
        regions = [region for region, _ in outputs], [pair and pair[0] for pair in grads]
        return CallResult(str(facts["kind"]), *regions, values)

    def _read(
        self, type_: str, dtype: str, shape: list[int], stride: list[int], device: str, address: int, place: int | None
    ) -> tuple[Region, Tensor]:
        """Where a result lies, and a contiguous copy of it."""
        layout = checked_layout(type_, dtype, shape, stride)
        if device.partition(":")[0] != torch.device(self._device).type:
            raise CallError(f"it returned a tensor on {device} for inputs on {self._device}")
        region = Region(address, *layout)
        if not region.layout().numel():
            return region, torch.empty(layout[1], dtype=layout[0], device=self._device)
        try:
            if place is not None:
                return region, own(TensorPlace(place, *layout).tensor(self._arena.storage))
            if self._memory:
                return region, self._memory.read(region.address, *layout)
            return region, rebuilt(self._process, region.address, *layout)
        except (RuntimeError, MemoryError) as error:
            raise CallError(f"it returned a tensor of shape {layout[1]}, which cannot be read: {error}") from None


def region_of(facts: Sequence[Any]) -> Region:
    """Where a tensor lies that is not read.

    Raises:
        MismatchError: it is none.
    """
    type_, dtype, shape, stride, _, address = facts
    try:
        return Region(address, *checked_layout(type_, dtype, shape, stride))
    except (CallError, ValueError) as error:
        raise MismatchError("outputs", str(error)) from None


def _as_fault(error: RaisedError) -> Exception:
    if error.kind == "OutOfMemoryError":
        return OpOutOfMemoryError(error.message)
    if error.kind == "NotImplementedError" and "not written yet" in error.message:
        return NotWrittenError(error.message)
    if "CUDA error" in error.message or error.kind == "AcceleratorError":
        return RuntimeError(f"CUDA error: {error}")  # Its process can compute no more.
    if _EMULATED in error.message:
        return MismatchError("emulated GPU", error.message)
    return MismatchError("op", f"it raised {error}")


def _part(tensor: Tensor, storage: int) -> StoragePart:
    layout = tensor.storage_offset(), tensor.dtype, tuple(tensor.shape), tuple(tensor.stride())
    return StoragePart(storage, *layout, tensor.requires_grad)


def _as_bytes(storage: torch.UntypedStorage) -> Tensor:
    return torch.empty(0, dtype=torch.uint8, device=storage.device).set_(storage)
