"""Fuzzes ops: adversarial cases first, then cases that hypothesis draws from the op's domain.

A case is a flat JSON object: the op's sizes by name, and `dtype`, `layout`, `values` and `alias` (see `inputs.py`).
A case and a seed are all that it takes to repeat a failure.
"""

import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from itertools import chain, cycle
from itertools import count as counter
from pathlib import Path
from random import Random
from typing import Any

import torch

from kernelgen.errors import LabError
from kernelgen.worker import emulated, protocol, reference_check
from kernelgen.worker.inputs import ALIASES, LAYOUTS, VALUES, Make
from kernelgen.worker.op import (
    EMULATED,
    RESERVED,
    Op,
    chosen_device,
    dtype_name,
    load,
    require_kernel,
    tensor_device,
)

Case = dict[str, Any]
Fails = Callable[[Case], bool]

# Where hypothesis keeps its files; by default it would make a folder in the project.
os.environ.setdefault(
    "HYPOTHESIS_STORAGE_DIRECTORY",
    str(Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "kernelgen" / "hypothesis"),
)

DEFAULT_COUNT = 60
# Cases that are drawn at a time.
_BATCH = 50
# Failures of one check mostly have one cause, so the first is shrunk: for so many checks of an op, each for so long.
_MOST_SHRUNK = 3
_SHRINK_S = 20.0

_PLAIN = {"layout": LAYOUTS[0], "values": VALUES[0], "alias": ALIASES[0]}


# ---- In the worker --------------------------------------------------------------------------------------------


def work(request: dict[str, Any], emit: protocol.Emit) -> None:
    """Fuzzes request["ops"].

    Args:
        request: `package`, `ops`, `seed`; and optionally `device`, `gpu` (which one is emulated), `dtype`, `count`,
            `deadline` (by time.time()), `case` and `fail_fast` (leave an op at its first failure; shrink nothing).
        emit: gets "device" first; "start" before each case, then "passed", "too large" (for this GPU's memory) or
            "failure" (op, case, check, text), and perhaps "shrunk" (the same, with the smaller case under `shrunk`);
            for each op "skipped" (op, message) if it cannot be run, and "close" (op).
    """
    device = chosen_device(request)
    emit("device", **_describe(request, device))
    todo = [name for name in request["ops"] if not emit.is_closed(name)]
    for i, name in enumerate(todo):
        try:
            op = load(request["package"], name)
            require_kernel(request["package"], name, device)
            cases = _cases(op, request, device, len(todo) - i)
            _Run(op, device, request, emit).all(cases)
        except LabError as error:
            emit("skipped", op=name, message=str(error))
        emit("close", op=name)


def _describe(request: dict[str, Any], device: str) -> dict[str, Any]:
    """The device in words, the name of the machine part that it is, and the sizes that it is good for."""
    if device == EMULATED:
        words = f"{device} {request['gpu']}"
        return {"device": words, "name": words, "sizes": emulated.SIZES}
    name = torch.cuda.get_device_name(device) if device.startswith("cuda") else device
    return {"device": device, "name": name, "sizes": None}


class _Run:
    """Runs the cases of one op."""

    def __init__(self, op: Op, device: str, request: dict[str, Any], emit: protocol.Emit) -> None:
        self.op, self.device, self.emit = op, device, emit
        self.package, self.seed = request.get("package", ""), request["seed"]
        self.fail_fast = request.get("fail_fast", False)
        self.shrunk: set[str] = set()

    def all(self, cases: Iterator[Case]) -> None:
        for case in cases:
            text = as_text(case)
            if not self.emit.start(self.op.name, text):
                continue
            try:
                fault = self.check(case)
            except torch.OutOfMemoryError:  # No fault of the op.
                self.emit("too large", op=self.op.name, case=text)
                continue
            if fault is None:
                self.emit("passed", op=self.op.name, case=text)
                continue
            self.emit("failure", op=self.op.name, case=text, check=fault.check, text=fault.text)
            if self.fail_fast:
                return
            if fault.check not in self.shrunk and len(self.shrunk) < _MOST_SHRUNK:
                self.shrunk.add(fault.check)
                self.shrink(case)

    def check(self, case: Case) -> reference_check.Fault | None:
        try:
            if self.device == EMULATED:
                emulated.set_schedules(self.package, self.seed, as_text(case))
            return run_case(self.op, case, tensor_device(self.device), self.seed)
        except torch.OutOfMemoryError:
            torch.cuda.empty_cache()
            raise
        except Exception as error:
            if protocol.is_fatal(error):
                protocol.leave(error)
            raise

    def shrink(self, case: Case) -> None:
        faults: dict[str, reference_check.Fault | None] = {}

        def fails(smaller: Case) -> bool:
            text = as_text(smaller)
            if text not in faults:
                # A crash while shrinking is a failure of its own, with a smaller case.
                self.emit("start", op=self.op.name, case=text, shrinking=True)
                faults[text] = None
                with suppress(torch.OutOfMemoryError):
                    faults[text] = self.check(smaller)
            return faults[text] is not None

        smallest = shrink(self.op, case, fails)
        fault = faults.get(as_text(smallest))
        if fault is not None:
            facts = {"check": fault.check, "text": fault.text, "shrunk": as_text(smallest)}
            self.emit("shrunk", op=self.op.name, case=as_text(case), **facts)


