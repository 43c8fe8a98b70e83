"""The cases that an op is fuzzed in: a core that is the same each time, then cases that hypothesis draws.

A case is a flat JSON object: the op's sizes by name, and the words of `WORDS`. The core has adversarial cases by hand,
then as many more as cover every pair of values of every two keys: most faults of software need no more than two
conditions at once (Kuhn, Wallace & Gallo, Software fault interactions, 2004). The special ways to call an op come last.
"""

import itertools
import json
import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import cache
from itertools import chain, cycle
from itertools import count as counter
from random import Random
from typing import Any

import torch

from kernelgen import caches
from kernelgen.errors import LabError
from kernelgen.worker.calls import CALLS, MOST_ENUMERATED, is_for
from kernelgen.worker.inputs import ALIASES, FAR_ROWS, LAYOUTS, VALUES, count_differentiable, work_of
from kernelgen.worker.op import RESERVED, Op, dtype_name

# Where hypothesis keeps its files; by default it would make a folder in the project.
os.environ.setdefault("HYPOTHESIS_STORAGE_DIRECTORY", str(caches.folder("hypothesis")))

Case = dict[str, Any]

# The words of a case beside its dtype, plain ones first. `requires_grad` is "all", or the numbers of the inputs that
# take a gradient, such as "0,2".
WORDS = {"layout": LAYOUTS, "values": VALUES, "alias": ALIASES, "requires_grad": ("all",), "call": CALLS}
PLAIN = {key: words[0] for key, words in WORDS.items()}

# The values of a size that are covered where lab.py names no EDGES.
_EDGES = (0, 1, 33, 64, 257, 1025)
# The size of the cases that are called in a special way: threads share the work of large inputs only. And how many of
# the dtypes are called so.
_CALL_SIZES = {"averaged": 64, "thread counts": 257, "repeated": 16}
# Of 16-bit numbers kernels keep copies in float32, which threads must not share.
_CALL_DTYPES = {"averaged": 4, "thread counts": 2, "several threads": 2}
# No pairs of these are covered: which numbers lie there is nothing that the reading of a layout depends on.
_UNPAIRED = {"layout", "values", "alias"}
# The layouts in which elements or rows are not one after the other.
_APART = ("transposed", "strided", "wide rows", "odd rows")
# A case of the cover has no more elements or operations, but where the pair that it is for has.
_MOST_ELEMENTS, _MOST_FLOPS = 2**15, 2**24
# A special call is made many times, and has no more operations.
_MOST_FLOPS_OF_A_CALL = 2**26
# The elements and operations of the largest cases for timing that are fuzzed, too, by device.
_MOST_MEASURED = {"cuda": (2**29, 2**37), "cpu": (2**20, 2**26)}
# All sizes are at their largest at once where that has no more operations, which take a CPU a second.
_MOST_FLOPS_AT_ALL = 2**30
# More than 16 bits can count, and than a dimension of a CUDA grid has blocks.
_MANY = 2**16 + 3
# Cases that hypothesis draws at a time.
_BATCH = 50


# ---- A case and its JSON --------------------------------------------------------------------------------------


def as_text(case: Case) -> str:
    """A case as JSON, without the keys that have plain values; the same for equal cases."""
    keys = [*sorted(case.keys() - set(RESERVED), reverse=True), *RESERVED]
    return json.dumps({key: case[key] for key in keys if key in case and PLAIN.get(key) != case[key]})


def complete(op: Op, given: Case) -> Case:
    """A case as a person writes it, with the op's first dtype and plain values for the keys that it lacks.

    Raises:
        LabError: it is no case of this op.
    """
    case = {**PLAIN, "dtype": dtype_name(op.dtypes[0]), **given}
    sizes_of(op, case)
    for key, known in WORDS.items():
        if key == "requires_grad" and re.fullmatch(r"\d+(,\d+)*", str(case[key])):
            continue
        if case[key] not in known and (key, case[key]) != ("layout", FAR_ROWS):
            wanted = ", ".join(known) + (', or numbers of inputs such as "0,2"' if key == "requires_grad" else "")
            raise LabError(f"A case's {key} is one of {wanted}; not {case[key]!r}.")
    if not isinstance(getattr(torch, str(case["dtype"]), None), torch.dtype):
        raise LabError(f"A case's dtype is one of torch's, such as float32; not {case['dtype']!r}.")
    return case


