"""Measures two revisions of an op in one run: two live workers that take turns, so that drift meets both alike.

A comparison consists of blocks. In each both sides draw fresh inputs at new addresses, then go through a few rounds;
in a round each takes a few samples, in random order. A round gives one ratio of medians, and a block the median of its
rounds' ratios: that is one unit of evidence. What lasts for longer than a round cancels in the ratio; what lasts for a
block, such as where the inputs happen to lie, differs from unit to unit and so shows in the interval.
"""

import json
import os
import random
import signal
import socket
import statistics
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from kernelgen.errors import LabError
from kernelgen.lab import process
from kernelgen.lab.steady import steady_environment

# Units enough that chance alone all but never makes Cliff's delta 0.3 with an interval that leaves out 1, and that 3%
# are seen: see benchmarks/compare_gate.py for how often. A CPU is noisier: others use its caches and memory too.
BLOCKS, ROUNDS, SAMPLES = {"cuda": 40, "cpu": 100}, 5, 3
# How many pairs of workers share the blocks of a comparison, and the fewest that a pair is started for. On a CPU a
# process is faster or slower by some percent for as long as it lives, by where its code and its data happen to lie.
PAIRS, FEWEST = {"cuda": 1, "cpu": 4}, 10
CHECKS = 5
THROTTLED = "the GPU was throttled in most rounds, so none was set aside: believe the ratio alone"


class LostError(LabError):
    """A worker crashed or hung; another may go on with the cases that are left."""


