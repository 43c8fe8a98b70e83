"""Memory that the judge and the processes of an op share: inputs and cotangents lie there, and nothing else."""

import ctypes
import mmap
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from kernelgen.errors import LabError

# CUDA shares whole allocations of the driver's. One of this size, or of a multiple of it, holds one tensor alone.
_CUDA_GRANULE = 32 * 2**20
_ALIGNMENT = 256
_MADV_POPULATE_WRITE = 23  # Since Linux 5.14.
_SYSTEM = ctypes.CDLL(None)
NOT_SHARED = (
    "The op runs in a process of its own, with which CUDA shares no memory here, as on Windows' Linux (WSL); run this "
    "on another machine, or on the CPU by --device cpu"
)


@dataclass(frozen=True)
class TensorPlace:
    """Where a tensor lies in the arena, and how; `offset` in bytes."""

    offset: int
    dtype: torch.dtype
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    requires_grad: bool = False

    @property
    def nbytes(self) -> int:
        return span(self.shape, self.stride) * self.dtype.itemsize

    def tensor(self, storage: torch.UntypedStorage) -> Tensor:
        """The tensor in an arena's storage, with a storage of its own, so that nothing around it can be seen."""
        part = storage[self.offset : self.offset + self.nbytes]
        empty = torch.empty(0, dtype=self.dtype, device=storage.device)
        return empty.set_(part, 0, self.shape, self.stride).requires_grad_(self.requires_grad)


@dataclass(frozen=True, eq=False)
class StoragePart:
    """A tensor in the storage of this number, from an element on; each tensor has a part of its own."""

    storage: int
    offset: int
    dtype: torch.dtype
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    requires_grad: bool

    def tensor(self, storage: torch.UntypedStorage) -> Tensor:
        empty = torch.empty(0, dtype=self.dtype, device=storage.device)
        return empty.set_(storage, self.offset, self.shape, self.stride).requires_grad_(self.requires_grad)


def span(shape: Sequence[int], stride: Sequence[int]) -> int:
    """The elements from the first to the last."""
    return 0 if 0 in shape else 1 + sum((size - 1) * step for size, step in zip(shape, stride, strict=True))


def extent_of(tensor: Tensor) -> tuple[int, int]:
    """Where a tensor lies: its address, and the bytes from its first element to its last."""
    return tensor.data_ptr(), span(tensor.shape, tensor.stride()) * tensor.element_size()


def aligned(offset: int) -> int:
    return -(-offset // _ALIGNMENT) * _ALIGNMENT


class CpuArena:
    """Anonymous shared memory. It grows: both sides map it anew for each case."""

    def __init__(self) -> None:
        self.fd = os.memfd_create("inputs", 0)
        os.set_inheritable(self.fd, True)
        self._bytes = mmap.PAGESIZE

    def resize(self, nbytes: int) -> dict[str, Any]:
        """Makes room, with new pages; returns what the other side opens it by."""
        # Never less: whoever still has the memory of before would die of a look at what is gone.
        self._bytes = max(nbytes, self._bytes)
        os.ftruncate(self.fd, self._bytes)
        memory = mmap.mmap(self.fd, self._bytes)
        memory.madvise(mmap.MADV_REMOVE)
        self.storage = torch.frombuffer(memory, dtype=torch.uint8).untyped_storage()
        return {"bytes": self._bytes}


class CudaArena:
    """One allocation on the GPU, shared by its IPC handle."""

    def resize(self, nbytes: int) -> dict[str, Any]:
        """As `CpuArena.resize`.

        Raises:
            LabError: CUDA shares no memory here.
        """
        self.storage = None
        torch.cuda.synchronize()
        torch.cuda.ipc_collect()
        torch.cuda.empty_cache()  # A block that the allocator kept could hold other tensors beside this.
        size = max(1, -(-nbytes // _CUDA_GRANULE)) * _CUDA_GRANULE
        self.storage = torch.empty(size, dtype=torch.uint8, device="cuda").untyped_storage()
        try:
            return {"shared": self.storage._share_cuda_()}
        except torch.OutOfMemoryError:
            raise
        except RuntimeError as error:
            reason = str(error).partition("\n")[0]
            raise LabError(f"{NOT_SHARED} ({reason}).") from None


def opened(fd: int, arena: dict[str, Any]) -> torch.UntypedStorage:
    """The memory that an arena's `resize` told of."""
    return open_cuda(**arena) if "shared" in arena else open_cpu(fd, **arena)


def open_cpu(fd: int, bytes: int) -> torch.UntypedStorage:
    return torch.frombuffer(mmap.mmap(fd, bytes), dtype=torch.uint8).untyped_storage()


def populate(storage: torch.UntypedStorage) -> None:
    """Maps all pages of an arena on the CPU, which another process may have unmapped: a timed call does not wait for
    them. Costs some nanoseconds for each that is mapped."""
    if hasattr(_SYSTEM, "madvise"):
        _SYSTEM.madvise(ctypes.c_void_p(storage.data_ptr()), ctypes.c_size_t(storage.nbytes()), _MADV_POPULATE_WRITE)


def open_cuda(shared: tuple[Any, ...]) -> torch.UntypedStorage:
    torch.cuda.init()
    return torch.UntypedStorage._new_shared_cuda(*shared)