def sizes_of(op: Op, case: Case) -> dict[str, int]:
    """The sizes in a case.

    Raises:
        LabError: the op takes others.
    """
    sizes = {key: value for key, value in case.items() if key not in RESERVED}
    if problem := op.refuse_case(sizes):
        raise LabError(problem)
    if not all(type(size) is int and size >= 0 for size in sizes.values()):
        raise LabError(f"The sizes in a case are whole numbers; not {json.dumps(sizes)}.")
    return sizes


# ---- All cases ------------------------------------------------------------------------------------------------


def all_cases(
    op: Op,
    dtypes: list[str],
    seed: int,
    count: int,
    fit: Callable[[Case], Case] | None = None,
    first: Iterable[Case] | None = None,
) -> Iterator[Case]:
    """So many different cases, those of the core `first`; fewer if the domain has no more. `fit` makes those smaller
    that the device would work on for too long."""
    seen: set[str] = set()
    for batch in chain(
        [core(op, dtypes) if first is None else first], (drawn(op, dtypes, seed + i, _BATCH) for i in counter())
    ):
        before = len(seen)
        for case in map(fit, batch) if fit else batch:
            if len(seen) < count and as_text(case) not in seen:
                seen.add(as_text(case))
                yield case
        if len(seen) in (before, count):
            return


def core(op: Op, dtypes: list[str], calls: Sequence[str] = ()) -> Iterator[Case]:
    """The cases that do not depend on the seed."""
    first = list(adversarial(op, dtypes))
    yield from first
    empty = {(name, 0) for name, (low, high) in op.domain.items() if high - low >= MOST_ENUMERATED}
    yield from cover(_factors(op, dtypes), first, _is_small(op), empty)
    yield from _special_calls(op, dtypes, calls)


def adversarial(op: Op, dtypes: list[str]) -> Iterator[Case]:
    """Every layout, kind of values and aliasing, and sizes at the edges; the dtypes take turns."""
    dtype = cycle(dtypes)
    low, high = ({name: bounds[i] for name, bounds in op.domain.items()} for i in (0, 1))

    def sizes(size: int) -> dict[str, int]:
        return _sizes_near(op, size)

    def case(sizes: dict[str, int], **words: str) -> Case:
        return {**sizes, "dtype": next(dtype), **PLAIN, **words}

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
        # A kernel may read long rows where they lie, and others from a copy.
        if high[name] - low[name] >= MOST_ENUMERATED:
            for layout in _APART:
                yield case(sizes(5) | {name: high[name]}, layout=layout)
    if work_of(op, high)[1] <= _MOST_FLOPS_AT_ALL:
        yield case(high)
    # Of a size that may be so large, though its domain has less.
    for name, size in (op.huge or {}).items():
        if high[name] < _MANY < size:
            yield case(sizes(5) | {name: _MANY})
    yield case(sizes(7), layout="mixed", values="wide range")


def _sizes_near(op: Op, size: int) -> dict[str, int]:
    """All sizes of the op as close to this one as its domain lets them be; what may be left out has its default."""
    sizes = {name: min(max(size, low), high) for name, (low, high) in op.domain.items()}
    return sizes | {name: value for name, value in op.defaults.items() if isinstance(value, int)}


def _special_calls(op: Op, dtypes: list[str], calls: Sequence[str]) -> Iterator[Case]:
    """Few cases, since these calls take long."""
    for call in calls:
        for dtype in [name for name in dtypes if is_for(call, getattr(torch, name))][: _CALL_DTYPES.get(call, 1)]:
            sizes = [_sizes_near(op, size) for size in (_CALL_SIZES.get(call, 33), 33, 5)]
            few = next((some for some in sizes if work_of(op, some)[1] <= _MOST_FLOPS_OF_A_CALL), sizes[-1])
            yield {**few, **PLAIN, "dtype": dtype, "call": call}


