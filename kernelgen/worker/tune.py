"""Judges one candidate's library after another, as it is ordered to: proves it right and times it.

The op's process loads the libraries. This one imports nothing of the project, as those of `fuzz` and `compare`.
"""

import ctypes
import itertools
import json
import signal
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from random import Random
from typing import Any

import torch

from kernelgen.protocol import OP, part
from kernelgen.worker import fuzz, protocol
from kernelgen.worker.bench import chosen_cases, chosen_dtypes
from kernelgen.worker.cases import Case, adversarial, all_cases, as_text
from kernelgen.worker.compare import ComparedVersion
from kernelgen.worker.environment import cpu_name
from kernelgen.worker.estimates import Estimates, Row
from kernelgen.worker.judge import trusted
from kernelgen.worker.judge.caller import Caller
from kernelgen.worker.judge.case import JudgedCase
from kernelgen.worker.judge.comparison import Findings
from kernelgen.worker.judge.judge import trusted_root
from kernelgen.worker.mismatch import TooLargeError
from kernelgen.worker.op import Op, dtype_name

_PR_SET_PDEATHSIG = 1


def work(request: dict[str, Any], emit: protocol.Emit) -> "TuningWorker":
    """Takes orders, as `compare.work` does, until the host dies, wherever this process is then."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    return TuningWorker({"interpreted": True, **request})


class TuningWorker(ComparedVersion):
    """Each method is an order; its arguments and its result are JSON objects."""

    def __init__(self, request: dict[str, Any]) -> None:
        super().__init__(request)
        self._opened: dict[tuple[str, str], tuple[JudgedCase, float]] = {}
        self._listed: dict[str, Any] = {}
        self._known: tuple[Any, Estimates] | None = None
        # A seed, the first cases that fuzz runs with it, and those that follow.
        self._fuzzed: tuple[int, list[Case], Iterator[Case]] | None = None

    # ---- What lab.py says -------------------------------------------------------------------------------------

    def describe(self, device: str, capability: str | None) -> dict[str, Any]:
        """The TUNABLES of lab.py, and the cases and dtypes to measure by class of shapes; needs no GPU.

        `left_out` has the cases that kernels without these tunables serve, each with its dtype and the reason.
        """
        op = self._op()
        key = part(op.tunables, device, capability, self.backward)
        sizes = chosen_cases(op, device, self.request.get("cases"))
        dtypes = chosen_dtypes(op, device, self.request.get("dtype"))
        classes: dict[str | None, list[list[str]]] = {}
        left_out = []
        for case, dtype in itertools.product(sizes, dtypes):
            shapes, reason = _shape_class(op, key, dtype, sizes[case])
            if reason:
                left_out.append([case, dtype_name(dtype), reason])
            else:
                classes.setdefault(shapes, []).append([case, dtype_name(dtype)])
        facts = {"tunables": op.tunables, "left_out": left_out, "torch": torch.__version__, "cpu": cpu_name()}
        return {**facts, "classes": [{"shapes": shapes, "cases": cases} for shapes, cases in classes.items()]}

    def estimates(
        self,
        points: list[dict[str, Any]],
        cases: list[list[str]],
        device: str | None = None,
        capability: str | None = None,
    ) -> dict[str, Any]:
        """What lab.py says that configurations take of a GPU.

        `device` and `capability` are those of the GPU they would run on; by default, of the one that this worker uses.

        Returns:
            `estimates`, in which equal ones stand once, since most configurations and cases take the same; `rows`,
            lists of numbers in that list, one for each case, of which equal ones stand once, too; and `taken`, for each
            configuration the number of its row.
        """
        op = self._op()
        if device is None:
            device = torch.device(self.judge.device).type
            capability = self.gpu()["capability"] if device == "cuda" else None
        estimate = op.estimates.get(part(op.tunables, device, capability, self.backward))
        if estimate is None:
            return {"estimates": [], "rows": [[]], "taken": [0 for _ in points]}
        known = self._estimates_of(op, device, estimate, cases)
        rows: dict[Row, int] = {}
        taken = [rows.setdefault(known.row(values), len(rows)) for values in points]
        numbers = {number: index for index, number in enumerate(dict.fromkeys(itertools.chain(*rows)))}
        return {
            "estimates": [known.distinct[number] for number in numbers],
            "rows": [[numbers[number] for number in row] for row in rows],
            "taken": taken,
        }

    def _estimates_of(self, op: Op, device: str, estimate: Callable[..., Any], cases: list[list[str]]) -> Estimates:
        """What is known of the latest cases that were asked for."""
        key = device, estimate, json.dumps(cases)
        if not self._known or self._known[0] != key:
            table = chosen_cases(op, device, None)
            measured = [(getattr(torch, dtype), table[case]) for case, dtype in cases]
            self._known = key, Estimates(op.name, estimate, measured)
        return self._known[1]

    def gpu(self) -> dict[str, Any]:
        """The compute capability of the first GPU, if there is one; and the numbers of all GPUs of its model."""
        if not torch.cuda.is_available():
            return {"capability": None, "alike": []}
        gpus = [torch.cuda.get_device_properties(i) for i in range(torch.cuda.device_count())]
        alike = [number for number, gpu in enumerate(gpus) if gpu.name == gpus[0].name]
        return {"capability": f"{gpus[0].major}.{gpus[0].minor}", "alike": alike}

    def _op(self) -> Op:
        return trusted.load(trusted_root(self.request), self.request["package"], self.request["op"])

    # ---- Candidates -------------------------------------------------------------------------------------------

    def list(self) -> dict[str, Any]:
        """As `ComparedVersion.list`; asked again, the process that was started goes on."""
        self._listed = self._listed or super().list()
        return self._listed

    def load(self, library: str) -> dict[str, Any]:
        """Put a library in force."""
        return self.judge.process.ask("load_library", path=library)

    def prove(self, count: int, seed: int, first: int | None = None) -> dict[str, Any]:
        """What is wrong with the library in force, by so many adversarial cases, drawn by chance; or, with `first`, by
        as many of the cases that `kernelgen fuzz` runs, from that one on."""
        names = list(self.judge.op.dtypes_on(self.judge.device))
        if first is None:
            cases = list(adversarial(self.judge.op, names))
            cases = Random(seed).sample(cases, min(count, len(cases)))
        else:
            cases = self._cases_of_fuzz(names, seed, first, count)
        process, caller = self.judge.process, self.judge.caller()
        process.ask("perturb_memory", byte=1)
        try:
            return {"fault": self._first_fault(cases, seed, caller)}
        finally:
            caller.drain()  # A fault may be clear before the last order is answered.
            process.ask("perturb_memory", byte=0)

    def _cases_of_fuzz(self, dtypes: Sequence[str], seed: int, first: int, count: int) -> Sequence[Case]:
        """So many from that one on; those before are kept, since finding them again takes as long as examining them."""
        if self._fuzzed is None or self._fuzzed[0] != seed:
            self._fuzzed = seed, [], all_cases(self.judge.op, [*dtypes], seed, sys.maxsize)
        _, known, others = self._fuzzed
        known += itertools.islice(others, max(0, first + count - len(known)))
        return known[first : first + count]

    def _first_fault(self, cases: Iterable[Case], seed: int, caller: Caller) -> str | None:
        for case in cases:
            try:
                fault = fuzz.examine(self.judge.op, case, self.judge.device, seed, caller).fault
            except TooLargeError:  # Which is no fault of the candidate.
                continue
            if fault is not None:
                return f"{fault.text} (in {as_text(case)})"
        return None

    def open(self, case: str, dtype: str) -> dict[str, Any]:
        """As `ComparedVersion.open`; a case is kept for the next candidate, without its inputs."""
        if self.timed:
            self.timed.forget()
        if (case, dtype) not in self._opened:
            answer = super().open(case, dtype)
            self._opened[case, dtype] = self.timed, answer["fastest"]
            return answer
        self._findings = Findings()
        self.timed, fastest = self._opened[case, dtype]
        return {"fastest": fastest, "one_thread": False}

    def plan(self, seconds: float) -> dict[str, Any]:
        """As `ComparedVersion.plan`, once for each case: it calls the op on a GPU."""
        return super().plan(seconds) if self.timed.sets else {"graphs": self.timed.graphs}

    def time(self, count: int, is_checked: bool = False) -> dict[str, Any]:
        """As `sample`, without a look at the GPU's state, which takes longer than a short call; and what is wrong, if
        the samples are checked: one of them, picked by chance, since were it always the last, an op could compute that
        one alone; on a CPU a sample of special values follows."""
        checked = self._chance.randrange(count) if is_checked else -1
        seconds = []
        for number in range(count):
            seconds.append(self.timed.sample(OP))
            if number == checked and not self._findings.faults:
                self._findings.add(self.timed.check())
        if is_checked and not self._findings.faults:
            self._findings.add(self.timed.check_special_values(OP))
        return {"seconds": seconds, "fault": next(iter(self._findings.faults), None)}


def _shape_class(op: Op, key: str, dtype: torch.dtype, sizes: dict[str, int]) -> tuple[str | None, str | None]:
    """The class of a case, or why the tunables of this key do not serve it."""
    untuned, classify = op.untuned.get(key), op.shape_classes.get(key)
    if untuned and (reason := untuned(dtype, **sizes)):
        return None, reason
    if classify is None:
        return None, None
    shapes = classify(**sizes)
    return shapes, None if shapes is not None else "other kernels serve it"
