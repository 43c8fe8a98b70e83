"""Fuzzes ops: runs their cases, and has a case that fails made as small as possible.

A case and a seed are all that it takes to repeat a failure.
"""

import itertools
import os
import re
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch

from kernelgen.errors import LabError
from kernelgen.worker import calls, emulated, fuzzed_case, protocol
from kernelgen.worker.cases import (
    Case,
    all_cases,
    as_text,
    complete,
    core,
    huge,
    measured,
    sizes_of,
)
from kernelgen.worker.evaluation import blamed_on, tensors
from kernelgen.worker.fuzzed_case import FuzzedCase
from kernelgen.worker.inputs import Make, work_of
from kernelgen.worker.judge import trusted
from kernelgen.worker.judge.caller import Caller
from kernelgen.worker.judge.judge import LoadedOp, trusted_root
from kernelgen.worker.judge.op_process import become_judge
from kernelgen.worker.mismatch import Fault, MismatchError, NotWrittenError, OpOutOfMemoryError, TooLargeError
from kernelgen.worker.op import EMULATED, Op, known_device, tensor_device
from kernelgen.worker.shrinking import SHRINK_S, shrink

# glibc then fills what it allocates with bytes that make huge numbers or NaN, so that an element nobody writes shows.
_VARIABLES = {"MALLOC_PERTURB_": "1"}
# Cases that are drawn beyond the core; and all cases of an op on the emulated GPU, which is slow.
_DRAWN, _EMULATED_CASES = 20, 60
# Failures of one check mostly have one cause, so the first is shrunk: for so many checks of an op.
_MOST_SHRUNK = 3
# As many times a case's inputs, in copies, float64 and intermediate results, as no op needs on the inputs of fuzz.
_MOST_COPIES = 256


@dataclass(frozen=True)
class Examination:
    """What is wrong with an op in a case, None if it is right; and by result the largest error, in units of what is
    allowed."""

    fault: Fault | None
    errors: dict[str, float] = field(default_factory=dict)


# ---- In the worker --------------------------------------------------------------------------------------------


def work(request: dict[str, Any], emit: protocol.Emit) -> None:
    """Fuzzes request["ops"].

    Args:
        request: `project`, `package`, `ops`, `seed`; and optionally `trusted` (see `LoadedOp`), `device`, `gpu` (which
            one is emulated), `dtype`, `count`, `deadline` (by time.time()), `case`, `fail_fast` (leave an op at its
            first failure; shrink nothing), and `part`: this worker's number, and how many share the cases.
        emit: gets "device" once; "start" before each case, then "passed" (with the largest `errors` by result), "too
            large" (for this GPU's memory) or "failure" (op, case, check, text), perhaps "shrinking", and "shrunk" (the
            same, with the smaller case under `shrunk`); for each op "planned" (op, part, cases, default) first,
            "skipped" (op, message) if it cannot be run, and "close" (op).
    """
    become_judge()
    teller = _Device(request, emit)
    ops: list[Op] = []
    for name in request["ops"]:  # All before the first runs, which could edit the lab.py of another.
        if not emit.is_closed(name):
            try:
                ops.append(trusted.load(trusted_root(request), request["package"], name))
            except LabError as error:
                emit("skipped", op=name, message=str(error))
                emit("close", op=name)
    for i, op in enumerate(ops):
        try:
            _fuzz(op, request, teller, len(ops) - i, emit)
        except LabError as error:
            emit("skipped", op=op.name, message=str(error))
        emit("close", op=op.name)


def _fuzz(op: Op, request: dict[str, Any], teller: "_Device", ops_left: int, emit: protocol.Emit) -> None:
    loaded = LoadedOp(request, op, _VARIABLES)
    try:
        if teller.device is None:
            loaded.wait()
            teller.tell(loaded.device)
        device = teller.device
        cases = _cases(op, request, device, ops_left, emit)
        first = next(cases, None)  # While the op's process imports torch: it takes a second or two.
        if not hasattr(loaded, "device"):
            loaded.wait()
        if first is not None:
            _Run(op, device, loaded.caller(), request, emit).all(itertools.chain([first], cases))
    finally:
        loaded.close()


