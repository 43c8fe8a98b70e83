"""The child's side of `lane.py`: loads one candidate's library after another, proves it right and times it.

It lives in the project's Python, is told what to do as `paired.py` is, and can do a little more. A library
that is loaded takes the place of the one before: PyTorch calls the kernel that was registered last.
"""

import ctypes
import functools
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
from kernelgen.lab import results
from kernelgen.tune import gates, space
from kernelgen.tune.device_limits import DeviceLimits, device_limits
from kernelgen.worker import fuzz, paired, protocol
from kernelgen.worker.environment import cpu_name
from kernelgen.worker.op import Op, dtype_name, load

# Above so many points, nobody can say what the gates reject: the values should be fewer.
MOST_POINTS = 200_000
# How many of the rejected are told of one by one.
SHOWN = 3
_M_PERTURB, _PR_SET_PDEATHSIG = -6, 1


def work(request: dict[str, Any], emit: protocol.Emit) -> None:
    """As `paired.work`, until the socket is closed; or until the parent dies, wherever this process is then."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    paired.work({"interpreted": True, **request}, emit, Bench)


class Bench(paired.Live):
    """What can be ordered; each method's arguments and result are JSON objects."""

    def __init__(self, request: dict[str, Any]) -> None:
        super().__init__(request)
        self._opened: dict[tuple[str, str], tuple[Any, float]] = {}
        self._libraries: set[str] = set()

    def describe(self, device: str, capability: str | None) -> dict[str, Any]:
        """The space and its gates: what there is to try. Needs no GPU."""
        op = load(self.request["package"], self.request["op"])
        found = space.read(op.name, op.tunables, device, capability, self._backward)
        part = space.part(op.tunables, device, capability, self._backward)
        sizes, dtypes = self._measured(op, device)
        if found.size > MOST_POINTS:
            raise LabError(
                f"{op.name} has {found.size:,} points, more than {MOST_POINTS:,}: list fewer values in its lab.py."
            )
        limits, estimate, shape_class = (
            device_limits(capability or ""),
            op.estimates.get(part),
            op.shape_classes.get(part),
        )
        classes: dict[str | None, list[str]] = {}
        for name, case in sizes.items():
            shapes = shape_class(**case) if shape_class else None
            if shapes is not None or not shape_class:  # Else other kernels serve it than those of this part.
                classes.setdefault(shapes, []).append(name)
        if not classes:
            raise LabError(f"What {op.name} has as tunables for {part} serves none of these cases: {', '.join(sizes)}.")
        parts = []
        for shapes, names in classes.items():
            measured = [(dtype, sizes[name]) for name in names for dtype in dtypes]
            cases = [[name, dtype_name(dtype)] for name in names for dtype in dtypes]
            parts.append({"shapes": shapes, "cases": cases, **_gated(op, found, estimate, measured, limits)})
        facts = {"torch": torch.__version__, "cpu": cpu_name(), "chip_known": limits is not None}
        other = space.part(op.tunables, device, capability, not self._backward)
        apart = [name for name in op.tunables[other] if name not in found.tunables]
        return {"tunables": found.tunables, "classes": parts, "apart": apart, **facts}

    def estimates(self, values: dict[str, Any], cases: list[list[str]]) -> dict[str, Any]:
        """What lab.py says of a configuration for some cases; JSON."""
        kind = torch.device(self.device).type
        capability = self.gpu()["capability"] if kind == "cuda" else None
        estimate = self.op.estimates.get(space.part(self.op.tunables, kind, capability, self._backward))
        found = [estimate(dict(values), self.dtypes[dtype], **self.sizes[case]) for case, dtype in cases if estimate]
        return {"estimates": [one for n, one in enumerate(found) if one not in found[:n]]}

    def gpu(self) -> dict[str, Any]:
        """The compute capability of the first GPU, if there is one to measure on; and which ones are like it."""
        if not torch.cuda.is_available():
            return {"capability": None, "alike": []}
        found = [torch.cuda.get_device_properties(i) for i in range(torch.cuda.device_count())]
        alike = [number for number, gpu in enumerate(found) if gpu.name == found[0].name]
        return {"capability": f"{found[0].major}.{found[0].minor}", "alike": alike}

    def load(self, library: str) -> dict[str, Any]:
        """Put a library in force."""
        if library not in self._libraries:
            torch.ops.load_library(library)
            self._libraries.add(library)
            return {}
        # One that is open already registers nothing: a copy of it does.
        with tempfile.TemporaryDirectory() as scratch:
            torch.ops.load_library(shutil.copy(library, scratch))
        return {}

    def prove(self, count: int, seed: int, first: int | None = None) -> dict[str, Any]:
        """What is wrong with the library in force, if anything is: so many adversarial cases, drawn by chance; or,
        with `first`, as many of those that `kernelgen fuzz` runs, from that one on."""
        names = list(self.op.dtypes_on(self.device))
        if first is None:
            cases = list(fuzz.adversarial(self.op, names))
            cases = Random(seed).sample(cases, min(count, len(cases)))
        else:
            cases = list(itertools.islice(fuzz.all_cases(self.op, names, seed, first + count), first, None))
        with _perturbed_memory():
            for case in cases:
                try:
                    fault = fuzz.run_case(self.op, case, self.device, seed)
                except torch.OutOfMemoryError:
                    torch.cuda.empty_cache()
                    continue  # The case is too large for this GPU, which is no fault of the candidate.
                if fault is not None:
                    return {"fault": f"{fault.text} (in {fuzz.as_text(case)})"}
        return {"fault": None}

    def open(self, case: str, dtype: str) -> dict[str, Any]:
        """As `Live.open`. The subject of a case is kept for the next candidate, without its inputs."""
        if self.subject is not None:
            self.subject.sets, self.subject._replays = [], {}
        if (case, dtype) not in self._opened:
            answer = super().open(case, dtype)
            self._opened[case, dtype] = self.subject, answer["fastest"]
            return answer
        self.subject, fastest = self._opened[case, dtype]
        self.subject.sets = [self.subject.draw()]
        return {"fastest": fastest, "one_thread": False}

    def time(self, count: int) -> dict[str, Any]:
        """As `sample`, without a look at the GPU's state, which takes longer than a short call."""
        return {"seconds": [self.subject.sample(results.OP) for _ in range(count)]}

    @property
    def _backward(self) -> bool:
        return bool(self.request.get("backward"))

    def _measured(self, op: Any, device: str) -> tuple[dict[str, Any], list[torch.dtype]]:
        dtypes = list(paired.chosen_dtypes(op, device, self.request.get("dtype")))
        return paired.chosen_cases(op, device, self.request.get("cases")), dtypes