def run_case(op: Op, case: Case, device: str, seed: int) -> reference_check.Fault | None:
    """What is wrong with an op in a case; None if it is right.

    Raises:
        LabError: it is no case of this op, or nothing is written yet.
    """
    sizes = sizes_of(op, case)
    words = {key: case[key] for key in _PLAIN}
    make = Make(device, getattr(torch, case["dtype"]), seed=seed, requires_grad=op.gradient, **words)
    return reference_check.check(op, make, sizes)


# ---- Cases ----------------------------------------------------------------------------------------------------


def as_text(case: Case) -> str:
    """A case as JSON, without the keys that have plain values; the same for equal cases."""
    keys = [*sorted(case.keys() - set(RESERVED), reverse=True), *RESERVED]
    return json.dumps({key: case[key] for key in keys if key in case and _PLAIN.get(key) != case[key]})


def complete(op: Op, partial: Case) -> Case:
    """A case as a person writes it, with the op's first dtype and plain values for the keys that it lacks.

    Raises:
        LabError: it is no case of this op.
    """
    case = {**_PLAIN, "dtype": dtype_name(op.dtypes[0]), **partial}
    sizes_of(op, case)
    for key, known in (("layout", LAYOUTS), ("values", VALUES), ("alias", ALIASES)):
        if case[key] not in known:
            raise LabError(f"A case's {key} is one of {', '.join(known)}; not {case[key]!r}.")
    if not isinstance(getattr(torch, str(case["dtype"]), None), torch.dtype):
        raise LabError(f"A case's dtype is one of torch's, such as float32; not {case['dtype']!r}.")
    return case


def sizes_of(op: Op, case: Case) -> dict[str, int]:
    """The sizes in a case.

    Raises:
        LabError: the op takes others.
    """
    sizes = {key: value for key, value in case.items() if key not in (*_PLAIN, "dtype")}
    if problem := op.refuse_case(sizes):
        raise LabError(problem)
    if not all(type(size) is int and size >= 0 for size in sizes.values()):
        raise LabError(f"The sizes in a case are whole numbers; not {json.dumps(sizes)}.")
    return sizes


def _cases(op: Op, request: dict[str, Any], device: str, ops_left: int) -> Iterator[Case]:
    """The cases of one op that a request asks for; the ops that are left share the time until its deadline."""
    if request.get("case") is not None:
        yield complete(op, request["case"])
        return
    names = list(op.dtypes_on(device))
    if (dtype := request.get("dtype")) and dtype not in names:
        raise LabError(f"{op.name} is not fuzzed in {dtype} on {device}; its lab.py says {', '.join(names)}.")
    fit = partial(emulated.fitted, op) if device == EMULATED else None
    deadline = request.get("deadline")
    until = time.time() + (deadline - time.time()) / ops_left if deadline else float("inf")
    count = request.get("count") or (DEFAULT_COUNT if deadline is None else 10**9)
    for i, case in enumerate(all_cases(op, [dtype] if dtype else names, request["seed"], count, fit)):
        if i and time.time() > until:
            return
        yield case
    if op.huge and device == "cuda":
        smallest = min(op.dtypes, key=lambda dtype: dtype.itemsize)
        yield {**op.huge, **_PLAIN, "dtype": dtype or dtype_name(smallest)}


def all_cases(
    op: Op, dtypes: list[str], seed: int, count: int, fit: Callable[[Case], Case] | None = None
) -> Iterator[Case]:
    """So many different cases, adversarial ones first; fewer if the domain has no more. `fit` makes those smaller that
    the device would work on for too long."""
    seen: set[str] = set()
    for batch in chain([adversarial(op, dtypes)], (drawn(op, dtypes, seed + i, _BATCH) for i in counter())):
        before = len(seen)
        for case in map(fit, batch) if fit else batch:
            if len(seen) < count and as_text(case) not in seen:
                seen.add(as_text(case))
                yield case
        if len(seen) in (before, count):
            return


