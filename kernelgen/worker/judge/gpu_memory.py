"""The memory of an op's process on a GPU, opened by its judge, which then reads from it without asking.

By CUDA's driver, whose functions tell of the allocation that an address lies in, and open it in another process: what
a process shares through torch stays allocated until the other side lets go of it.
"""

import ctypes
import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from kernelgen.worker.judge.arena import TensorPlace
from kernelgen.worker.judge.results import contiguous

# Address, bytes, handle and number of an allocation, as an op's process tells of it. Where an allocation was freed, a
# later one may have its address and its handle, while what is open here is still the memory of the earlier; but the
# number is another, since CUDA gives none twice in a process (CU_POINTER_ATTRIBUTE_BUFFER_ID). Below 0 it is not
# CUDA's, and new each time: that of a copy, or of memory that the driver gives no number.
Allocation = tuple[int, int, str, int]
_LAZY_PEER_ACCESS, _BUFFER_ID = 1, 7
# The driver may have smaller allocations share one of its own, which it then opens from its beginning.
_GRANULE = 2 * 2**20
# Bytes of allocations that stay open though the last results do not lie there: the op may have freed them.
_MOST_KEPT = 2**30


class _Handle(ctypes.Structure):
    _fields_ = (("reserved", ctypes.c_ubyte * 64),)