class _Device:
    """Sends what the device is, once it is known."""

    def __init__(self, request: dict[str, Any], emit: protocol.Emit) -> None:
        self._request, self._emit = request, emit
        self.device: str | None = None
        if (device := known_device(request)) is not None:
            self.tell(device)

    def tell(self, device: str) -> None:
        self.device = device
        self._emit("device", **_describe(self._request, device))


def _describe(request: dict[str, Any], device: str) -> dict[str, Any]:
    """The device in words, the name of the machine part that it is, and the sizes that it is good for."""
    if device == EMULATED:
        words = f"{device} {request['gpu']}"
        return {"device": words, "name": words, "sizes": emulated.SIZES}
    name = torch.cuda.get_device_name(device) if device.startswith("cuda") else device
    return {"device": device, "name": name, "sizes": None}


def _cases(op: Op, request: dict[str, Any], device: str, ops_left: int, emit: protocol.Emit) -> Iterator[Case]:
    """The cases of one op that a request asks for; the ops that are left share the time until its deadline."""
    if request.get("case") is not None:
        yield complete(op, request["case"])
        return
    names = list(op.dtypes_on(device))
    if (dtype := request.get("dtype")) and dtype not in names:
        raise LabError(f"{op.name} is not fuzzed in {dtype} on {device}; its lab.py says {', '.join(names)}.")
    dtypes = [dtype] if dtype else names
    fit = partial(emulated.fitted, op) if device == EMULATED else None
    deadline, count = request.get("deadline"), request.get("count")
    until = time.time() + (deadline - time.time()) / ops_left if deadline else float("inf")
    kind = device.partition(":")[0]
    first = [*core(op, dtypes, calls.on_device(kind)), *measured(op, dtypes, kind)]
    by_default = _EMULATED_CASES if device == EMULATED else len(first) + _DRAWN
    count = count or (by_default if deadline is None else 10**9)
    number, parts = request.get("part", (0, 1))
    planned, default = (len(range(number, whole, parts)) for whole in (count, by_default))
    emit("planned", op=op.name, part=number, cases=planned if deadline is None else None, default=default)
    mine = itertools.islice(all_cases(op, dtypes, request["seed"], count, fit, first), number, None, parts)
    for i, case in enumerate(mine):
        if i and time.time() > until:
            return
        yield case
    if device == "cuda" and number == parts - 1:
        yield from huge(op, dtype)


class _Run:
    """Runs the cases of one op."""

    def __init__(self, op: Op, device: str, caller: Caller, request: dict[str, Any], emit: protocol.Emit) -> None:
        self.op, self.device, self.caller, self.emit = op, device, caller, emit
        self.package, self.seed = request.get("package", ""), request["seed"]
        self.fail_fast = request.get("fail_fast", False)
        self.shrunk: set[str] = set()

    def all(self, cases: Iterator[Case]) -> None:
        passed = False
        for case in cases:
            text = as_text(case)
            if not self.emit.start(self.op.name, text):
                continue
            try:
                examined = self.examine(case)
            except TooLargeError:  # No fault of the op.
                self.emit("too large", op=self.op.name, case=text)
                continue
            except NotWrittenError as error:
                if not passed:
                    raise
                examined = Examination(Fault("op", f"it passed another case, and says of this one: {error}"))
            fault, passed = examined.fault, passed or examined.fault is None
            if fault is None:
                self.emit("passed", op=self.op.name, case=text, errors=examined.errors)
                continue
            self.emit("failure", op=self.op.name, case=text, check=fault.check, text=fault.text)
            if self.fail_fast:
                return
            if fault.check not in self.shrunk and len(self.shrunk) < _MOST_SHRUNK:
                self.shrunk.add(fault.check)
                self.emit("shrinking", op=self.op.name, check=fault.check, seconds=SHRINK_S)
                self.shrink(case)

    def examine(self, case: Case) -> Examination:
        try:
            if self.device == EMULATED:
                self.caller.set_schedules(self.package, emulated.schedule(self.seed, as_text(case)))
            return examine(self.op, case, tensor_device(self.device), self.seed, self.caller)
        except Exception as error:
            if protocol.is_fatal(error):
                protocol.leave(error)
            raise

    def shrink(self, case: Case) -> None:
        faults: dict[str, Fault | None] = {}

        def fails(smaller: Case) -> bool:
            text = as_text(smaller)
            if text not in faults:
                # A crash while shrinking is a failure of its own, with a smaller case.
                self.emit("start", op=self.op.name, case=text, shrinking=True)
                faults[text] = None
                with suppress(TooLargeError, LabError):
                    faults[text] = self.examine(smaller).fault
            return faults[text] is not None

        smallest = shrink(self.op, case, fails)
        fault = faults.get(as_text(smallest))
        if fault is not None:
            facts = {"check": fault.check, "text": fault.text, "shrunk": as_text(smallest)}
            self.emit("shrunk", op=self.op.name, case=as_text(case), **facts)


