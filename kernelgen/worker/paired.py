"""The child's side of `pair.py`: measures one revision of an op a little at a time, whenever it is told to.

It gets a socket by its file descriptor. Each line there is a JSON object that says what to `do`; each is answered by
one line. Two such processes take turns, so that both revisions are measured in one run.
"""

import json
import socket
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from kernelgen.errors import LabError
from kernelgen.lab import results
from kernelgen.lab.results import OP
from kernelgen.worker import integrity, machine_state, protocol
from kernelgen.worker.bench import check_gradient, chosen_cases, chosen_dtypes, set_tf32
from kernelgen.worker.environment import describe
from kernelgen.worker.op import chosen_device, dtype_name, load, require_kernel
from kernelgen.worker.timed_case import Subject


def work(request: dict[str, Any], emit: protocol.Emit, kind: "type[Live] | None" = None) -> None:
    """Answers until the socket is closed, with what a `Live` of some kind can do.

    Args:
        request: `package`, `op`, `fd`, `seed`; and where given `device`, `dtype`, `cases`, `backward`, `tf32`, and
            `interpreted` for an op that has no compiled kernel to require.
    """
    set_tf32(bool(request.get("tf32")))
    live = (kind or Live)(request)
    # Whoever no longer listens has closed the socket: then this is over, however much was still to say.
    with (
        suppress(ConnectionError),
        socket.socket(fileno=request["fd"]) as connection,
        connection.makefile("rw", encoding="utf-8") as lines,
    ):
        for line in lines:
            order = json.loads(line)
            try:
                answer = getattr(live, order.pop("do"))(**order)
            except LabError as error:
                answer = {"error": str(error)}
            except Exception as error:
                if protocol.is_fatal(error):
                    raise
                answer = {"error": protocol.in_a_line(error)}
            lines.write(json.dumps(answer) + "\n")
            lines.flush()


class Live:
    """What can be ordered: each method's arguments and result are JSON objects."""

    def __init__(self, request: dict[str, Any]) -> None:
        self.request = request
        self.subject: Subject | None = None

    def list(self) -> dict[str, Any]:
        """The cases to measure, and where."""
        request = self.request
        device = chosen_device(request)
        self.op = load(request["package"], request["op"])
        if not request.get("interpreted"):
            require_kernel(request["package"], request["op"], device)
        check_gradient(self.op, bool(request.get("backward")))
        self.device, self.sizes = device, chosen_cases(self.op, device, request.get("cases"))
        self.dtypes = {dtype_name(dtype): dtype for dtype in chosen_dtypes(self.op, device, request.get("dtype"))}
        environment = describe(device, Path.cwd(), {})
        cases = [[case, dtype] for case in self.sizes for dtype in self.dtypes]
        where = {"device": device, "machine": results.machine(environment), "environment": environment}
        return {**where, "cases": cases}

    def open(self, case: str, dtype: str) -> dict[str, Any]:
        """Warm a case up; its fastest call, in seconds, and whether it has but one thread."""
        self.subject = None
        self.subject = Subject(
            self.op,
            self.sizes[case],
            self.dtypes[dtype],
            self.device,
            {OP: self.op.function},
            backward=bool(self.request.get("backward")),
            seed=self.request["seed"],
        )
        self.watch = machine_state.GpuWatch() if torch.device(self.device).type == "cuda" else machine_state.CpuWatch()
        one_thread = torch.device(self.device).type == "cpu" and torch.get_num_threads() == 1
        return {"fastest": self.subject.warm_up(OP), "one_thread": one_thread}

    def plan(self, seconds: float) -> dict[str, Any]:
        self.subject.plan(seconds)
        return {"graphs": self.subject.graphs}

    def fresh(self, graphs: bool) -> dict[str, Any]:
        """New inputs at new addresses."""
        self.subject.graphs = graphs
        self.subject.fresh()
        return {}

    def sample(self, count: int) -> dict[str, Any]:
        """So many samples, in seconds a call, and whether the GPU was throttled around them."""
        throttled = self.watch.read()
        seconds = [self.subject.sample(OP) for _ in range(count)]
        return {"seconds": seconds, "throttled": self.watch.read() or throttled}

    def check(self) -> dict[str, Any]:
        found = integrity.watched(self.subject, OP)
        self.subject.clock.forget()  # The reference takes much memory, which the other process may need.
        return asdict(found)

    def finish(self) -> dict[str, Any]:
        """What is left to check, the machine's state meanwhile, and how it was measured."""
        fault, subject = integrity.afterwards(self.subject, OP), self.subject
        facts = {"method": subject.method, "calls_a_sample": subject.calls_a_sample}
        return {"fault": fault, "state": self.watch.summary(), **facts}