@dataclass(frozen=True)
class Plan:
    """How much is measured: blocks, rounds a block, samples a round and side; the random order's seed; and how many of
    the blocks are checked by `honest.watched`, spread over the run by chance."""

    blocks: int
    rounds: int = ROUNDS
    samples: int = SAMPLES
    seed: int = 0
    checks: int = CHECKS

    def share(self, turn: int, turns: int) -> "Plan":
        """What one of several pairs of workers does of it."""
        begin, end = (self.blocks * ends // turns for ends in (turn, turn + 1))
        return replace(self, blocks=end - begin, seed=self.seed * turns + turn, checks=-(-self.checks // turns))


@dataclass
class Paired:
    """What came of one case: a ratio after / before for each block, and the medians of the samples, in seconds."""

    op: str
    case: str
    dtype: str
    backward: bool = False
    ratios: list[float] = field(default_factory=list)
    before: float = 0.0
    after: float = 0.0
    set_aside: int = 0
    faults: list[str] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)
    about: dict[str, Any] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class Round:
    """The samples of both sides, in seconds, and whether the GPU was throttled around any."""

    before: list[float]
    after: list[float]
    throttled: bool

    @property
    def ratio(self) -> float:
        return statistics.median(self.after) / statistics.median(self.before)


class Side:
    """One live worker."""

    def __init__(self, name: str, python: Path, root: Path, request: dict[str, Any], limit_s: float = 120.0) -> None:
        self.name = name
        mine, theirs = socket.socketpair()
        mine.settimeout(limit_s)
        self._socket, self._lines = mine, mine.makefile("rw", encoding="utf-8")
        self._said: deque[str] = deque(maxlen=5)
        self._process = subprocess.Popen(
            process.command(python),
            cwd=root,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            start_new_session=True,
            pass_fds=[theirs.fileno()],
            env={**steady_environment(), **request.get("environment", {})},
        )
        threading.Thread(target=self._hear, daemon=True).start()
        with suppress(BrokenPipeError), self._process.stdin as pipe:
            json.dump({"work": "paired", "project": str(root), "fd": theirs.fileno(), **request}, pipe)
        theirs.close()

    def order(self, do: str, **arguments: Any) -> None:
        with suppress(OSError):  # `answer` says what became of a worker that no longer listens.
            self._lines.write(json.dumps({"do": do, **arguments}) + "\n")
            self._lines.flush()

    def answer(self) -> dict[str, Any]:
        """The answer to the last order.

        Raises:
            LostError: the worker died or hung.
            LabError: it could not do it.
        """
        try:
            line = self._lines.readline()
        except TimeoutError:
            self.close()
            raise LostError(f"{self.name} hung: it said nothing for {self._socket.gettimeout():g} s.") from None
        except OSError:
            line = ""
        if not line:
            raise LostError(f"{self.name} {self._death()}.")
        answer = json.loads(line)
        if "error" in answer:
            raise LabError(f"{self.name}: {answer['error']}")
        return answer

    def ask(self, do: str, **arguments: Any) -> dict[str, Any]:
        self.order(do, **arguments)
        return self.answer()

    def allow(self, seconds: float) -> None:
        """How long it may take to answer, from now on."""
        self._socket.settimeout(seconds)

    def move(self, core: int) -> None:
        """To run on one core alone, where the system can do that."""
        with suppress(AttributeError, OSError):
            os.sched_setaffinity(self._process.pid, {core})

    def close(self) -> None:
        """Ends the worker: at once if it is asked nothing more, else by force."""
        with suppress(OSError):
            self._lines.close()
        self._socket.close()
        try:
            self._process.wait(timeout=2)
        except subprocess.TimeoutExpired:
            self._process.kill()
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(timeout=5)

    def kill(self) -> None:
        """Ends the worker by force. A thread that waits for its answer gets a LostError."""
        self._process.kill()

    def _death(self) -> str:
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout=10)
        code = self._process.poll()
        said = self._process.stdout.read() if code == 0 else ""
        for line in said.splitlines():
            event = json.loads(line)
            if event["event"] == "error":
                return f"could not start: {event['message']}"
        how = signal.Signals(-code).name if code and code < 0 else f"exit code {code}"
        return f"crashed with {how}" + (f": {self._said[-1]}" if self._said else "")

    def _hear(self) -> None:
        for line in self._process.stderr:
            if line.strip():
                self._said.append(line.strip())
                sys.stderr.write(line)


@dataclass(frozen=True)
class Pair:
    """The two sides of a comparison."""

    before: Side
    after: Side

    def both(self, do: str, **arguments: Any) -> list[dict[str, Any]]:
        """The same order to both at once, and both answers."""
        for side in (self.before, self.after):
            side.order(do, **arguments)
        return [side.answer() for side in (self.before, self.after)]

    def close(self) -> None:
        self.before.close()
        self.after.close()


def pairs_for(blocks: int, device: str) -> int:
    """How many pairs of workers share so many blocks."""
    return max(1, min(PAIRS[device], blocks // FEWEST))


def merged(parts: Sequence[Paired]) -> Paired:
    """What several pairs of workers found of one case."""
    whole = replace(parts[0], ratios=[ratio for part in parts for ratio in part.ratios])
    whole.before, whole.after = (statistics.median(getattr(part, end) for part in parts) for end in ("before", "after"))
    whole.set_aside = sum(part.set_aside for part in parts)
    for name in ("faults", "remarks"):
        setattr(whole, name, list(dict.fromkeys(said for part in parts for said in getattr(part, name))))
    return whole


def measure(pair: Pair, result: Paired, plan: Plan, tick: Callable[[float], None] = lambda share: None) -> Paired:
    """Fills `result` for the case that it names; `tick` is told the share that is done.

    Raises:
        LabError, LostError: as `Side.answer`.
    """
    chance = random.Random(plan.seed)
    # One after the other: beside each other they would slow each other down.
    opened = [side.ask("open", case=result.case, dtype=result.dtype) for side in (pair.before, pair.after)]
    fastest = min(answer["fastest"] for answer in opened)
    # Cores differ in what else they run. Where one thread is timed, both sides share one, another in each block.
    cores = _cores() if all(answer["one_thread"] for answer in opened) else []
    graphs = all(answer["graphs"] for answer in pair.both("plan", seconds=fastest))
    checked = set(chance.sample(range(plan.blocks), min(plan.checks, plan.blocks)))
    blocks: list[list[Round]] = []
    for block in range(plan.blocks):
        if cores:
            core = chance.choice(cores)
            pair.before.move(core)
            pair.after.move(core)
        pair.both("fresh", graphs=graphs)
        blocks.append([_round(pair, plan.samples, chance) for _ in range(plan.rounds)])
        if block in checked:
            # One after the other: a reference in float64 may take most of a GPU's memory.
            found = [side.ask("check") for side in (pair.before, pair.after)]
            result.faults += _faults(pair, found)
            result.remarks += [one["remark"] for one in found if one["remark"]]
        tick((block + 1) / plan.blocks)
    _sum_up(result, blocks)
    ends = pair.both("finish")
    result.faults = list(dict.fromkeys(result.faults + _faults(pair, ends)))
    result.remarks = list(dict.fromkeys(result.remarks))
    result.about = {side.name: end for side, end in zip((pair.before, pair.after), ends, strict=True)}
    return result


def _round(pair: Pair, count: int, chance: random.Random) -> Round:
    taken, throttled = {}, False
    for side in chance.sample([pair.before, pair.after], 2):
        answer = side.ask("sample", count=count)
        taken[side], throttled = answer["seconds"], throttled or answer["throttled"]
    return Round(taken[pair.before], taken[pair.after], throttled)


def _sum_up(result: Paired, blocks: Sequence[Sequence[Round]]) -> None:
    """Sets the rounds of a throttled GPU aside; unless they are most, as with kernels that always meet the power limit:
    then all count, since both sides met it in turns."""
    rounds = [one for block in blocks for one in block]
    if 2 * sum(one.throttled for one in rounds) > len(rounds):
        result.remarks.append(THROTTLED)
    else:
        blocks = [[one for one in block if not one.throttled] for block in blocks]
    kept = [one for block in blocks for one in block]
    result.set_aside = len(rounds) - len(kept)
    result.ratios = [statistics.median(one.ratio for one in block) for block in blocks if block]
    result.before = statistics.median(seconds for one in kept for seconds in one.before)
    result.after = statistics.median(seconds for one in kept for seconds in one.after)


def _cores() -> list[int]:
    return sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []


def _faults(pair: Pair, answers: list[dict[str, Any]]) -> list[str]:
    sides = (pair.before, pair.after)
    return [f"{side.name}: {answer['fault']}" for side, answer in zip(sides, answers, strict=True) if answer["fault"]]
