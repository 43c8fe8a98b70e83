"""Loads one candidate's library after another, proves it right and times it, as it is ordered to."""

import ctypes
import itertools
import json
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from random import Random
from typing import Any

import torch

from kernelgen.errors import LabError
from kernelgen.protocol import OP, part
from kernelgen.worker import fuzz, protocol
from kernelgen.worker.bench import chosen_cases, chosen_dtypes
from kernelgen.worker.cases import adversarial, all_cases, as_text
from kernelgen.worker.environment import cpu_name
from kernelgen.worker.op import dtype_name, load
from kernelgen.worker.paired import PairedWorker

_M_PERTURB, _PR_SET_PDEATHSIG = -6, 1


def work(request: dict[str, Any], emit: protocol.Emit) -> "TuningWorker":
    """Takes orders, as `paired.work` does, until the host dies, wherever this process is then."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    return TuningWorker({"interpreted": True, **request})


class TuningWorker(PairedWorker):
    """Each method is an order; its arguments and its result are JSON objects."""

    def __init__(self, request: dict[str, Any]) -> None:
        super().__init__(request)
        self._opened: dict[tuple[str, str], tuple[Any, float]] = {}
        self._libraries: set[str] = set()

    # ---- What lab.py says -------------------------------------------------------------------------------------

    def describe(self, device: str, capability: str | None) -> dict[str, Any]:
        """The TUNABLES of lab.py, and the cases and dtypes to measure by class of shapes; needs no GPU.

        A case of no class is left out: kernels without these tunables serve it.
        """
        op = load(self.request["package"], self.request["op"])
        classify = op.shape_classes.get(part(op.tunables, device, capability, self.backward))
        sizes = chosen_cases(op, device, self.request.get("cases"))
        dtypes = [dtype_name(dtype) for dtype in chosen_dtypes(op, device, self.request.get("dtype"))]
        classes: dict[str | None, list[list[str]]] = {}
        for case in sizes:
            shapes = classify(**sizes[case]) if classify else None
            if shapes is not None or not classify:
                classes.setdefault(shapes, []).extend([case, dtype] for dtype in dtypes)
        facts = {"tunables": op.tunables, "all_cases": list(sizes), "torch": torch.__version__, "cpu": cpu_name()}
        return {**facts, "classes": [{"shapes": shapes, "cases": cases} for shapes, cases in classes.items()]}

    def estimates(
        self,
        points: list[dict[str, Any]],
        cases: list[list[str]],
        device: str | None = None,
        capability: str | None = None,
    ) -> dict[str, Any]:
        """For each configuration what lab.py says that it takes of a GPU, over some cases, without repetitions.

        `device` and `capability` are those of the GPU it would run on; by default, of the one that this worker uses.
        """
        op = load(self.request["package"], self.request["op"])
        if device is None:
            device = torch.device(self.device).type
            capability = self.gpu()["capability"] if device == "cuda" else None
        estimate = op.estimates.get(part(op.tunables, device, capability, self.backward))
        if estimate is None:
            return {"estimates": [[] for _ in points]}
        table = chosen_cases(op, device, None)
        measured = [(getattr(torch, dtype), table[case]) for case, dtype in cases]
        return {
            "estimates": [
                _distinct(_estimate(op.name, estimate, values, *case) for case in measured) for values in points
            ]
        }

    def gpu(self) -> dict[str, Any]:
        """The compute capability of the first GPU, if there is one; and the numbers of all GPUs of its model."""
        if not torch.cuda.is_available():
            return {"capability": None, "alike": []}
        gpus = [torch.cuda.get_device_properties(i) for i in range(torch.cuda.device_count())]
        alike = [number for number, gpu in enumerate(gpus) if gpu.name == gpus[0].name]
        return {"capability": f"{gpus[0].major}.{gpus[0].minor}", "alike": alike}

    # ---- Candidates -------------------------------------------------------------------------------------------

    def load(self, library: str) -> dict[str, Any]:
        """Put a library in force: PyTorch calls the kernel that was registered last."""
        if library not in self._libraries:
            torch.ops.load_library(library)
            self._libraries.add(library)
            return {}
        # A library that is open already registers nothing; a copy of it does.
        with tempfile.TemporaryDirectory() as scratch:
            torch.ops.load_library(shutil.copy(library, scratch))
        return {}

    def prove(self, count: int, seed: int, first: int | None = None) -> dict[str, Any]:
        """What is wrong with the library in force, by so many adversarial cases, drawn by chance; or, with `first`, by
        as many of the cases that `kernelgen fuzz` runs, from that one on."""
        names = list(self.op.dtypes_on(self.device))
        if first is None:
            cases = list(adversarial(self.op, names))
            cases = Random(seed).sample(cases, min(count, len(cases)))
        else:
            cases = list(itertools.islice(all_cases(self.op, names, seed, first + count), first, None))
        with _perturbed_memory():
            for case in cases:
                try:
                    fault = fuzz.run_case(self.op, case, self.device, seed)
                except torch.OutOfMemoryError:
                    torch.cuda.empty_cache()
                    continue  # Too large for this GPU, which is no fault of the candidate.
                if fault is not None:
                    return {"fault": f"{fault.text} (in {as_text(case)})"}
        return {"fault": None}

    def open(self, case: str, dtype: str) -> dict[str, Any]:
        """As `PairedWorker.open`. A case is kept for the next candidate, without its inputs."""
        if self.timed is not None:
            self.timed.forget_inputs()
        if (case, dtype) not in self._opened:
            answer = super().open(case, dtype)
            self._opened[case, dtype] = self.timed, answer["fastest"]
            return answer
        self.timed, fastest = self._opened[case, dtype]
        self.timed.sets = [self.timed.draw()]
        return {"fastest": fastest, "one_thread": False}

    def time(self, count: int) -> dict[str, Any]:
        """As `sample`, without a look at the GPU's state, which takes longer than a short call."""
        return {"seconds": [self.timed.sample(OP) for _ in range(count)]}


def _distinct(estimates: Iterator[Any]) -> list[Any]:
    """Most cases take the same of a GPU."""
    distinct: list[Any] = []
    for estimate in estimates:
        if estimate not in distinct:
            distinct.append(estimate)
    return distinct


def _estimate(op: str, estimate: Any, values: dict[str, Any], dtype: torch.dtype, sizes: dict[str, int]) -> Any:
    try:
        return estimate(dict(values), dtype, **sizes)
    except Exception as error:
        problem = f"{type(error).__name__}: {error}"
        raise LabError(f"{op}/lab.py: the estimate of {json.dumps(values, sort_keys=True)} raises {problem}") from error


@contextmanager
def _perturbed_memory() -> Iterator[None]:
    """glibc fills what it allocates with bytes that make huge numbers or NaN: an element nobody writes shows."""
    with suppress(AttributeError, OSError):
        ctypes.CDLL(None).mallopt(_M_PERTURB, 1)
    try:
        yield
    finally:
        with suppress(AttributeError, OSError):
            ctypes.CDLL(None).mallopt(_M_PERTURB, 0)
