"""A GPU's memory, as a process of an op allocates it and its judge opens it: by a driver that gives a later allocation
the address and the handle of an earlier one, which is still what lies where the judge had opened that."""

# ruff: noqa: N802  # The driver's names.

import ctypes
import itertools
import random
from typing import Any

import torch
from torch import Tensor

from kernelgen.worker.judge import gpu_memory
from kernelgen.worker.judge.reading import GpuReader

from .same_process import SameProcess

_GRANULE = 2**14


class FakeDriver:
    """CUDA's driver, for both processes: of each function what gpu_memory.py uses."""

    # Whether it shares what a process allocates, such as no expandable segment; and whether it gives numbers.
    shares, numbers = True, True

    def __init__(self) -> None:
        self._numbers, self._mappings = itertools.count(1), itertools.count(2**50, 2**30)
        # By address, the number and the memory of an allocation; by handle and by address, what the judge has open.
        self._allocations: dict[int, tuple[int, Tensor]] = {}
        self._open: dict[bytes, list[Any]] = {}
        self._mapped: dict[int, Tensor] = {}
        # Allocations that no allocator of PyTorch's made.
        self._plain: set[int] = set()

    def malloc(self, nbytes: int) -> int:
        base = next(base for base in itertools.count(2**40, 2**30) if base not in self._allocations)
        memory = torch.randint(256, (-(-nbytes // _GRANULE) * _GRANULE,), dtype=torch.uint8)
        self._allocations[base] = next(self._numbers), memory
        return base

    def free(self, base: int) -> None:
        del self._allocations[base]

    def memory_at(self, address: int) -> Tensor:
        base = address // 2**30 * 2**30
        return {**{b: m for b, (_, m) in self._allocations.items()}, **self._mapped}[base][address - base :]

    def cuMemAlloc_v2(self, base: Any, nbytes: Any) -> int:
        base._obj.value = self.malloc(nbytes.value)
        self._plain.add(base._obj.value)
        return 0

    def cuMemFree_v2(self, base: Any) -> int:
        self.free(base.value)
        return 0

    def cuMemcpyDtoD_v2(self, to: Any, source: Any, nbytes: Any) -> int:
        self.memory_at(to.value)[: nbytes.value] = self.memory_at(source.value)[: nbytes.value]
        return 0

    def cuMemGetAddressRange_v2(self, base: Any, nbytes: Any, address: Any) -> int:
        base._obj.value = address.value // 2**30 * 2**30
        nbytes._obj.value = len(self._allocations[base._obj.value][1])
        return 0

    def cuIpcGetMemHandle(self, handle: Any, base: Any) -> int:
        if not self.shares and base.value not in self._plain:
            return 1
        ctypes.memmove(handle, base.value.to_bytes(64, "little"), 64)
        return 0

    def cuPointerGetAttribute(self, value: Any, attribute: int, base: Any) -> int:
        assert attribute == 7
        if not self.numbers:
            return 1
        value._obj.value = self._allocations[base.value][0]
        return 0

    def cuIpcOpenMemHandle_v2(self, here: Any, raw: Any, flags: int) -> int:
        handle = bytes(raw)
        if handle not in self._open:
            base = int.from_bytes(handle, "little")
            self._open[handle] = [next(self._mappings), 0]
            self._mapped[self._open[handle][0]] = self._allocations[base][1]
        self._open[handle][1] += 1
        here._obj.value = self._open[handle][0]
        return 0

    def cuIpcCloseMemHandle(self, here: Any) -> int:
        (handle,) = (handle for handle, (address, _) in self._open.items() if address == here.value)
        self._open[handle][1] -= 1
        if not self._open[handle][1]:
            del self._open[handle], self._mapped[here.value]
        return 0


class FakeGpuProcess(SameProcess):
    """Its results lie in the fake GPU's memory, at blocks that a caching allocator gives out and now and then, where
    memory lacks or a graph is captured, frees."""

    def __init__(self, function: Any, arena: Any, driver: FakeDriver, seed: int = 0) -> None:
        super().__init__(function, arena)
        self._driver, self._random = driver, random.Random(seed)
        self._free: list[int] = []
        self._taken: list[int] = []
        self._sharing = gpu_memory.Sharing()

    def go(self, numbers: Any = ()) -> tuple[float, float, list[int]]:
        before, self._taken = self._taken, []
        if self._random.random() < 0.5:  # As where the clock takes a call again, before it lets the first result go.
            self._free += before
            before = []
        seconds, own, _ = super().go()
        results = [tensor for result in self._host._results for tensor in result]
        if self._random.random() < 0.2:
            self._empty_cache()
        self._taken = [self._with(tensor.reshape(-1).view(torch.uint8)) for tensor in results]
        self._free += before
        return seconds, own, list(self._taken)

    def ask(self, do: str, **arguments: Any) -> dict[str, Any]:
        if do == "allocations":
            results = [tensor for result in self._host._results for tensor in result]
            extents = [(address, tensor.nbytes) for address, tensor in zip(self._taken, results, strict=True)]
            return {"allocations": [list(facts) for facts in self._sharing.allocations(extents)]}
        answer = super().ask(do, **arguments)
        if do in ("inputs", "free_memory"):
            self._free, self._taken = self._free + self._taken, []
            self._empty_cache()
        return answer

    def _with(self, values: Tensor) -> int:
        base = self._free.pop() if self._free else self._driver.malloc(len(values))
        self._driver.memory_at(base)[: len(values)] = values
        return base

    def _empty_cache(self) -> None:
        for base in self._free:
            self._driver.free(base)
        self._free.clear()


def installed(monkeypatch: Any) -> FakeDriver:
    """The fake in place of the GPU."""
    driver = FakeDriver()
    monkeypatch.setattr(gpu_memory, "_driver", lambda: driver)
    monkeypatch.setattr(gpu_memory, "_copy_of", lambda address, nbytes: driver.memory_at(address)[:nbytes].clone())
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    return driver


def with_fake_gpu(timed: Any) -> None:
    """Has a `JudgedCase` of a `FakeGpuProcess` read from it."""
    timed.results.readers = {process: GpuReader(process) for process in timed._processes}