def measured(op: Op, dtypes: list[str], device: str) -> Iterator[Case]:
    """The cases that are timed, with values that no timing has: what is right in small sizes may not be in these."""
    elements, flops = _MOST_MEASURED.get(device, (0, 0))
    kinds = zip(cycle(dtypes), cycle(("nan", "wide range", "large mean", "infinite")))
    for sizes in (op.cases if device == "cuda" else op.cpu_cases).values():
        work = work_of(op, sizes)
        if 0 < work[0] <= elements and work[1] <= flops:
            dtype, values = next(kinds)
            yield {**sizes, **PLAIN, "dtype": dtype, "values": values}


def huge(op: Op, dtype: str | None) -> Iterator[Case]:
    """For a GPU, where an index needs more than 32 bits: of the smallest dtype, unless one is given; of several that
    with the widest range, since the results are compared with the reference's in that dtype, which overflows inside."""
    if op.huge:
        plain = {**PLAIN, "dtype": dtype or dtype_name(min(op.dtypes, key=_bytes_then_range))}
        yield {**op.huge, **plain}
        # Rows of whole vectors, which kernels read in another way.
        whole = {name: size if size < 64 else -(-size // 16) * 16 for name, size in op.huge.items()}
        if whole != op.huge:
            yield {**whole, **plain}
        yield {**_sizes_near(op, 33), **plain, "layout": FAR_ROWS}


def _bytes_then_range(dtype: torch.dtype) -> tuple[int, float]:
    return dtype.itemsize, -torch.finfo(dtype).max if dtype.is_floating_point else 0


def _factors(op: Op, dtypes: list[str]) -> dict[str, list[Any]]:
    """The values of each key that the core pairs."""
    factors: dict[str, list[Any]] = {"dtype": list(dtypes)}
    for name, (low, high) in op.domain.items():
        if high - low < MOST_ENUMERATED:  # All its values are covered.
            factors[name] = list(range(low, high + 1))
        else:
            edges = op.edges.get(name, _EDGES)
            factors[name] = sorted({low, 1, high, *edges} & set(range(low, high + 1)))
    factors |= {key: list(WORDS[key]) for key in ("layout", "values", "alias")}
    factors["requires_grad"] = _subsets(_most_differentiable(op) if op.gradient else 0)
    return factors


def _most_differentiable(op: Op) -> int:
    """How many inputs take a gradient where each choice of two is the one that draws more of them."""
    sizes = _sizes_near(op, 5)
    choices = [name for name, bounds in op.domain.items() if bounds == (0, 1)]
    variants = [sizes, *(sizes | {name: value} for name in choices for value in (0, 1))]
    return max(count_differentiable(op, variant) for variant in variants)


def _is_small(op: Op) -> Callable[[Case], bool]:
    """Whether a case with these sizes, and small ones for those that it lacks, takes little time: asked of thousands of
    cases of some hundred sizes."""
    small = _sizes_near(op, 5)

    @cache
    def of(*sizes: int) -> bool:
        elements, flops = work_of(op, dict(zip(small, sizes, strict=True)))
        return elements <= _MOST_ELEMENTS and flops <= _MOST_FLOPS

    return lambda case: of(*(case[name] if name in op.domain and name in case else small[name] for name in small))


def _subsets(count: int) -> list[str]:
    """All inputs, and the others of all subsets of up to three; of more, each alone and each left out."""
    numbers = range(count)
    sizes = range(1, count) if count <= 3 else (1, count - 1)
    return ["all", *(",".join(map(str, some)) for size in sizes for some in itertools.combinations(numbers, size))]


def cover(
    factors: Mapping[str, Sequence[Any]],
    given: Iterable[Case] = (),
    is_small: Callable[[Case], bool] = lambda case: True,
    empty: Collection[tuple[str, Any]] = (),
) -> Iterator[Case]:
    """Cases that together with the given ones hold every pair of values of every two factors.

    A case with a value of `empty`, such as no rows, has nothing to compute: it holds only pairs with such a value.

    Greedy: each case starts from a pair that is missing, and takes value by value the one that completes most missing
    pairs (Cohen, Dalal, Fredman & Patton, The AETG system, 1997), and keeps the case small if it can.
    """
    missing = _MissingPairs(factors, empty)
    random = Random(0)
    for case in given:
        missing.remove(case)
    while missing.pairs:
        case = dict(next(iter(missing.pairs)))
        others = [name for name in factors if name not in case]
        random.shuffle(others)
        for name in others:
            values = random.sample(list(factors[name]), len(factors[name]))
            if not missing.is_empty(case):
                values = [value for value in values if (name, value) not in empty] or values
            small = [value for value in values if is_small({**case, name: value})] or values
            case[name] = max(small, key=lambda value: len(missing.completed(case, name, value)))
        missing.remove(case)
        yield {**PLAIN, **{name: case[name] for name in factors}}


class _MissingPairs:
    """The pairs of values of two factors that no case holds yet: `pairs`, in order."""

    def __init__(self, factors: Mapping[str, Sequence[Any]], empty: Collection[tuple[str, Any]]) -> None:
        self.pairs = {
            pair: None
            for a, b in itertools.combinations(factors, 2)
            if not {a, b} <= _UNPAIRED
            for pair in itertools.product([(a, value) for value in factors[a]], [(b, value) for value in factors[b]])
        }
        self._place = {name: i for i, name in enumerate(factors)}
        self._empty = empty

    def is_empty(self, case: Case) -> bool:
        return any(item in self._empty for item in case.items())

    def completed(self, case: Case, key: str, value: Any) -> list[tuple]:
        """The missing pairs that a value completes in a part of a case."""
        pairs = [((name, case[name]), (key, value)) for name in case if name in self._place and name != key]
        if self.is_empty({**case, key: value}):
            pairs = [pair for pair in pairs if self.is_empty(dict(pair))]
        in_order = [(a, b) if self._place[a[0]] < self._place[b[0]] else (b, a) for a, b in pairs]
        return [pair for pair in in_order if pair in self.pairs]

    def remove(self, case: Case) -> None:
        """Takes note that a case holds its pairs."""
        for key in self._place:
            for pair in self.completed(case, key, case[key]):
                self.pairs.pop(pair, None)


# ---- Drawn cases ----------------------------------------------------------------------------------------------


def drawn(op: Op, dtypes: list[str], seed: int, count: int) -> list[Case]:
    """Cases that hypothesis draws; the same for the same seed."""
    import hypothesis

    cases: list[Case] = []

    @hypothesis.seed(seed)
    @hypothesis.settings(settings(count), phases=[hypothesis.Phase.generate])
    @hypothesis.given(_strategy(op, dtypes))
    def collect(case: Case) -> None:
        cases.append(case)

    collect()
    return cases


def _strategy(op: Op, dtypes: list[str]) -> Any:
    from hypothesis import strategies as st

    def size(low: int, high: int) -> st.SearchStrategy[int]:
        edges = sorted({n + d for n in (16, 32, 64, 128, 256, 512, 1024, 2048, 4096) for d in (-1, 0, 1)} | {7, 13, 97})
        edges = [edge for edge in edges if low <= edge <= high] or [low]
        return st.integers(low, min(high, max(low, 40))) | st.sampled_from(edges) | st.integers(low, high)

    sizes = {name: size(*bounds) for name, bounds in op.domain.items()}
    words = {**_factors(op, dtypes), "call": [PLAIN["call"]]}
    others = {key: st.sampled_from(words[key]) for key in ("dtype", *WORDS)}
    return st.fixed_dictionaries(sizes | others)


def settings(count: int) -> Any:
    """Hypothesis' settings for so many examples, without files or deadlines."""
    import hypothesis

    checks = list(hypothesis.HealthCheck)
    return hypothesis.settings(max_examples=count, database=None, deadline=None, suppress_health_check=checks)
