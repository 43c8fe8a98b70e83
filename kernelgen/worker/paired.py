"""Measures one version of an op a little at a time, as it is ordered to; two such workers take turns (lab/pair.py)."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from kernelgen.protocol import OP
from kernelgen.worker import integrity, machine_state, protocol
from kernelgen.worker.bench import check_gradient, chosen_cases, chosen_dtypes, set_tf32
from kernelgen.worker.environment import describe
from kernelgen.worker.op import chosen_device, dtype_name, load, require_kernel
from kernelgen.worker.timed_case import TimedCase


def work(request: dict[str, Any], emit: protocol.Emit) -> "PairedWorker":
    """Takes orders.

    Args:
        request: `package`, `op`, `seed`; and optionally `device`, `dtype`, `cases`, `backward`, `tf32`, and
            `interpreted` for an op that has no compiled kernel to require.
    """
    return PairedWorker(request)


class PairedWorker:
    """Each method is an order; its arguments and its result are JSON objects."""

    def __init__(self, request: dict[str, Any]) -> None:
        set_tf32(bool(request.get("tf32")))
        self.request = request
        self.backward = bool(request.get("backward"))
        self.timed: TimedCase | None = None

    def list(self) -> dict[str, Any]:
        """The cases and dtypes to measure, and the machine."""
        request = self.request
        device = chosen_device(request)
        self.op = load(request["package"], request["op"])
        if not request.get("interpreted"):
            require_kernel(request["package"], request["op"], device)
        check_gradient(self.op, self.backward)
        self.device, self.sizes = device, chosen_cases(self.op, device, request.get("cases"))
        self.dtypes = {dtype_name(dtype): dtype for dtype in chosen_dtypes(self.op, device, request.get("dtype"))}
        cases = [[case, dtype] for case in self.sizes for dtype in self.dtypes]
        return {"environment": describe(device, Path.cwd(), {}), "cases": cases}

    def open(self, case: str, dtype: str) -> dict[str, Any]:
        """Warm a case up; the seconds of its fastest call, and whether torch runs one thread."""
        self.timed = None
        self.timed = TimedCase(
            self.op,
            self.sizes[case],
            self.dtypes[dtype],
            self.device,
            {OP: self.op.function},
            backward=self.backward,
            seed=self.request["seed"],
        )
        self.watch = machine_state.watch(self.device)
        one_thread = torch.device(self.device).type == "cpu" and torch.get_num_threads() == 1
        return {"fastest": self.timed.warm_up(OP), "one_thread": one_thread}

    def plan(self, seconds: float) -> dict[str, Any]:
        self.timed.plan(seconds)
        return {"graphs": self.timed.graphs}

    def fresh(self, graphs: bool) -> dict[str, Any]:
        """New inputs at new addresses."""
        self.timed.graphs = graphs
        self.timed.fresh()
        return {}

    def sample(self, count: int) -> dict[str, Any]:
        """So many samples, in seconds a call, and whether the GPU was throttled around them."""
        throttled = self.watch.read()
        seconds = [self.timed.sample(OP) for _ in range(count)]
        return {"seconds": seconds, "throttled": self.watch.read() or throttled}

    def check(self) -> dict[str, Any]:
        """What is wrong with the results of a sample; see integrity.py."""
        result = integrity.check_sample(self.timed, OP)
        self.timed.clock.forget()  # The reference takes much memory, which the other worker may need.
        return asdict(result)

    def finish(self) -> dict[str, Any]:
        """The last checks, the machine's state meanwhile, and how the case was timed."""
        fault, timed = integrity.check_afterwards(self.timed, OP), self.timed
        facts = {"method": timed.method, "calls_a_sample": timed.calls_a_sample}
        return {"fault": fault, "state": self.watch.summary(), **facts}
