"""Calls an op in this very process, as `OpProcess` has it called in another: for `tune`, and for tests."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from kernelgen.worker.fuzzed_op import FuzzedOp
from kernelgen.worker.judge.arena import LocalArena
from kernelgen.worker.judge.caller import Caller
from kernelgen.worker.judge.op_process import RaisedError


def caller_of(function: Callable[..., Any], device: str) -> Caller:
    return Caller(SameProcess(function), LocalArena(device), device)


class SameProcess:
    """An order runs when its answer is asked for."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._op = _LocalOp(function)
        self._ordered: tuple[str, dict[str, Any]]

    def order(self, do: str, call: str, **arguments: Any) -> None:
        self._ordered = call, arguments

    def answer(self) -> dict[str, Any]:
        call, arguments = self._ordered
        try:
            return getattr(self._op, call)(**arguments)
        except torch.OutOfMemoryError:
            raise
        except Exception as error:
            raise RaisedError(type(error).__name__, str(error)) from error

    def read(self, address: int, nbytes: int) -> Tensor:
        raise NotImplementedError("Results of this process are at hand.")


class _LocalOp(FuzzedOp):
    def _shared(self, tensor: Tensor) -> Tensor:
        return tensor
