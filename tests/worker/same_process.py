"""Calls a function in this very process, as `OpProcess` has an op called in another; and fuzzes one so."""

import contextlib
import json
import os
import pickle
import struct
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from kernelgen.worker import fuzz, op_host
from kernelgen.worker.cases import Case
from kernelgen.worker.judge.arena import CpuArena
from kernelgen.worker.judge.caller import Caller
from kernelgen.worker.judge.errors import RaisedError
from kernelgen.worker.judge.op_process import OpProcess
from kernelgen.worker.mismatch import Fault
from kernelgen.worker.op import Op


@contextlib.contextmanager
def _as_process_raises() -> Iterator[None]:
    try:
        yield
    except Exception as error:
        raise RaisedError(type(error).__name__, str(error)) from error


class SameProcess(OpProcess):
    """An order runs when its answer is asked for."""

    def __init__(self, function: Callable[..., Any], arena: CpuArena, mutates: tuple[int, ...] = ()) -> None:
        self.pid = os.getpid()
        self._host = op_host._Host(None, arena.fd)
        self._host._functions, self._host._mutates = {"op": function}, mutates

    def order(self, do: str, **arguments: Any) -> None:
        self._ordered = pickle.dumps((do, arguments))

    def answer(self) -> dict[str, Any]:
        do, arguments = pickle.loads(self._ordered)
        with _as_process_raises():
            return json.loads(json.dumps(getattr(self._host, do)(**arguments) or {}))

    def go(self, numbers: Sequence[int] = ()) -> tuple[float, float, list[int]]:
        start = time.perf_counter()
        with _as_process_raises():
            payload = self._host._go(struct.pack(f"{len(numbers)}i", *numbers)).removeprefix(op_host.TIMED)
        own, *addresses = struct.unpack(f"d{len(payload) // 8 - 1}q", payload)
        return time.perf_counter() - start, own, addresses

    def settle(self, seconds: float) -> None:
        time.sleep(seconds)

    def move(self, cores: set[int]) -> None:
        pass


def caller_of(function: Callable[..., Any], mutates: tuple[int, ...] = ()) -> Caller:
    arena = CpuArena()
    return Caller(SameProcess(function, arena, mutates), arena, "cpu")


def run_case(op: Op, case: Case, seed: int) -> Fault | None:
    """What is wrong with an op in a case; None if it is right."""
    return fuzz.examine(op, case, "cpu", seed, caller_of(op.function, op.mutates)).fault