class Sharing:
    """Tells another process of this process's memory on the GPU."""

    def __init__(self) -> None:
        self._numbers = itertools.count(-1, -1)
        # Address and size of each allocation that holds a copy, which the next ones are made in.
        self._copies: list[tuple[int, int]] = []

    def allocations(self, regions: Iterable[tuple[int, int]]) -> list[Allocation]:
        """The allocations that these regions lie in, an address and bytes each. In place of one that CUDA does not
        share, such as an expandable segment of PyTorch's, it is a copy of the region, as if that were at its address.

        Raises:
            RuntimeError: a region is no memory of this GPU, or there is none for a copy.
        """
        allocations, copied = [], 0
        for address, nbytes in regions:
            if any(begin <= address and address + nbytes <= begin + size for begin, size, *_ in allocations):
                continue
            allocation = self._allocation_of(address)
            if allocation is None:
                allocation = address, nbytes, self._copy(copied, address, nbytes), next(self._numbers)
                copied += 1
            allocations.append(allocation)
        torch.cuda.synchronize()
        return allocations

    def _allocation_of(self, address: int) -> Allocation | None:
        """None if CUDA does not share it."""
        driver, base, size, number = _driver(), ctypes.c_uint64(), ctypes.c_size_t(), ctypes.c_uint64()
        if driver.cuMemGetAddressRange_v2(ctypes.byref(base), ctypes.byref(size), ctypes.c_uint64(address)):
            return None
        if (handle := _handle_of(base.value)) is None:
            return None
        has_number = not driver.cuPointerGetAttribute(ctypes.byref(number), _BUFFER_ID, base)
        return base.value, size.value, handle, number.value if has_number else next(self._numbers)

    def _copy(self, index: int, address: int, nbytes: int) -> str:
        """Copies memory to the allocation of this index; its handle."""
        driver, to = _driver(), ctypes.c_uint64()
        if index == len(self._copies) or self._copies[index][1] < nbytes:
            size = -(-nbytes // _GRANULE) * _GRANULE
            _check(driver.cuMemAlloc_v2(ctypes.byref(to), ctypes.c_size_t(size)))
            for old, _ in self._copies[index : index + 1]:
                _check(driver.cuMemFree_v2(ctypes.c_uint64(old)))
            self._copies[index : index + 1] = [(to.value, size)]
        to.value, _ = self._copies[index]
        _check(driver.cuMemcpyDtoD_v2(to, ctypes.c_uint64(address), ctypes.c_size_t(nbytes)))
        if (handle := _handle_of(to.value)) is None:
            raise RuntimeError("CUDA shares no memory with another process here")
        return handle


def _handle_of(base: int) -> str | None:
    """What another process opens an allocation by; None if CUDA does not share it."""
    handle = _Handle()
    failed = _driver().cuIpcGetMemHandle(ctypes.byref(handle), ctypes.c_uint64(base))
    return None if failed else bytes(handle.reserved).hex()


@dataclass(frozen=True)
class _Opened:
    """An allocation of the op's process, and where it is mapped here."""

    begin: int
    nbytes: int
    handle: str
    number: int
    here: int

    @property
    def allocation(self) -> Allocation:
        return self.begin, self.nbytes, self.handle, self.number


class GpuMemory:
    """The allocations of an op's process that are open here."""

    def __init__(self) -> None:
        self._opened: list[_Opened] = []

    def read(self, address: int, dtype: torch.dtype, shape: Sequence[int], stride: Sequence[int]) -> Tensor:
        """A contiguous copy of a tensor of the op's process, which the current stream makes.

        Raises:
            RuntimeError: it does not lie in what is open.
        """
        place = TensorPlace(0, dtype, tuple(shape), tuple(stride))
        if not place.nbytes:
            return torch.empty(tuple(shape), dtype=dtype, device="cuda")
        for opened in self._opened:
            if opened.begin <= address and address + place.nbytes <= opened.begin + opened.nbytes:
                whole = _copy_of(opened.here + address - opened.begin, place.nbytes)
                return contiguous(place.tensor(whole.untyped_storage()))
        raise RuntimeError("it lies in memory that CUDA does not share")

    def covers(self, allocations: Sequence[Allocation]) -> bool:
        """Whether all of these are open, and are what they were."""
        return {opened.allocation for opened in self._opened}.issuperset(map(tuple, allocations))

    def open(self, allocations: Sequence[Allocation]) -> None:
        """Opens these. What was open at the same addresses, or by the same handles, is closed before, for CUDA would
        open the same memory again; as is the rest if it is too much to keep.

        Raises:
            RuntimeError: there is no such memory.
        """
        wanted = set(map(tuple, allocations))
        handles = {handle for _, _, handle, _ in wanted}
        others = [opened for opened in self._opened if opened.allocation not in wanted]
        is_too_much = sum(opened.nbytes for opened in others) > _MOST_KEPT
        for opened in others:
            end = opened.begin + opened.nbytes
            is_at_one = any(opened.begin < begin + nbytes and begin < end for begin, nbytes, *_ in wanted)
            if is_too_much or is_at_one or opened.handle in handles:
                self._close(opened)
        for begin, nbytes, handle, number in wanted - {opened.allocation for opened in self._opened}:
            here = ctypes.c_uint64()
            raw = _Handle.from_buffer_copy(bytes.fromhex(handle).ljust(64, b"\0")[:64])
            _check(_driver().cuIpcOpenMemHandle_v2(ctypes.byref(here), raw, _LAZY_PEER_ACCESS))
            self._opened.append(_Opened(begin, nbytes, handle, number, here.value))

    def _close(self, opened: _Opened) -> None:
        self._opened.remove(opened)
        _driver().cuIpcCloseMemHandle(ctypes.c_uint64(opened.here))

    def close(self) -> None:
        for opened in [*self._opened]:
            self._close(opened)


def taken() -> int:
    """The bytes of the GPU's memory that others than this process' allocator have."""
    free, total = torch.cuda.mem_get_info()
    return total - free - torch.cuda.memory_reserved()


def _copy_of(address: int, nbytes: int) -> Tensor:
    """Of this process' memory on the GPU."""
    interface = {"shape": (nbytes,), "typestr": "|u1", "data": (address, False), "version": 2}
    memory = torch.as_tensor(SimpleNamespace(__cuda_array_interface__=interface), device="cuda")
    return torch.empty(nbytes, dtype=torch.uint8, device="cuda").copy_(memory)


def _driver() -> Any:
    torch.cuda.synchronize()  # Which makes torch's context that of this thread.
    return ctypes.CDLL("libcuda.so.1")


def _check(status: int) -> None:
    if status:
        raise RuntimeError(f"CUDA's driver answered {status}: it does not share this memory with another process")
