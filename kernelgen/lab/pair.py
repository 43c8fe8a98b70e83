"""Measures one case of two versions of an op: two live workers take turns, so that drift meets both alike.

A measurement consists of blocks. In each block both workers draw fresh inputs at new addresses, then go through a few
rounds; in a round each takes a few samples, in random order. A round gives one ratio of medians, and a block the median
of its rounds' ratios: that is one unit of evidence. What lasts longer than a round cancels in the ratio. What lasts as
long as a block, such as where the inputs lie in memory, differs from block to block and so widens the interval.
"""

import random
import statistics
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from kernelgen.cores import CORES
from kernelgen.lab import results
from kernelgen.lab.worker_process import WorkerProcess

# So many blocks that chance alone all but never makes Cliff's delta 0.3 with an interval that leaves out 1, and that a
# difference of 3% shows: benchmarks/compare_gate.py says how often. A CPU is noisier: other programs use its caches and
# its memory too.
BLOCKS, ROUNDS, SAMPLES = {"cuda": 40, "cpu": 100}, 5, 3
# How many pairs of workers share a case's blocks, and the fewest blocks that a pair is started for. A process on a CPU
# is faster or slower by some percent for as long as it lives, by where its code and its data happen to lie.
PAIRS, FEWEST = {"cuda": 1, "cpu": 4}, 10
CHECKS = 5
# On a GPU a case may be decided long before its last block: from so many on, it is asked after every few more.
LEAST, STEP = 12, 4
THROTTLED = "the GPU was throttled in most rounds, so none was set aside: believe the ratio alone"


