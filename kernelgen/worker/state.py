"""The state that a process has beside its tensors, which a call of an op leaves as it was.

The op's process says what a call changed, the judge whether that is a fault.
"""

import contextlib
import ctypes
import random
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from kernelgen.worker.mismatch import MismatchError

_SYSTEM = ctypes.CDLL(None)


def rounding() -> list[bool]:
    """How the processor rounds a number up, down, and a negative one: all false is to the nearest."""
    unit, little = torch.ones(()), 1e-10
    return [bool(unit + little > 1), bool(unit - little < 1), bool(-unit + little > -1)]


def round_to_nearest(before: object = None) -> None:
    """As every process starts."""
    if hasattr(_SYSTEM, "fesetround"):
        _SYSTEM.fesetround(0)


# What is kept, and how it is read and put back.
_SETTINGS: dict[str, tuple[Callable[[], Any], Callable[[Any], object]]] = {
    "the default dtype": (torch.get_default_dtype, torch.set_default_dtype),
    "the default device": (torch.get_default_device, torch.set_default_device),
    "the number of threads": (torch.get_num_threads, torch.set_num_threads),
    "whether gradients are computed": (torch.is_grad_enabled, torch.set_grad_enabled),
    "whether only deterministic algorithms run": (
        lambda: (torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()),
        lambda old: torch.use_deterministic_algorithms(old[0], warn_only=old[1]),
    ),
    "whether cuDNN is deterministic": (
        lambda: torch.backends.cudnn.deterministic,
        lambda old: setattr(torch.backends.cudnn, "deterministic", old),
    ),
    "the precision of float32 products": (torch.get_float32_matmul_precision, torch.set_float32_matmul_precision),
    "whether denormal numbers are flushed": (
        lambda: bool(torch.full((), 1e-40) * 1 == 0),
        torch.set_flush_denormal,
    ),
    "how numbers are rounded": (rounding, round_to_nearest),
    "Python's random numbers": (random.getstate, random.setstate),
}
GENERATOR = "PyTorch's random numbers"


@contextlib.contextmanager
def changes(device: str) -> Iterator[list[str]]:
    """A list that names, afterwards, the settings and generators that the calls inside changed; they are put back."""
    changed: list[str] = []
    before, drawn = {name: read() for name, (read, _) in _SETTINGS.items()}, _generators(device)
    try:
        yield changed
    finally:
        for name, (read, write) in _SETTINGS.items():
            if read() != before[name]:
                changed.append(name)
                write(before[name])
        if not _same(drawn, _generators(device)):
            changed.append(GENERATOR)


def check(changed: list[str], device: str, reference: Callable[..., Any], args: Any) -> None:
    """Raises MismatchError if a call changed something; it may draw random numbers where the reference draws some from
    these arguments."""
    changed = [name for name in changed if name in _SETTINGS or name == GENERATOR]
    if changed == [GENERATOR] and _draws(device, reference, args):
        return
    if changed:
        raise MismatchError("state", f"it changed {' and '.join(changed)}")


def _draws(device: str, function: Callable[..., Any], args: Any) -> bool:
    """Whether a function draws random numbers."""
    before = _generators(device)
    with torch.no_grad():
        function(*args)
    return not _same(before, _generators(device))


def _generators(device: str) -> list[Tensor]:
    cuda = [torch.cuda.get_rng_state(device)] if torch.device(device).type == "cuda" else []
    return [torch.get_rng_state(), *cuda]


def _same(first: list[Tensor], second: list[Tensor]) -> bool:
    return all(map(torch.equal, first, second))
