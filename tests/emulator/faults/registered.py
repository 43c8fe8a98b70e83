"""Guarded memory whose tensors the emulator knows, so that it names what lies outside of them or is not written.

torch_glue registers the tensors of an op of a project likewise.
"""

import ctypes
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from kernelgen.emulator.library import EmulatedLibrary
from tests.emulator.conftest import Memory

# Added to the source of a library that is called with registered tensors.
REGISTRATION = """
#include "memory.h"
extern "C" void begin_problem(const char* name) {
  emulator::begin_call(name);
}
extern "C" void register_tensor(
    const char* name, char* data, int64_t itemsize, int64_t dimensions, const int64_t* sizes, const int64_t* strides,
    int64_t initialised) {
  emulator::note_tensor(
      {name, data, itemsize, {sizes, sizes + dimensions}, {strides, strides + dimensions}, nullptr, 0}, initialised);
}
"""


class RegisteredMemory(Memory):
    """Allocates tensors, and registers them before a call that they are arguments of."""

    def __init__(self) -> None:
        super().__init__()
        self._blank: set[int] = set()  # Addresses of tensors that no call has had yet.

    def empty(self, *shape: int, dtype: torch.dtype = torch.float32, shift: int = 0) -> torch.Tensor:
        tensor = super().empty(*shape, dtype=dtype, shift=shift)
        self._blank.add(tensor.data_ptr())
        return tensor

    def register(self, library: EmulatedLibrary, arguments: Sequence[Any], names: Mapping[int, str]) -> None:
        """Registers the tensors among the arguments; `names` are theirs by address."""
        functions = library._library
        functions.begin_problem(b"a kernel")
        for number, tensor in enumerate(arguments):
            if isinstance(tensor, torch.Tensor):
                address, dimensions = tensor.data_ptr(), tensor.dim()
                name = names.get(address, f"argument {number}").encode()
                extents = [(ctypes.c_int64 * dimensions)(*numbers) for numbers in (tensor.shape, tensor.stride())]
                # PyTorch counts what writes to a tensor, such as copy_.
                initialised = address not in self._blank or tensor._version > 0
                facts = map(ctypes.c_int64, (tensor.itemsize, dimensions))
                functions.register_tensor(name, ctypes.c_void_p(address), *facts, *extents, ctypes.c_int64(initialised))
        self._blank -= {tensor.data_ptr() for tensor in arguments if isinstance(tensor, torch.Tensor)}


class RegisteringLibrary:
    """A library that was compiled with REGISTRATION: its calls register their tensors first."""

    def __init__(self, library: EmulatedLibrary, memory: RegisteredMemory, names: Mapping[int, str] = {}) -> None:
        self._library, self._memory, self._names = library, memory, names

    def __call__(self, function: str, *arguments: Any, **options: Any) -> None:
        self._memory.register(self._library, arguments, self._names)
        self._library(function, *arguments, **options)