def _out_of_memory(op: Op, case: Case, device: str, *, is_judge: bool) -> Fault:
    """The fault of an op that ran out of memory, which a small case gives it no reason for.

    Raises:
        TooLargeError: the case is too large for this machine.
        LabError: the memory is taken; by whom, nobody can say.
    """
    elements, _ = work_of(op, sizes_of(op, case))
    inputs = elements * getattr(torch, case["dtype"]).itemsize
    free, total = _memory(device)
    if inputs * _MOST_COPIES > total or (is_judge and inputs * _MOST_COPIES <= free):
        raise TooLargeError
    if inputs * _MOST_COPIES > free:
        gib = f"{(total - free) / 2**30:.1f} of {total / 2**30:.1f} GiB"
        raise LabError(f"{op.name} was not fuzzed on: {gib} of memory are taken. End what holds them, and try again.")
    return Fault("memory", f"it ran out of memory on inputs of {inputs / 2**20:.1f} MiB")


def _memory(device: str) -> tuple[int, int]:
    """Free and all memory, in bytes."""
    if device.startswith("cuda"):
        return torch.cuda.mem_get_info(device)
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return total, total


# ---- One case -------------------------------------------------------------------------------------------------


def examine(op: Op, case: Case, device: str, seed: int, caller: Caller) -> Examination:
    """The verdict on an op in a case.

    Raises:
        LabError: it is no case of this op, nothing is written yet, or somebody has taken the memory.
        TooLargeError: it takes more memory than this machine has.
    """
    sizes, dtype = sizes_of(op, case), getattr(torch, case["dtype"])
    words = {key: case[key] for key in ("layout", "values", "alias")}
    make = Make(device, dtype, seed=seed, requires_grad=op.gradient, **words)
    try:
        with blamed_on("inputs"):
            args = op.inputs(make, **sizes)
        _freeze(args, case["requires_grad"])
        fuzzed = FuzzedCase(op, make, args, caller, op.repeatable_at(sizes), sizes)
        if any(tensor.numel() >= fuzzed_case.HUGE for tensor in tensors(args)):
            fuzzed_case.check_huge(fuzzed)
            return Examination(None)
        errors = fuzzed_case.check(fuzzed)
        calls.check(case["call"], fuzzed)
        return Examination(None, errors)
    except MismatchError as wrong:
        return Examination(wrong.fault)
    except (OpOutOfMemoryError, torch.OutOfMemoryError) as error:
        torch.cuda.empty_cache()
        return Examination(_out_of_memory(op, case, device, is_judge=isinstance(error, torch.OutOfMemoryError)))


def _freeze(args: Any, which: str) -> None:
    """Has only those inputs take a gradient whose numbers are given, such as "0,2"; or all."""
    if which == "all":
        return
    leaves = list({id(tensor): tensor for tensor in tensors(args) if tensor.requires_grad}.values())
    chosen = {int(number) for number in re.findall(r"\d+", which)}
    for i, leaf in enumerate(leaves):
        leaf.requires_grad_(i in chosen)
