"""Results of an op's process, which says where they lie and what they are; only what is checked is believed."""

from typing import Any

import torch
from torch import Tensor

from kernelgen.worker.judge.arena import Place
from kernelgen.worker.judge.op_process import CallError, OpProcess

Layout = tuple[torch.dtype, tuple[int, ...], tuple[int, ...]]


def checked_layouts(answer: dict[str, Any]) -> list[list[Layout]]:
    """The layouts of each call's results, if they are plain tensors.

    Raises:
        CallError: they are not.
    """
    try:
        return [[_checked_layout(*facts) for facts in of_call] for of_call in answer["layouts"]]
    except (KeyError, TypeError, ValueError):
        raise CallError("TypeError: it returned no plain tensors") from None


def _checked_layout(type_: str, dtype: str, shape: list[int], stride: list[int]) -> Layout:
    if type_ != "torch.Tensor":
        raise CallError(f"it returned a {type_}, not a plain torch.Tensor")
    of_name = getattr(torch, dtype.removeprefix("torch."), None)
    numbers = [*shape, *stride]
    if not isinstance(of_name, torch.dtype) or not all(type(n) is int and n >= 0 for n in numbers):
        raise ValueError(dtype)
    if len(shape) != len(stride):
        raise ValueError(shape)
    return of_name, tuple(shape), tuple(stride)


def rebuilt(process: OpProcess, address: int, dtype: torch.dtype, shape: Any, stride: Any) -> Tensor:
    place = Place(0, dtype, shape, stride)
    return place.tensor(process.read(address, place.nbytes).untyped_storage()).contiguous()


def opened(answer: dict[str, Any], layout: list[Layout]) -> list[list[Tensor]]:
    """Copies of results that lie on the GPU."""
    copies = []
    for of_call in answer["results"]:
        tensors = []
        for (shared, offset), (dtype, shape, stride) in zip(of_call, layout, strict=True):
            facts = [bytes.fromhex(fact) if isinstance(fact, str) else fact for fact in shared]
            storage = torch.UntypedStorage._new_shared_cuda(*facts)
            tensors.append(torch.empty(0, dtype=dtype, device="cuda").set_(storage, offset, shape, stride).clone())
        copies.append(tensors)
    torch.cuda.synchronize()
    return copies