def _gated(
    op: Op,
    found: space.Space,
    estimate: Any,
    cases: list[tuple[torch.dtype, dict[str, int]]],
    limits: DeviceLimits | None,
) -> dict[str, Any]:
    """The numbers of the points that the gates let pass in all of these cases; and by gate how many they do not, with
    some of them."""
    rejected: dict[str, dict[str, Any]] = {}
    kept = []
    # Most cases take the same of a GPU.
    judge = functools.cache(lambda estimates: gates.judge(json.loads(estimates), limits))
    for number, values in enumerate(found.points()):
        estimates = (_estimate(op, estimate, values, dtype, case) for dtype, case in cases) if estimate else ()
        why = next(filter(None, (judge(json.dumps(one)) for one in estimates)), None)
        if why is None:
            kept.append(number)
            continue
        gate = rejected.setdefault(why.gate, {"count": 0, "examples": []})
        gate["count"] += 1
        if len(gate["examples"]) < SHOWN:
            gate["examples"].append({"values": values, "text": why.text})
    return {"kept": kept, "rejected": rejected}


def _estimate(op: Op, estimate: Any, values: space.Values, dtype: torch.dtype, sizes: dict[str, int]) -> Any:
    try:
        return estimate(dict(values), dtype, **sizes)
    except Exception as error:
        what = f"{type(error).__name__}: {error}"
        raise LabError(f"{op.name}/lab.py: the estimate of {space.key(values)} raises {what}") from error


@contextmanager
def _perturbed_memory() -> Iterator[None]:
    """What glibc allocates holds bytes that make huge numbers or NaN, so that an element nobody writes is seen."""
    with suppress(AttributeError, OSError):
        ctypes.CDLL(None).mallopt(_M_PERTURB, 1)
    try:
        yield
    finally:
        with suppress(AttributeError, OSError):
            ctypes.CDLL(None).mallopt(_M_PERTURB, 0)