@dataclass(frozen=True)
class Schedule:
    """How much is measured: blocks, rounds of a block, samples of a round and worker; the seed of the random order; and
    in how many blocks, spread over the run by chance, a sample is checked in any case (worker/judge/case.py)."""

    blocks: int
    rounds: int = ROUNDS
    samples: int = SAMPLES
    seed: int = 0
    checks: int = CHECKS

    def checked(self, chance: random.Random) -> set[int]:
        """The blocks with such a check: by chance, but one of them among those that are measured in any case."""
        early = chance.sample(range(min(LEAST, self.blocks)), min(1, self.checks, self.blocks))
        rest = [block for block in range(self.blocks) if block not in early]
        return {*early, *chance.sample(rest, min(max(self.checks - 1, 0), len(rest)))}

    def share(self, number: int, pairs: int) -> "Schedule":
        """The part of one of several pairs of workers, which count from 0."""
        begin, end = (self.blocks * edge // pairs for edge in (number, number + 1))
        return replace(self, blocks=end - begin, seed=self.seed * pairs + number, checks=-(-self.checks // pairs))


@dataclass
class PairedResult:
    """One case: a ratio after / before for each block, and the medians of all samples, in seconds.

    Attributes:
        blocks: how many were measured.
        set_aside: rounds that were left out because the GPU was throttled.
        bytes, flops: the fewest to move and to compute; None where lab.py does not say.
        faults: what is wrong with either version's results; `remarks`: what to know of the checks; `doubts`: what was
            not checked, so that no gain is believed.
        about: for each worker, by its name, the machine's state meanwhile and how it was timed.
    """

    op: str
    case: str
    dtype: str
    backward: bool = False
    ratios: list[float] = field(default_factory=list)
    before: float = 0.0
    after: float = 0.0
    blocks: int = 0
    set_aside: int = 0
    bytes: int | None = None
    flops: int | None = None
    faults: list[str] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)
    doubts: list[str] = field(default_factory=list)
    about: dict[str, Any] = field(default_factory=dict)

    @property
    def key(self) -> str:
        return results.key(asdict(self))


@dataclass(frozen=True)
class Round:
    """The samples of both workers, in seconds, and whether the GPU was throttled around any of them."""

    before: list[float]
    after: list[float]
    throttled: bool

    @property
    def ratio(self) -> float:
        return statistics.median(self.after) / statistics.median(self.before)


@dataclass
class Pair:
    """The two workers of a measurement."""

    before: WorkerProcess
    after: WorkerProcess
    _is_listing: bool = False

    @property
    def workers(self) -> tuple[WorkerProcess, WorkerProcess]:
        return self.before, self.after

    def both(self, do: str, **arguments: Any) -> list[dict[str, Any]]:
        """The same order to both at once; both answers."""
        for worker in self.workers:
            worker.order(do, **arguments)
        return [worker.answer() for worker in self.workers]

    def one_by_one(self, do: str, **arguments: Any) -> list[dict[str, Any]]:
        """Gives both workers the same order, one after the other, since their work would slow each other down."""
        return [worker.ask(do, **arguments) for worker in self.workers]

    def load(self) -> None:
        """Has both load the op and list its cases, while others do something else."""
        for worker in self.workers:
            worker.order("list")
        self._is_listing = True

    def list(self) -> dict[str, Any]:
        """The machine, and the cases of the version after."""
        if not self._is_listing:
            self.load()
        self._is_listing = False
        return [worker.answer() for worker in self.workers][1]

    def close(self) -> None:
        for worker in self.workers:
            worker.close()


def pairs_for(blocks: int, device: str) -> int:
    """How many pairs of workers share so many blocks."""
    return max(1, min(PAIRS[device], blocks // FEWEST))


def merged(parts: Sequence[PairedResult]) -> PairedResult:
    """One case's results from several pairs of workers, as one."""
    whole = replace(parts[0], ratios=[ratio for part in parts for ratio in part.ratios])
    whole.before, whole.after = (statistics.median(getattr(part, end) for part in parts) for end in ("before", "after"))
    whole.set_aside, whole.blocks = (sum(getattr(part, name) for part in parts) for name in ("set_aside", "blocks"))
    for name in ("faults", "remarks", "doubts"):
        setattr(whole, name, list(dict.fromkeys(text for part in parts for text in getattr(part, name))))
    return whole


def measure(
    pair: Pair,
    result: PairedResult,
    schedule: Schedule,
    tick: Callable[[float], None] = lambda share: None,
    is_decided: Callable[[Sequence[float]], bool] = lambda ratios: False,
) -> PairedResult:
    """Fills in the result of the case that it names; `tick` is told the share that is done, and measuring ends with
    the block after which `is_decided` says so of the ratios so far.

    Raises:
        LabError, LostError: as `WorkerProcess.answer`.
    """
    chance = random.Random(schedule.seed)
    opened = pair.one_by_one("open", case=result.case, dtype=result.dtype)
    fastest = min(answer["fastest"] for answer in opened)
    # Cores differ in what else they run. Where one thread is timed, both workers share one, another in each block.
    cores = sorted(CORES) if all(answer["one_thread"] for answer in opened) else []
    graphs = all(answer["graphs"] for answer in pair.both("plan", seconds=fastest))
    checked = schedule.checked(chance)
    blocks: list[list[Round]] = []
    for block in range(schedule.blocks):
        among = schedule.rounds * schedule.samples if block in checked else 0
        pair.both("fresh", graphs=graphs, among=among, core=chance.choice(cores) if cores else None)
        # One worker takes samples at a time, so one checks at a time: two references in float64 may not fit a GPU.
        blocks.append([_round(pair, schedule.samples, chance) for _ in range(schedule.rounds)])
        tick((block + 1) / schedule.blocks)
        if block + 1 >= LEAST and (block + 1 - LEAST) % STEP == 0:
            _summarise(result, blocks)
            if is_decided(result.ratios):
                break
    result.blocks = len(blocks)
    result.remarks += [THROTTLED] if _summarise(result, blocks) else []
    # On a GPU this times calls by the wall clock, which two at once would share.
    ends = pair.one_by_one("finish")
    named = zip(pair.workers, ends, strict=True)
    result.faults = [f"{worker.name}: {fault}" for worker, end in named for fault in end["faults"]]
    for name in ("remarks", "doubts"):
        texts = [*getattr(result, name), *(text for end in ends for text in end[name])]
        setattr(result, name, list(dict.fromkeys(texts)))
    result.bytes, result.flops = (ends[-1].get(name) for name in ("bytes", "flops"))
    result.about = {worker.name: end for worker, end in zip(pair.workers, ends, strict=True)}
    return result


def _round(pair: Pair, count: int, chance: random.Random) -> Round:
    seconds, throttled = {}, False
    for worker in chance.sample(pair.workers, 2):
        answer = worker.ask("sample", count=count)
        seconds[worker], throttled = answer["seconds"], throttled or answer["throttled"]
    return Round(seconds[pair.before], seconds[pair.after], throttled)


def _summarise(result: PairedResult, blocks: Sequence[Sequence[Round]]) -> bool:
    """Sets aside the rounds in which the GPU was throttled. If they are most, as with kernels that always reach the
    power limit, all rounds count: both workers reached it in turns. Returns whether they are most."""
    rounds = [round_ for block in blocks for round_ in block]
    throttled = 2 * sum(round_.throttled for round_ in rounds) > len(rounds)
    if not throttled:
        blocks = [[round_ for round_ in block if not round_.throttled] for block in blocks]
    kept = [round_ for block in blocks for round_ in block]
    result.set_aside = len(rounds) - len(kept)
    result.ratios = [statistics.median(round_.ratio for round_ in block) for block in blocks if block]
    result.before = statistics.median(seconds for round_ in kept for seconds in round_.before)
    result.after = statistics.median(seconds for round_ in kept for seconds in round_.after)
    return throttled
