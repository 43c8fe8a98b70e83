"""Judges one version of an op a little at a time, as it is ordered to; two such workers take turns (lab/pair.py)."""

import random
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from kernelgen.cores import CORES
from kernelgen.protocol import OP
from kernelgen.worker import ceilings, machine_state, protocol
from kernelgen.worker.bench import check_gradient, chosen_cases, chosen_dtypes, cost, set_tf32
from kernelgen.worker.environment import describe
from kernelgen.worker.judge import trusted
from kernelgen.worker.judge.case import JudgedCase
from kernelgen.worker.judge.comparison import Findings
from kernelgen.worker.judge.judge import Judge, trusted_root
from kernelgen.worker.judge.op_process import become_judge
from kernelgen.worker.op import dtype_name

# The share of the orders for samples of which a sample is checked, beside those that have to be.
CHECKED = 1 / 15
# The share of these orders after which a sample of special values follows, which is compared and not timed.
SPECIAL = 1 / 20


def work(request: dict[str, Any], emit: protocol.Emit) -> "ComparedVersion":
    """Takes orders.

    Args:
        request: `package`, `project`, `op`; and optionally `trusted`, `device`, `dtype`, `cases`, `backward`, `tf32`,
            and `interpreted` for an op that has no compiled kernel to require.
    """
    return ComparedVersion(request)


class ComparedVersion:
    """Each method is an order; its arguments and its result are JSON objects."""

    def __init__(self, request: dict[str, Any]) -> None:
        set_tf32(bool(request.get("tf32")))
        self.request = request
        self.backward = bool(request.get("backward"))
        self.timed: JudgedCase | None = None
        self.judge: Judge | None = None
        self._chance = random.SystemRandom()
        self._findings = Findings()
        # Samples until the one that is checked in any case; below 0 there is none.
        self._until_check = -1

    def list(self) -> dict[str, Any]:
        """The cases and dtypes to measure, and the machine. The op's process starts."""
        request = self.request
        become_judge()
        self.close()
        op = trusted.load(trusted_root(request), request["package"], request["op"])
        self.judge = Judge(request, op)
        device = self.judge.device
        check_gradient(op, self.backward)
        self.sizes = chosen_cases(op, device, request.get("cases"))
        self.dtypes = {dtype_name(dtype): dtype for dtype in chosen_dtypes(op, device, request.get("dtype"))}
        cases = [[case, dtype] for case in self.sizes for dtype in self.dtypes]
        return {"environment": describe(device, Path(request["project"]), {}), "cases": cases}

    def open(self, case: str, dtype: str) -> dict[str, Any]:
        """Warm a case up; the seconds of its fastest call, and whether torch runs one thread."""
        self._findings = Findings()
        self.timed = self.judge.case(self.sizes[case], self.dtypes[dtype], backward=self.backward)
        pids = [process.pid for process in self.judge.processes]
        self.watch = machine_state.watch(self.judge.device, pids)
        one_thread = torch.device(self.judge.device).type == "cpu" and torch.get_num_threads() == 1
        return {"fastest": self.timed.warm_up(OP), "one_thread": one_thread}

    def plan(self, seconds: float) -> dict[str, Any]:
        self.timed.plan(seconds)
        return {"graphs": self.timed.graphs}

    def fresh(self, graphs: bool, among: int = 0, core: int | None = None) -> dict[str, Any]:
        """New inputs at new addresses. Of the next `among` samples one is checked in any case, picked by chance; all
        are taken on this core alone, if there is one."""
        self._until_check = self._chance.randrange(among) if among else -1
        self.timed.graphs = graphs
        self.timed.cores = CORES if core is None else {core}
        self.timed.fresh()
        return {}

    def sample(self, count: int) -> dict[str, Any]:
        """So many samples, in seconds a call, and whether the GPU was throttled around them.

        Each may be checked: were it always the last, an op could compute that one alone.
        """
        throttled, seconds = self.watch.read(), []
        for _ in range(count):
            seconds.append(self.timed.sample(OP))
            is_due = self._until_check == 0 or self._chance.random() < CHECKED / count
            self._until_check -= 1
            if is_due and not self._findings.faults:
                self._findings.add(self.timed.check())
        if self._chance.random() < SPECIAL and not self._findings.faults:
            self._findings.add(self.timed.check_special_values(OP))
        return {"seconds": seconds, "throttled": self.watch.read() or throttled}

    def check(self) -> dict[str, Any]:
        """What is wrong with the results of the last sample, or of an earlier one that was checked."""
        if not self._findings.faults:
            self._findings.add(self.timed.check())
        return {"fault": next(iter(self._findings.faults), None)}

    def finish(self) -> dict[str, Any]:
        """The last checks, the machine's state meanwhile, and how the case was timed."""
        self.judge.check_afterwards(self.timed, self._findings)
        facts = asdict(self._findings) | {"state": self.watch.summary()}
        facts |= {"method": self.timed.method, "calls_a_sample": self.timed.calls_a_sample}
        facts["bytes"], facts["flops"] = cost(self.timed.op, self.timed.sizes, self.timed.dtype, self.backward)
        return facts

    def ceilings(self) -> dict[str, Any]:
        """How fast this machine copies, and multiplies matrices of the dtypes to measure."""
        return ceilings.measure(self.judge.device, tuple(self.dtypes.values()))

    def close(self) -> None:
        """Ends the op's processes."""
        if self.judge:
            self.judge.close()
