"""The processes of one op: its own, its peers', and one without an op, which times requests and replies."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from kernelgen.errors import LabError
from kernelgen.process_tree import end_orphans
from kernelgen.worker.judge.arena import CpuArena, CudaArena
from kernelgen.worker.judge.bystanders import Bystanders
from kernelgen.worker.judge.caller import Caller
from kernelgen.worker.judge.case import JudgedCase
from kernelgen.worker.judge.comparison import CheckResult, Findings
from kernelgen.worker.judge.drawing import Drawing
from kernelgen.worker.judge.errors import CallError
from kernelgen.worker.judge.noise import NoiseTape
from kernelgen.worker.judge.op_process import OpProcess
from kernelgen.worker.op import Op, known_device, tensor_device


class LoadedOp:
    """Has the project of an op imported by another process; `wait` says when.

    Args:
        op: as its trusted lab.py describes it. It was loaded before any process of an op was started, which could have
            edited it.
        request: `package` and `project`; and optionally `trusted`, the checkout that lab.py, the reference and the
            peers are taken from (default: the project), `device`, `tf32`, and `interpreted` for an op that has no
            compiled kernel to require.
        variables: what the environment of the op's process has beside this process' own.
    """

    def __init__(self, request: Mapping[str, Any], op: Op, variables: Mapping[str, str] | None = None) -> None:
        self._request, self._root = request, Path(request["project"])
        self._trusted, self._package = trusted_root(request), request["package"]
        self.op, name = op, op.name
        self.shared = CpuArena()
        self._started: list[OpProcess] = []
        self.process = self._start(self._root, confined=True, variables=variables)
        lab = self._trusted / "src" / self._package / "ops" / name / "lab.py"
        self.process.order("load_op", package=self._package, name=name, lab=str(lab))

    def wait(self) -> None:
        """Until the op can be called; `device` is known then.

        Raises:
            LabError: it cannot be loaded or run here; the message says why.
        """
        name = self.op.name
        try:
            missing = self.process.answer()["missing"]
            self.device = known_device(self._request) or ("cuda" if not missing.get("CUDA", "missing") else "cpu")
            if not self._request.get("interpreted"):
                facts = {"package": self._package, "name": name, "device": self.device}
                if problem := self.process.ask("require_kernel", **facts)["problem"]:
                    raise LabError(str(problem))
        except CallError as error:
            self.close()
            raise LabError(f"{name} does not load: {error}.") from error
        except LabError:
            self.close()
            raise
        self.arena = CudaArena() if self._is_cuda else self.shared

    def caller(self) -> Caller:
        """What has the op called for fuzz. Inputs that lie in the arena for anything else are gone then."""
        return Caller(self.process, self.arena, tensor_device(self.device))

    @property
    def _is_cuda(self) -> bool:
        return torch.device(tensor_device(self.device)).type == "cuda"

    @property
    def processes(self) -> list[OpProcess]:
        return self._started

    def close(self) -> None:
        for process in self._started:
            process.close()
        end_orphans([])

    def _start(self, root: Path, **options: Any) -> OpProcess:
        apart = [str(self._root), str(self._trusted), *self._request.get("apart", ())]
        process = OpProcess(root, self.shared, apart=apart, **options)
        self._started.append(process)
        return process


class Judge(LoadedOp):
    """As `LoadedOp`, with what it takes to time the op.

    Raises:
        LabError: the op cannot be loaded or run here; the message says why.
    """

    def __init__(self, request: Mapping[str, Any], op: Op) -> None:
        may_be_cuda = known_device(request) != "cpu" and torch.cuda.is_available()
        self._bystanders = Bystanders(lambda: 1 + len(self.processes)) if may_be_cuda else None
        super().__init__(request, op)
        self.wait()
        try:
            self.process.ask("start_clock", tf32=bool(request.get("tf32")))
            self._state = self.process.ask("state")
        except CallError as error:
            self.close()
            raise LabError(f"{op.name} does not load: {error}.") from error
        self._idle = None if self._is_cuda else self._start(self._trusted)
        self._peers: OpProcess | None = None
        self._case: JudgedCase | None = None
        self._noise = NoiseTape(self.device)

    def case(self, sizes: Mapping[str, int], dtype: torch.dtype, *, backward: bool) -> JudgedCase:
        """A case of the op alone. The case before is forgotten, and what both sides keep of the GPU's memory freed."""
        if self._case:
            self._case.forget()
            for process in self.processes if self._is_cuda else ():
                process.ask("free_memory")
        drawing = Drawing(self.op, sizes, dtype, self.device, self._noise, backward=backward)
        self._case = JudgedCase(drawing, {"op": self.process}, self.arena, self._idle, self._bystanders)
        return self._case

    def peers(self) -> OpProcess:
        """The process that runs the peers, which is started when it is first asked for."""
        if self._peers is None:
            self._peers = self._start(self._trusted)
            facts = {"package": self._package, "name": self.op.name, "trusted": str(self._trusted)}
            self._peers.ask("load_peers", **facts)
            self._peers.ask("start_clock", tf32=bool(self._request.get("tf32")))
        return self._peers

    def check_afterwards(self, timed: JudgedCase, findings: Findings) -> None:
        """The checks of a case for when all samples are taken, if nothing was wrong before."""
        for check in (timed.check_afterwards, self._check_what_is_left):
            if not findings.faults:
                findings.add(check())

    def _check_what_is_left(self) -> CheckResult:
        """A fault if the op left a process without a parent behind, or another state of its own."""
        if end_orphans([process.pid for process in self.processes]):
            return CheckResult("it left a process behind that is no child of its own")
        return CheckResult(difference_of_states(self._state, self.process.ask("state")))


def trusted_root(request: Mapping[str, Any]) -> Path:
    """The checkout that lab.py, the reference and the peers are taken from."""
    return Path(request.get("trusted") or request["project"])


def difference_of_states(before: Mapping[str, Any], after: Mapping[str, Any]) -> str | None:
    """A sentence if two answers to `state` differ."""
    changes = [f"{name} from {before[name]} to {after.get(name)}" for name in before if after.get(name) != before[name]]
    return f"it changed the process that it ran in: {', '.join(changes)}" if changes else None