def adversarial(op: Op, dtypes: list[str]) -> Iterator[Case]:
    """Every layout, kind of values and aliasing, and sizes at the edges; the dtypes take turns."""
    dtype = cycle(dtypes)
    low, high = ({name: bounds[i] for name, bounds in op.domain.items()} for i in (0, 1))

    def sizes(size: int) -> dict[str, int]:
        """All sizes of the op as close to this one as its domain lets them be."""
        return {name: min(max(size, low[name]), high[name]) for name in op.domain}

    def case(sizes: dict[str, int], **words: str) -> Case:
        return {**sizes, "dtype": next(dtype), **_PLAIN, **words}

    yield case(sizes(33))
    for layout in LAYOUTS[1:]:
        yield case(sizes(33), layout=layout)
    # Rows of whole vectors: only for those does a kernel look at the alignment of their first element.
    misaligned = "misaligned", "first misaligned", "others misaligned"
    for layout in misaligned:
        yield case(sizes(64), layout=layout)
    # The same without one of the op's optional arguments, so that a single one is misaligned.
    for name in op.domain:
        if (low[name], high[name]) == (0, 1):
            for layout in misaligned[1:]:
                yield case(sizes(64) | {name: 0}, layout=layout)
    for values in VALUES[1:]:
        yield case(sizes(40), values=values)
    for alias in ALIASES[1:]:
        yield case(sizes(24), alias=alias)
    for size in (0, 1, 64):
        yield case(sizes(size))
    for name in op.domain:
        for edge in (low[name], 1, 127, 257, 1025, high[name]):
            if low[name] <= edge <= high[name]:
                yield case(sizes(5) | {name: edge})
    yield case(high)
    yield case(sizes(7), layout="mixed", values="wide range")


def drawn(op: Op, dtypes: list[str], seed: int, count: int) -> list[Case]:
    """Cases that hypothesis draws; the same for the same seed."""
    import hypothesis

    cases: list[Case] = []

    @hypothesis.seed(seed)
    @hypothesis.settings(_settings(count), phases=[hypothesis.Phase.generate])
    @hypothesis.given(_strategy(op, dtypes))
    def collect(case: Case) -> None:
        cases.append(case)

    collect()
    return cases


def shrink(op: Op, case: Case, fails: Fails, limit_s: float = _SHRINK_S) -> Case:
    """The simplest failing case that hypothesis finds among those no larger than this one; at worst this one.

    It tries no further case once the time is up.
    """
    import hypothesis
    from hypothesis import strategies as st

    end, known = time.monotonic() + limit_s, {as_text(case): True}

    def timely(smaller: Case) -> bool:
        text = as_text(smaller)
        if text not in known:
            known[text] = time.monotonic() < end and fails(smaller)
        return known[text]

    def below(key: str) -> st.SearchStrategy[Any]:
        if key == "dtype":
            return st.just(case[key])
        if key in _PLAIN:
            return st.sampled_from(list(dict.fromkeys([_PLAIN[key], case[key]])))
        # The second strategy makes it likely that the failing case itself is drawn. It is no `just`, since the shrinker
        # cannot make the value of that smaller.
        return st.integers(min(op.domain[key][0], case[key]), case[key]) | st.integers(case[key], case[key])

    if not fails(case):
        return case
    strategy = st.fixed_dictionaries({key: below(key) for key in case})
    try:
        return hypothesis.find(strategy, timely, settings=_settings(200), random=Random(0))
    except hypothesis.errors.NoSuchExample:
        return case


def _strategy(op: Op, dtypes: list[str]) -> Any:
    from hypothesis import strategies as st

    def size(low: int, high: int) -> st.SearchStrategy[int]:
        edges = sorted({n + d for n in (16, 32, 64, 128, 256, 512, 1024, 2048, 4096) for d in (-1, 0, 1)} | {7, 13, 97})
        edges = [edge for edge in edges if low <= edge <= high] or [low]
        return st.integers(low, min(high, max(low, 40))) | st.sampled_from(edges) | st.integers(low, high)

    sizes = {name: size(*bounds) for name, bounds in op.domain.items()}
    words = {"layout": LAYOUTS, "values": VALUES, "alias": ALIASES}
    others = {"dtype": st.sampled_from(dtypes)} | {key: st.sampled_from(known) for key, known in words.items()}
    return st.fixed_dictionaries(sizes | others)


def _settings(count: int) -> Any:
    import hypothesis

    checks = list(hypothesis.HealthCheck)
    return hypothesis.settings(max_examples=count, database=None, deadline=None, suppress_health_check=checks)
